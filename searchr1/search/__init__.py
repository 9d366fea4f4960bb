"""The search environment: `search(query)` over several back ends, with cache, limits, retries,
circuit breaker and health around each of them.

    async with create_backend(settings) as backend:
        result = await backend.search("who wrote …")
"""

from searchr1.search.base import (
    Fault,
    SearchBackend,
    SearchErrorKind,
    SearchFatalError,
    SearchOutage,
    SearchResult,
)
from searchr1.search.environment import SearchEnvironment
from searchr1.search.factory import create_backend
from searchr1.search.retry_after import parse_retry_after
from searchr1.search.settings import CacheMode, SearchBackendName, SearchSettings
from searchr1.search.statistics import SearchStatistics

__all__ = [
    "CacheMode",
    "Fault",
    "SearchBackend",
    "SearchBackendName",
    "SearchEnvironment",
    "SearchErrorKind",
    "SearchFatalError",
    "SearchOutage",
    "SearchResult",
    "SearchSettings",
    "SearchStatistics",
    "create_backend",
    "parse_retry_after",
]
