"""The `wikipedia` back end: search and introductions of English Wikipedia, by the Action API.

Wikimedia's etiquette (mediawiki.org, API:Etiquette) asks for a User-Agent that leads to the
person who runs the program: WIKIPEDIA_CONTACT. Another wiki: WIKIPEDIA_API_URL, the address of
its api.php. Failures come as HTTP 200 with an error object; no hit is an answer without `query`.
"""

from typing import Any

from searchr1 import __version__
from searchr1.search.base import SearchErrorKind
from searchr1.search.credentials import address_in, wikipedia_contact
from searchr1.search.http import HttpService, Reply
from searchr1.search.provider import Answer, Effort, collect, string
from searchr1.search.settings import CacheMode, SearchBackendName, SearchSettings
from searchr1.trajectory import SearchItem

_API = "https://en.wikipedia.org/w/api.php"
_CHARACTERS = 1_200  # of an introduction
_EXTRACTS = 20  # the most that one request returns
_PARAMETERS = {
    "action": "query",
    "format": "json",
    "formatversion": "2",
    "generator": "search",
    "gsrnamespace": "0",
    "prop": "extracts|info|pageprops",
    "ppprop": "disambiguation",
    "explaintext": "1",
    "exintro": "1",
    "exlimit": "max",
    "exchars": str(_CHARACTERS),
    "inprop": "url",
    "redirects": "1",
    "maxlag": "5",
}
_HINTS = {
    SearchErrorKind.FORBIDDEN: "Wikipedia refuses this client: check that WIKIPEDIA_CONTACT leads "
    "to you, and that this network is not blocked; then start again later and slower "
    "(search_requests_per_minute).",
}
_CODES = {
    "ratelimited": SearchErrorKind.RATE_LIMITED,
    "blocked": SearchErrorKind.FORBIDDEN,
    "autoblocked": SearchErrorKind.FORBIDDEN,
    "globalblocking-blocked": SearchErrorKind.FORBIDDEN,
    "badvalue": SearchErrorKind.QUERY_REJECTED,
    "missingparam": SearchErrorKind.QUERY_REJECTED,
    "paramempty": SearchErrorKind.QUERY_REJECTED,
}
"""Codes of error objects; any other is a failure of the service that may pass."""
_ENVELOPE = {"batchcomplete", "continue", "curtimestamp", "limits", "requestid", "servedby"}
_ENVELOPE |= {"warnings", "uselang", "errorlang"}


class WikipediaProvider:
    """One search is one request for twice `top_k` pages, of which those without an introduction
    and disambiguation pages are left out."""

    name = SearchBackendName.WIKIPEDIA.value
    max_query: int | None = 300

    def __init__(self, settings: SearchSettings) -> None:
        self._url = address_in("WIKIPEDIA_API_URL", _API)
        self._top_k = settings.search_top_k
        self.price = settings.search_cost or 0.0
        self.fingerprint: dict[str, Any] = {
            "api": self._url,
            "top_k": self._top_k,
            "characters": _CHARACTERS,
        }
        headers = {"Accept-Encoding": "gzip"}
        if settings.search_cache is not CacheMode.REPLAY:
            headers["User-Agent"] = f"searchr1/{__version__} ({wikipedia_contact()})"
        self.service = HttpService("Wikipedia", settings, headers, _HINTS)

    async def ask(self, query: str, effort: Effort) -> Answer:
        """See `SearchProvider.ask`."""
        limit = str(min(2 * self._top_k, _EXTRACTS))
        parameters = _PARAMETERS | {"gsrsearch": query, "gsrlimit": limit}
        return await self.service.answer("GET", self._url, effort, self._parse, params=parameters)

    async def aclose(self) -> None:
        """See `SearchProvider.aclose`."""
        await self.service.aclose()

    def _parse(self, reply: Reply) -> Answer:
        body: dict[str, Any] = reply.value
        if error := body.get("error") or body.get("errors"):
            first = error[0] if isinstance(error, list) else error
            code = first.get("code") if isinstance(first, dict) else None
            kind = _CODES.get(str(code), SearchErrorKind.SERVER_ERROR)
            raise self.service.failure(kind, reply.retry_after)
        if "query" not in body:
            if set(body) <= _ENVELOPE:
                return Answer(())
            raise ValueError
        pages = body["query"]["pages"]
        if not isinstance(pages, list):
            raise TypeError
        return collect(sorted(pages, key=_rank), _item, self._top_k, paid=bool(pages))


def _rank(page: dict[str, Any]) -> int:
    return page["index"]


def _item(page: dict[str, Any]) -> SearchItem | None:
    if "disambiguation" in (page.get("pageprops") or {}):
        return None
    title, text = string(page.get("title")), string(page.get("extract"))
    return SearchItem(title, text, string(page.get("canonicalurl") or page.get("fullurl")))
