"""The inside of a back end: one query, one attempt, an answer or a typed failure.

A provider knows its service or corpus and nothing else; cache, circuit, limits and retries are
around it (see `searchr1.search.environment`).
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from searchr1.search.base import SearchErrorKind
from searchr1.search.observation import clean_item
from searchr1.trajectory import SearchItem


class Answer(NamedTuple):
    """What a service or corpus answered to one query."""

    items: tuple[SearchItem, ...]
    """Best first, clean, each with some text."""
    dropped: int = 0
    """Rows left out because they hold no text."""
    paid: bool = False
    """Whether the service charges for it."""


class AttemptFailed(Exception):
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

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time spent inside as waiting for our own limits."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.waited += time.perf_counter() - began


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


def collect(
    rows: Iterable[Any], read: Callable[[Any], SearchItem | None], top_k: int, paid: bool = False
) -> Answer:
    """An answer of the first `top_k` rows that hold text.

    Args:
        read: the item of a row as it came, None if the row is not to be used.
    """
    items: list[SearchItem] = []
    dropped = 0
    for row in rows:
        raw = read(row)
        if raw is not None and (item := clean_item(raw)).text:
            items.append(item)
        else:
            dropped += 1
    return Answer(tuple(items[:top_k]), dropped, paid)


def string(value: Any) -> str:
    """A JSON value if it is a string that is not blank, else ""."""
    return value if isinstance(value, str) and value.strip() else ""
