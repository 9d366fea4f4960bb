"""One HTTP request of a search service, and everything that may come back instead of JSON.

Whatever a server sends, `HttpService.answer` returns an answer or raises `AttemptFailed`.
Server text is parsed, never quoted: not in messages, not in logs. Every request, a retry
included, first takes its share of the rate that all processes keep together.
"""

import asyncio
import json
import ssl
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, NamedTuple

import httpx

from searchr1.search.base import SearchErrorKind
from searchr1.search.provider import Answer, AttemptFailed, Effort
from searchr1.search.rate import SharedRate
from searchr1.search.retry_after import parse_retry_after
from searchr1.search.settings import CacheMode, SearchSettings

_BODY_LIMIT = 32 * 1024 * 1024  # bytes; an honest answer is a thousand times smaller

_STATUS_KINDS = {
    400: SearchErrorKind.QUERY_REJECTED,
    401: SearchErrorKind.CREDENTIAL,
    402: SearchErrorKind.NO_BALANCE,
    403: SearchErrorKind.FORBIDDEN,
    408: SearchErrorKind.TIMEOUT,
    413: SearchErrorKind.QUERY_REJECTED,
    414: SearchErrorKind.QUERY_REJECTED,
    422: SearchErrorKind.QUERY_REJECTED,
    429: SearchErrorKind.RATE_LIMITED,
}


def status_kind(status: int) -> SearchErrorKind:
    """What an HTTP status other than 200 means."""
    if status in _STATUS_KINDS:
        return _STATUS_KINDS[status]
    return SearchErrorKind.SERVER_ERROR if status >= 500 else SearchErrorKind.PROTOCOL


_MESSAGES = {
    SearchErrorKind.QUERY_REJECTED: "The search service does not accept this query; "
    "try another wording.",
    SearchErrorKind.TIMEOUT: "{name} did not answer within {timeout:g} s.",
    SearchErrorKind.CONNECTION: "The connection to {name} failed or broke off.",
    SearchErrorKind.RATE_LIMITED: "{name} says that there are too many requests.",
    SearchErrorKind.SERVER_ERROR: "{name} reports a failure of its own.",
    SearchErrorKind.PROTOCOL: "{name} answered something else than its documented JSON.",
    SearchErrorKind.CREDENTIAL: "{name} refuses the credential.",
    SearchErrorKind.NO_BALANCE: "{name} asks for payment: the account has no balance left.",
    SearchErrorKind.FORBIDDEN: "{name} refuses this client.",
}


@cache
def _tls() -> ssl.SSLContext:
    """One for all back ends of the process: reading the certificates takes its time."""
    return httpx.create_ssl_context()


class Reply(NamedTuple):
    """A JSON answer with HTTP 200."""

    value: Any
    retry_after: float | None
    """Seconds that the service asked to wait, capped: some report failures inside a 200."""


class HttpService:
    """A client with one connection pool for one service (HTTP/1.1, keep-alive)."""

    def __init__(
        self,
        name: str,
        settings: SearchSettings,
        headers: dict[str, str],
        fatal_hints: dict[SearchErrorKind, str],
    ) -> None:
        """
        Args:
            name: of the service, for messages.
            headers: sent with every request.
            fatal_hints: for each fatal kind that may occur, what happened and what to do.
        """
        limits = settings.search_defaults
        self.name = name
        self._timeout = limits.timeout
        self._max_retry_after = settings.search_max_retry_after
        self._fatal_hints = fatal_hints
        self._rate = None
        if limits.requests_per_minute and settings.search_cache is not CacheMode.REPLAY:
            path = settings.search_rate_dir / f"{settings.search_backend}.sqlite"
            self._rate = SharedRate(path, limits.requests_per_minute)
        self.clock_offset: float | None = None
        """Seconds by which the service's clock was ahead of ours at its last answer."""
        connections = httpx.Limits(
            max_connections=limits.concurrency, max_keepalive_connections=limits.concurrency
        )
        self._client = httpx.AsyncClient(
            headers=headers, timeout=limits.timeout, limits=connections, verify=_tls()
        )

    async def answer(
        self,
        method: str,
        url: str,
        effort: Effort,
        parse: Callable[[Reply], Answer],
        **request: Any,
    ) -> Answer:
        """Send one request and read its answer with `parse`, which may raise `AttemptFailed`
        (see `failure`). Whatever else goes wrong, an answer out of the documented shape did it.

        Args:
            request: `params`, `json` or `headers`, as httpx takes them.

        Raises:
            AttemptFailed: there is no answer.
        """
        try:
            reply = await self._fetch(method, url, effort, request)
            return parse(reply)
        except AttemptFailed as failed:
            effort.rate_limited += failed.kind is SearchErrorKind.RATE_LIMITED
            effort.timeouts += failed.kind is SearchErrorKind.TIMEOUT
            raise
        except Exception:  # boundary: one request; servers send anything, httpx raises many kinds
            raise self.failure(SearchErrorKind.PROTOCOL) from None

    async def _fetch(self, method: str, url: str, effort: Effort, request: dict[str, Any]) -> Reply:
        if self._rate is not None:
            with effort.waiting():
                await self._rate.take()
        effort.requests += 1
        try:
            async with asyncio.timeout(self._timeout):
                response, body = await self._exchange(method, url, request)
        except (TimeoutError, httpx.TimeoutException):
            raise self.failure(SearchErrorKind.TIMEOUT) from None
        except (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError, OSError):
            raise self.failure(SearchErrorKind.CONNECTION) from None
        self._read_clock(response.headers.get("Date"))
        retry_after = parse_retry_after(
            response.headers.get("Retry-After"), time.time(), self._max_retry_after
        )
        if response.status_code != 200:
            raise self.failure(status_kind(response.status_code), retry_after)
        return Reply(json.loads(body.decode("utf-8-sig")), retry_after)

    def failure(self, kind: SearchErrorKind, retry_after: float | None = None) -> AttemptFailed:
        """The failure of an attempt, in our words."""
        template = self._fatal_hints.get(kind) or _MESSAGES[kind]
        message = template.format(name=self.name, timeout=self._timeout)
        return AttemptFailed(kind, message, retry_after)

    async def aclose(self) -> None:
        """Close the connections and the shared rate."""
        await self._client.aclose()
        if self._rate is not None:
            self._rate.close()

    async def _exchange(
        self, method: str, url: str, request: dict[str, Any]
    ) -> tuple[httpx.Response, bytes]:
        async with self._client.stream(method, url, **request) as response:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _BODY_LIMIT:
                    raise ValueError("the answer is too long")
            return response, bytes(body)

    def _read_clock(self, date: str | None) -> None:
        try:
            sent = parsedate_to_datetime(date or "").timestamp()
        except (ValueError, TypeError, IndexError, OverflowError):
            return
        self.clock_offset = sent - time.time()
