"""A provider with everything around it: the environment that the policy searches in.

Outside to inside: statistics, query checks, kept answers, identical queries in flight, concurrency
limit, circuit breaker, retries, and for each request the machine's shared rate and the request
itself (`searchr1.search.http`). The breaker is inside of the limit, so that an open circuit also
empties the queue at once; the rate is inside of the retries, so that each request counts. Every
search ends in a `SearchResult` within the total time, or in a `SearchFatalError`.
"""

import asyncio
import dataclasses
import logging
import sqlite3
import time
from typing import Any, Self

from searchr1.errors import SettingsError
from searchr1.search.base import Fault, SearchErrorKind, SearchFatalError, SearchResult
from searchr1.search.breaker import Admission, CircuitBreaker
from searchr1.search.provider import Answer, AttemptFailed, Effort, SearchProvider
from searchr1.search.retries import ask_with_retries
from searchr1.search.settings import CacheMode, SearchSettings
from searchr1.search.statistics import SearchMeter, SearchStatistics
from searchr1.search.store import AnswerStore, StoredAnswer, canonical

logger = logging.getLogger(__name__)


class SearchEnvironment:
    """Implements `searchr1.search.base.SearchBackend`. Use it within one event loop, and close
    it, or use it as an async context manager."""

    def __init__(
        self, provider: SearchProvider, settings: SearchSettings, store: AnswerStore | None
    ) -> None:
        """
        Args:
            store: kept answers, None in cache mode `off`.
        """
        self.provider = provider
        self.name = provider.name
        self.fingerprint: dict[str, Any] = {"backend": provider.name, **provider.fingerprint}
        self.cache_mode = settings.search_cache
        self._settings = settings
        self._store = store
        self._environment = canonical(self.fingerprint)
        self._breaker = CircuitBreaker(
            settings.search_circuit_failures, settings.search_circuit_seconds
        )
        self._slots = asyncio.Semaphore(settings.search_defaults.concurrency)
        self._flights: dict[str, asyncio.Task[SearchResult]] = {}
        self._recorded: set[str] = set()
        self._meter = SearchMeter()

    async def search(self, query: str) -> SearchResult:
        """See `SearchBackend.search`."""
        began = time.perf_counter()
        query = query.encode("utf-8", "replace").decode()  # a lone surrogate is no text
        result = self._check(query) or self._kept(query) or await self._shared(query)
        result = dataclasses.replace(result, seconds=time.perf_counter() - began)
        self._meter.record(result)
        if result.error is not None and result.error.fault is Fault.FATAL:
            raise SearchFatalError(result.error, result.message)
        return result

    def take_statistics(self) -> SearchStatistics:
        """Statistics of the searches since the last call (or the beginning)."""
        return self._meter.take()

    def check_recording(self) -> None:
        """Look whether there is anything to replay.

        Raises:
            SettingsError: the recording holds no answer of this environment.
        """
        counts = self._store.counts() if self._store is not None else {}
        if self._environment not in counts:
            others = "".join(f"\n  {count} answers of {name}" for name, count in counts.items())
            raise SettingsError(
                "The recording holds no answer of this search environment:\n  "
                f"{self._environment}\nSettings that change answers must be as they were when it "
                f"was recorded. It holds:{others or ' nothing'}"
            )

    async def aclose(self) -> None:
        """See `SearchBackend.aclose`."""
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)
        await self.provider.aclose()
        if self._store is not None:
            self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _check(self, query: str) -> SearchResult | None:
        """A result for a query that cannot be sent."""
        limit = self.provider.max_query
        if not query.strip():
            return _failure(SearchErrorKind.BAD_QUERY, "The query is empty.")
        if limit is not None and len(query) > limit:
            message = f"The query has {len(query)} characters; at most {limit} are allowed."
            return _failure(SearchErrorKind.BAD_QUERY, message)
        return None

    def _kept(self, query: str) -> SearchResult | None:
        """A result from the kept answers, or in `replay` the lack of one."""
        if self._store is None:
            return None
        if self.cache_mode is CacheMode.RECORD and query not in self._recorded:
            return None
        try:
            answer = self._store.get(self._environment, query)
        except (sqlite3.Error, ValueError) as error:
            logger.warning("The search cache cannot be read (%s).", type(error).__name__)
            answer = None
        if answer is not None:
            return SearchResult(ok=True, items=answer.items, cached=True)
        if self.cache_mode is CacheMode.REPLAY:
            message = (
                f"Replay: the recording {self._store.path} holds no answer for the query {query!r} "
                f"in this environment. Record it with search_cache=record."
            )
            return _failure(SearchErrorKind.REPLAY_MISS, message)
        return None

    async def _shared(self, query: str) -> SearchResult:
        """The result of the flight for this query; the first caller starts it. It goes on when
        its callers are cancelled: it may be paid for already, and others may have joined."""
        if joined := query in self._flights:
            flight = self._flights[query]
        else:
            flight = self._flights[query] = asyncio.create_task(self._fly(query))
            flight.add_done_callback(lambda _: self._flights.pop(query, None))
        result = await asyncio.shield(flight)
        if joined:
            return SearchResult(result.ok, result.items, result.error, result.message, joined=True)
        return result

    async def _fly(self, query: str) -> SearchResult:
        began = time.perf_counter()
        effort = Effort()
        try:
            answer = await self._answer(query, effort)
            cost = self.provider.price if answer.paid else 0.0
            await self._keep(query, StoredAnswer(answer.items, cost, time.perf_counter() - began))
            result = SearchResult(True, answer.items, cost=cost, dropped=answer.dropped)
        except AttemptFailed as failed:
            result = _failure(failed.kind, failed.message)
        return dataclasses.replace(
            result,
            requests=effort.requests,
            rate_limited=effort.rate_limited,
            timeouts=effort.timeouts,
            waited=effort.waited,
        )

    async def _answer(self, query: str, effort: Effort) -> Answer:
        """Queue for a slot, then ask as the circuit allows."""
        deadline = asyncio.get_running_loop().time() + self._settings.search_total_timeout
        try:
            with effort.waiting():
                async with asyncio.timeout_at(deadline):
                    await self._slots.acquire()
        except TimeoutError:
            raise self._out_of_time(effort) from None
        try:
            return await self._admitted(query, effort, deadline)
        finally:
            self._slots.release()

    async def _admitted(self, query: str, effort: Effort, deadline: float) -> Answer:
        """Ask if the circuit allows it, and tell the circuit what came of it."""
        try:
            with effort.waiting():
                async with asyncio.timeout_at(deadline):
                    admission = await self._breaker.admit()
        except TimeoutError:
            raise self._out_of_time(effort) from None
        if admission is Admission.REFUSED:
            raise _circuit_open()
        alive = None
        try:
            answer = await self._attempts(query, effort, admission, deadline)
            alive = True
            return answer
        except AttemptFailed as failed:
            alive = _says_alive(failed.kind)
            raise
        finally:
            self._breaker.settle(admission, alive)

    async def _attempts(
        self, query: str, effort: Effort, admission: Admission, deadline: float
    ) -> Answer:
        attempts = 1 if admission is Admission.PROBE else self._settings.search_attempts
        left = deadline - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(deadline):
                return await ask_with_retries(self.provider, query, effort, attempts, left)
        except TimeoutError:
            raise self._out_of_time(effort) from None

    def _out_of_time(self, effort: Effort) -> AttemptFailed:
        total = self._settings.search_total_timeout
        if effort.requests:
            message = f"No answer within {total:g} s, {effort.requests} requests sent."
            return AttemptFailed(SearchErrorKind.TIMEOUT, message)
        message = (
            f"Not sent within {total:g} s: search_concurrency or search_requests_per_minute is "
            "too low for so many searches, or search_total_timeout too short."
        )
        return AttemptFailed(SearchErrorKind.QUEUE_TIMEOUT, message)

    async def _keep(self, query: str, answer: StoredAnswer) -> None:
        """Keep an answer. It is never lost to the policy because the disk is full."""
        if self._store is None:
            return
        try:
            await asyncio.to_thread(self._store.put, self._environment, query, answer)
            self._recorded.add(query)
        except sqlite3.Error as error:
            logger.warning(
                "An answer could not be kept in %s (%s).", self._store.path, type(error).__name__
            )


def _failure(kind: SearchErrorKind, message: str) -> SearchResult:
    return SearchResult(ok=False, error=kind, message=message)


def _circuit_open() -> AttemptFailed:
    return AttemptFailed(
        SearchErrorKind.CIRCUIT_OPEN,
        "Not sent: too many searches in a row failed. After a while one search tests whether the "
        "service is back.",
    )


def _says_alive(kind: SearchErrorKind) -> bool | None:
    """What a failure says about the service: it refused the query but lives, it failed, or
    nothing (our own queue, a key)."""
    if kind.fault is Fault.POLICY:
        return True
    return None if kind is SearchErrorKind.QUEUE_TIMEOUT or kind.fault is Fault.FATAL else False
