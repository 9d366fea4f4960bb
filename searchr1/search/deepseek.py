"""The `deepseek` back end: DeepSeek's search API, `POST /v1/tools/search`.

Key: DEEPSEEK_API_KEY, else DEEPSEEK_KEY. Another host: DEEPSEEK_BASE_URL. An answer with
results costs USD 0.75 a thousand; empty answers and errors are free.
"""

from typing import Any

from searchr1.search.base import SearchErrorKind
from searchr1.search.credentials import address_in, secrets
from searchr1.search.http import HttpService, Reply
from searchr1.search.provider import Answer, Effort, collect, string
from searchr1.search.settings import CacheMode, SearchBackendName, SearchSettings
from searchr1.trajectory import SearchItem

_NAMES = ("DEEPSEEK_API_KEY", "DEEPSEEK_KEY")
_PRICE = 0.75 / 1000
_HINTS = {
    SearchErrorKind.CREDENTIAL: "DeepSeek refuses the key (HTTP 401): set DEEPSEEK_API_KEY (or "
    "DEEPSEEK_KEY) to a valid key of platform.deepseek.com, then start again.",
    SearchErrorKind.NO_BALANCE: "The DeepSeek account has no balance left (HTTP 402): top it up, "
    "or set DEEPSEEK_API_KEY to a key of another account, then start again; finished work is kept.",
    SearchErrorKind.FORBIDDEN: "DeepSeek refuses this key or network (HTTP 403): check that the "
    "account behind DEEPSEEK_API_KEY may use the search API.",
}


class DeepSeekProvider:
    """One search is one request for `top_k` results."""

    name = SearchBackendName.DEEPSEEK.value
    max_query: int | None = 128

    def __init__(self, settings: SearchSettings) -> None:
        base = address_in("DEEPSEEK_BASE_URL", "https://api.deepseek.com")
        self._url = base.removesuffix("/v1").removesuffix("/beta") + "/v1/tools/search"
        self._fields = settings.deepseek_evidence
        self._top_k = settings.search_top_k
        self.price = _PRICE if settings.search_cost is None else settings.search_cost
        self.fingerprint: dict[str, Any] = {"top_k": self._top_k, "evidence": list(self._fields)}
        headers = {}
        if settings.search_cache is not CacheMode.REPLAY:
            key = secrets(_NAMES, "DeepSeek search")[0]
            headers["Authorization"] = f"Bearer {key}"
        self.service = HttpService("DeepSeek", settings, headers, _HINTS)

    async def ask(self, query: str, effort: Effort) -> Answer:
        """See `SearchProvider.ask`."""
        body: dict[str, Any] = {"query": query, "count": self._top_k}
        if "content" in self._fields:
            body["need_content"] = True
        return await self.service.answer("POST", self._url, effort, self._parse, json=body)

    async def aclose(self) -> None:
        """See `SearchProvider.aclose`."""
        await self.service.aclose()

    def _parse(self, reply: Reply) -> Answer:
        if reply.value.get("error"):
            raise self.service.failure(SearchErrorKind.SERVER_ERROR, reply.retry_after)
        rows = reply.value["results"] or []
        if not isinstance(rows, list):
            raise TypeError
        return collect(rows, self._item, self._top_k, paid=bool(rows))

    def _item(self, row: Any) -> SearchItem | None:
        if not isinstance(row, dict):
            return None
        text = next((text for name in self._fields if (text := string(row.get(name)))), "")
        return SearchItem(string(row.get("title")), text, string(row.get("url")))
