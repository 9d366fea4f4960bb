"""The inside of a back end: one query, one attempt, an answer or a typed failure.

A provider knows its service or corpus and nothing else; cache, circuit, limits and retries are
around it (see `searchr1.search.environment`).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from searchr1.search.base import SearchErrorKind
from searchr1.trajectory import SearchItem


class Answer(NamedTuple):
    """What a service or corpus answered to one query."""

    items: tuple[SearchItem, ...]
    """Best first, as they came; each holds some text."""
    dropped: int = 0
    """Rows left out because they hold no text."""
    paid: bool = False
    """Whether the service charges for it."""


class AttemptFailed(Exception):  # noqa: N818  (an outcome of an attempt, never seen outside)
    """One attempt came to nothing. The message is ours and safe to show."""

    def __init__(
        self, kind: SearchErrorKind, message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after = retry_after
        """Seconds that the service asked to wait, capped."""


@dataclass(slots=True)
class Effort:
    """What one search has cost so far, counted up by the layers that it passes through."""

    requests: int = 0
    rate_limited: int = 0
    timeouts: int = 0
    waited: float = 0.0


class SearchProvider(Protocol):
    """A service or corpus."""

    name: str
    max_query: int | None
    """Longest query in Unicode code points."""
    fingerprint: dict[str, Any]
    """The settings that change answers, beside the name."""
    price: float
    """US dollars an answer that is paid for."""

    async def ask(self, query: str, effort: Effort) -> Answer:
        """Try once.

        Raises:
            AttemptFailed: there is no answer.
        """
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...
