"""Trying a query again while that may help: exponential backoff with full jitter, never sooner
than the service asked for, never past the time that the search has left."""

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
    wait_random_exponential,
)

from searchr1.search.provider import Answer, AttemptFailed, Effort, SearchProvider

_BACKOFF = wait_random_exponential(multiplier=0.5, max=20)  # seconds: up to 0.5, 1, 2, … 20


async def ask_with_retries(
    provider: SearchProvider, query: str, effort: Effort, attempts: int, seconds: float
) -> Answer:
    """The answer of the first of `attempts` that succeeds within `seconds`.

    Raises:
        AttemptFailed: of the last attempt, when none succeeds, waiting for the next would take
            longer than `seconds` from the first, or trying again would not help.
    """
    retrying = AsyncRetrying(
        stop=stop_after_attempt(attempts) | stop_before_delay(seconds),
        wait=_wait,
        retry=retry_if_exception(_may_pass),
        reraise=True,
    )
    return await retrying(provider.ask, query, effort)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, AttemptFailed) and error.kind.transient


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, AttemptFailed) else None
    return max(_BACKOFF(state), asked or 0.0)
