"""`--check`: is the back end ready? Key or contact, reachability, clock, one after the other, each
with what is wrong and what to do."""

from typing import NamedTuple

from searchr1.errors import SearchR1Error
from searchr1.search.base import SearchFatalError
from searchr1.search.factory import create_backend
from searchr1.search.http import HttpService
from searchr1.search.settings import CacheMode, SearchSettings

_QUERY = "Ada Lovelace"
_CLOCK_WARNING = 120.0  # seconds; the services that care allow ten minutes


class Finding(NamedTuple):
    """The outcome of one check."""

    subject: str
    fine: bool
    text: str


async def check(settings: SearchSettings) -> list[Finding]:
    """Try the back end with one real search (which may cost its price), without cache."""
    settings = settings.model_copy(update={"search_cache": CacheMode.OFF, "search_attempts": 1})
    try:
        backend = create_backend(settings)
    except SearchR1Error as error:
        return [Finding("settings", False, str(error))]
    findings = [Finding("settings", True, "what the back end needs is set")]
    async with backend:
        try:
            result = await backend.search(_QUERY)
            text = f"answered in {result.seconds:.2f} s with {len(result.items)} results"
            found = Finding("search", result.ok, text if result.ok else result.message)
        except SearchFatalError as error:
            found = Finding("search", False, str(error))
        findings.append(found)
        service = getattr(backend.provider, "service", None)
        if isinstance(service, HttpService) and (offset := service.clock_offset) is not None:
            fine = abs(offset) < _CLOCK_WARNING
            text = f"this machine's clock is {abs(offset):.0f} s off the service's"
            findings.append(Finding("clock", fine, text if fine else f"{text}: set it right"))
    return findings
