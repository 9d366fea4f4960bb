"""The `zhihu` back end: Zhihu's global search.

Keys: ZHIHU_SEARCH_KEYS (also ZHIHU_SEARCH_KEY, ZHIHU_ACCESS_SECRET), used in turn. Another host:
ZHIHU_BASE_URL. The service reports its failures as a `Code` inside HTTP 200, and refuses requests
whose time stamp is more than ten minutes off.
"""

import itertools
import logging
import time
from typing import Any

from searchr1.search.base import Fault, SearchErrorKind
from searchr1.search.credentials import address_in, secrets
from searchr1.search.http import HttpService, Reply
from searchr1.search.provider import Answer, AttemptFailed, Effort, collect, string
from searchr1.search.settings import CacheMode, SearchBackendName, SearchSettings
from searchr1.trajectory import SearchItem

logger = logging.getLogger(__name__)

_NAMES = ("ZHIHU_SEARCH_KEYS", "ZHIHU_SEARCH_KEY", "ZHIHU_ACCESS_SECRET")
_CLOCK_TOLERANCE = 600.0  # seconds
_REFUSED = "Zhihu refuses every key in ZHIHU_SEARCH_KEYS{why}: set it to valid access secrets."
_HINTS = {
    SearchErrorKind.CREDENTIAL: _REFUSED.format(why=""),
    SearchErrorKind.NO_BALANCE: _REFUSED.format(why=" for lack of balance (HTTP 402)"),
    SearchErrorKind.FORBIDDEN: _REFUSED.format(why=" (HTTP 403)"),
    SearchErrorKind.CLOCK: "Zhihu refuses the time stamp: this machine's clock is more than ten "
    "minutes off. Set the clock, then start again.",
}
_CODES = {
    "10001": SearchErrorKind.QUERY_REJECTED,
    "20001": SearchErrorKind.CREDENTIAL,
    "30001": SearchErrorKind.RATE_LIMITED,
    "30002": SearchErrorKind.RATE_LIMITED,
    "30003": SearchErrorKind.RATE_LIMITED,  # risk control: it strikes a key, for a while
}


class ZhihuProvider:
    """One search is one request for each key in turn, until one is neither used up nor refused."""

    name = SearchBackendName.ZHIHU.value
    max_query: int | None = None

    def __init__(self, settings: SearchSettings) -> None:
        base = address_in("ZHIHU_BASE_URL", "https://developer.zhihu.com")
        self._url = base + "/api/v1/content/global_search"
        self._top_k = settings.search_top_k
        self.price = settings.search_cost or 0.0
        self.fingerprint: dict[str, Any] = {"top_k": self._top_k, "database": "all"}
        offline = settings.search_cache is CacheMode.REPLAY
        self._keys = KeyRing([] if offline else secrets(_NAMES, "Zhihu search"))
        self._cooldown = settings.zhihu_cooldown
        self.service = HttpService("Zhihu", settings, {}, _HINTS)

    async def ask(self, query: str, effort: Effort) -> Answer:
        """See `SearchProvider.ask`."""
        parameters = {"Query": query, "Count": str(self._top_k), "SearchDB": "all"}
        failed = self.service.failure(SearchErrorKind.CREDENTIAL)
        tried: set[str] = set()
        while (key := self._keys.next(tried)) is not None:
            tried.add(key)
            headers = {
                "Authorization": f"Bearer {key}",
                "X-Request-Timestamp": str(int(time.time())),
            }
            try:
                return await self.service.answer(
                    "GET", self._url, effort, self._parse, params=parameters, headers=headers
                )
            except AttemptFailed as error:
                failed = error
            if failed.kind is SearchErrorKind.RATE_LIMITED:
                self._keys.rest(key, failed.retry_after or self._cooldown)
            elif failed.kind.fault is Fault.FATAL:
                if abs(self.service.clock_offset or 0.0) > _CLOCK_TOLERANCE:
                    raise self.service.failure(SearchErrorKind.CLOCK)
                self._keys.retire(key)
                logger.warning("Zhihu refuses one of the keys; it is not used any more.")
            else:
                raise failed
        if (seconds := self._keys.soonest()) is not None:
            raise self.service.failure(SearchErrorKind.RATE_LIMITED, seconds)
        raise failed

    async def aclose(self) -> None:
        """See `SearchProvider.aclose`."""
        await self.service.aclose()

    def _parse(self, reply: Reply) -> Answer:
        code = str(reply.value["Code"])
        if code != "0":
            kind = _CODES.get(code, SearchErrorKind.SERVER_ERROR)
            raise self.service.failure(kind, reply.retry_after)
        rows = (reply.value.get("Data") or {}).get("Items") or []
        if not isinstance(rows, list):
            raise TypeError
        return collect(rows, _item, self._top_k, paid=bool(rows))


class KeyRing:
    """Keys in turn, without those that rest or are retired. Never printed."""

    def __init__(self, keys: list[str]) -> None:
        self._ready_at = dict.fromkeys(keys, 0.0)
        self._turn = itertools.count()

    def next(self, tried: set[str]) -> str | None:
        """The next key that may be used now and is not among those tried already."""
        now = time.monotonic()
        ready = [key for key, at in self._ready_at.items() if at <= now and key not in tried]
        return ready[next(self._turn) % len(ready)] if ready else None

    def rest(self, key: str, seconds: float) -> None:
        """Do not use a key for a while."""
        if key in self._ready_at:
            self._ready_at[key] = time.monotonic() + seconds

    def retire(self, key: str) -> None:
        """Never use a key again."""
        self._ready_at.pop(key, None)

    def soonest(self) -> float | None:
        """Seconds until some key may be used, None if all are retired."""
        now = time.monotonic()
        return min((max(at - now, 0.0) for at in self._ready_at.values()), default=None)


def _item(row: Any) -> SearchItem | None:
    if not isinstance(row, dict):
        return None
    return SearchItem(
        string(row.get("Title")), string(row.get("ContentText")), string(row.get("Url"))
    )
