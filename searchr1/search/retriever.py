"""The `retriever` back end: the retrieval server of the Search-R1 paper's code, `POST /retrieve`.

The paper's setting is the wiki-18 corpus, E5 embeddings and top 3. `return_scores` is always
true: the reference server breaks without it. Documents come wrapped with a score, or bare.
"""

from typing import Any
from urllib.parse import urlsplit

from searchr1.search.base import SearchErrorKind
from searchr1.search.corpus import split_contents
from searchr1.search.credentials import address
from searchr1.search.http import HttpService, Reply
from searchr1.search.provider import Answer, AttemptFailed, Effort, collect, string
from searchr1.search.settings import SearchBackendName, SearchSettings
from searchr1.trajectory import SearchItem

_REFUSED = "The retrieval server refuses this client (HTTP {status}): check retriever_url and "
_HINTS = {
    kind: _REFUSED.format(status=status) + "that the server needs no credential."
    for kind, status in (
        (SearchErrorKind.CREDENTIAL, 401),
        (SearchErrorKind.NO_BALANCE, 402),
        (SearchErrorKind.FORBIDDEN, 403),
    )
}


class RetrieverProvider:
    """One search is one request with one query."""

    name = SearchBackendName.RETRIEVER.value
    max_query: int | None = None

    def __init__(self, settings: SearchSettings) -> None:
        url = urlsplit(address("retriever_url", settings.retriever_url))
        self._url = url._replace(path=url.path or "/retrieve").geturl()
        self._top_k = settings.search_top_k
        self.price = settings.search_cost or 0.0
        self.fingerprint: dict[str, Any] = {"url": self._url, "top_k": self._top_k}
        self.service = HttpService("The retrieval server", settings, {}, _HINTS)

    async def ask(self, query: str, effort: Effort) -> Answer:
        """See `SearchProvider.ask`."""
        body = {"queries": [query], "topk": self._top_k, "return_scores": True}
        try:
            return await self.service.answer("POST", self._url, effort, self._parse, json=body)
        except AttemptFailed as failed:
            if failed.kind is SearchErrorKind.QUERY_REJECTED:
                # Any text is a query to it: a refusal speaks of the server, not of the policy.
                raise self.service.failure(SearchErrorKind.PROTOCOL) from None
            raise

    async def aclose(self) -> None:
        """See `SearchProvider.aclose`."""
        await self.service.aclose()

    def _parse(self, reply: Reply) -> Answer:
        (rows,) = reply.value["result"]  # one list for each query sent
        rows = rows or []
        if not isinstance(rows, list):
            raise TypeError
        return collect(rows, _item, self._top_k, paid=bool(rows))


def _item(row: Any) -> SearchItem | None:
    document = row.get("document", row) if isinstance(row, dict) else None
    if not isinstance(document, dict):
        return None
    title, text = string(document.get("title")), string(document.get("text"))
    if not text and (contents := string(document.get("contents"))):
        title, text = (title, contents) if title else split_contents(contents)
    return SearchItem(title, text, string(document.get("url")))
