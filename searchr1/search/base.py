"""The types of the search layer: what a search answers, and what may go wrong with it.

A search always ends in a `SearchResult`. The kind of its error says whose fault it is, and
that alone decides what happens: the policy's fault is shown to the policy, the environment's
fault ends the trajectory without a reward, and a fatal one is raised as `SearchFatalError`.
No message in this module or below it holds a key or text that a server sent.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from searchr1.errors import FatalError, RetryableError
from searchr1.trajectory import SearchItem


class Fault(StrEnum):
    """Whose fault a failed search is."""

    POLICY = "policy"
    """The query itself is wrong: the policy reads the message as a tool error and may try again."""
    ENVIRONMENT = "environment"
    """The environment failed: the trajectory ends as `environment_error` and teaches nothing."""
    FATAL = "fatal"
    """No later search can go through until a person changes something: the run stops."""


class SearchErrorKind(StrEnum):
    """Why a search has no results to show."""

    BAD_QUERY = "bad_query"
    """The query is blank or longer than the service allows; no request was sent."""
    QUERY_REJECTED = "query_rejected"
    """The service refused this query as such (HTTP 400, 413, 414, 422 or its own code)."""
    TIMEOUT = "timeout"
    """No complete answer in time (also HTTP 408), after all retries."""
    CONNECTION = "connection"
    """No connection, or it broke before or inside the answer, after all retries."""
    RATE_LIMITED = "rate_limited"
    """The service or the quota of every key said "too many" (HTTP 429), after all retries."""
    SERVER_ERROR = "server_error"
    """The service said that it failed (HTTP 5xx, an error object in a 200), after all retries."""
    PROTOCOL = "protocol"
    """The answer is not what the service documents: HTML, broken JSON, an unknown status."""
    QUEUE_TIMEOUT = "queue_timeout"
    """Our own limits kept the search waiting past its total time; no request was sent."""
    CIRCUIT_OPEN = "circuit_open"
    """Too many searches in a row failed; this one was not sent, to spare the service."""
    REPLAY_MISS = "replay_miss"
    """Cache mode `replay`, and the recording holds no answer for this query."""
    CREDENTIAL = "credential"
    """The key was refused (HTTP 401, or every key of several)."""
    NO_BALANCE = "no_balance"
    """The account has no balance left (HTTP 402)."""
    FORBIDDEN = "forbidden"
    """The service refuses this client (HTTP 403, or blocked by its own code)."""
    CLOCK = "clock"
    """This machine's clock is too far from the service's for its signed requests."""

    @property
    def fault(self) -> Fault:
        """Whose fault it is."""
        if self in (SearchErrorKind.BAD_QUERY, SearchErrorKind.QUERY_REJECTED):
            return Fault.POLICY
        if self in _FATAL:
            return Fault.FATAL
        return Fault.ENVIRONMENT

    @property
    def transient(self) -> bool:
        """Whether the same request, sent again a little later, may well go through."""
        return self in _TRANSIENT


_FATAL = frozenset(
    {
        SearchErrorKind.CREDENTIAL,
        SearchErrorKind.NO_BALANCE,
        SearchErrorKind.FORBIDDEN,
        SearchErrorKind.CLOCK,
    }
)
_TRANSIENT = frozenset(
    {
        SearchErrorKind.TIMEOUT,
        SearchErrorKind.CONNECTION,
        SearchErrorKind.RATE_LIMITED,
        SearchErrorKind.SERVER_ERROR,
    }
)


class SearchOutage(RetryableError):
    """Too many searches failed for the environment's sake: try the step again later."""


class SearchFatalError(FatalError):
    """No search can go through until a person changes something; `kind` says what."""

    def __init__(self, kind: SearchErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type, tuple[SearchErrorKind, str]]:
        return type(self), (self.kind, str(self))


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What one search came to. Either `ok`, or `error` is set."""

    ok: bool
    items: tuple[SearchItem, ...] = ()
    """Best first; texts are clean (see `searchr1.search.observation.clean_text`)."""
    error: SearchErrorKind | None = None
    message: str = ""
    """For the policy or a person, in our own words; empty when `ok`."""
    seconds: float = 0.0
    """From the call to the result, waiting and retries included."""
    cached: bool = False
    """Read from the cache or recording."""
    joined: bool = False
    """Shares the answer of an identical query that was already in flight."""
    cost: float = 0.0
    """US dollars that this very search cost; 0 when cached or joined."""
    requests: int = 0
    """Requests sent to the service, retries included; 0 when cached or joined."""
    rate_limited: int = 0
    """How many of them were answered with "too many"."""
    timeouts: int = 0
    """How many of them had no answer in time."""
    waited: float = 0.0
    """Seconds of `seconds` spent on our own concurrency and rate limits."""
    dropped: int = 0
    """Rows of the answer left out because they hold no text."""


class SearchBackend(Protocol):
    """A search back end with everything around it, as the rollout sees it.

    One object belongs to one event loop.
    """

    @property
    def name(self) -> str:
        """The value of `--search-backend`."""
        ...

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The settings that change answers, no keys: equal fingerprints mean comparable runs."""
        ...

    async def search(self, query: str) -> SearchResult:
        """Search once.

        Raises:
            SearchFatalError: no search can go through (bad key, no balance, blocked). Any other
                failure is a result.
        """
        ...

    async def aclose(self) -> None:
        """Close connections and files. May be called twice."""
        ...
