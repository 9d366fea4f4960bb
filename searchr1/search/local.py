"""The `local` back end: BM25 over a corpus file on this machine."""

import asyncio
from typing import Any

from searchr1.errors import SettingsError
from searchr1.search.corpus import Document
from searchr1.search.index import K1, RULES, TITLE_WEIGHT, B, open_index
from searchr1.search.provider import Answer, Effort, collect
from searchr1.search.settings import SearchBackendName, SearchSettings
from searchr1.trajectory import SearchItem

_DOCUMENTS_IN_THE_LOOP = 10_000
"""Up to here a query takes a fraction of a millisecond, less than handing it to a thread."""


class LocalProvider:
    """Searches a corpus index; large ones in a thread, so that the event loop goes on."""

    name = SearchBackendName.LOCAL.value
    max_query: int | None = None

    def __init__(self, settings: SearchSettings) -> None:
        if settings.search_corpus is None:
            raise SettingsError(
                "The local search back end needs a corpus: set search_corpus (--search-corpus) "
                "to a JSON Lines or Parquet file with id, title and text."
            )
        self._index, checksum = open_index(settings.search_corpus, settings.search_cache_dir)
        self._top_k = settings.search_top_k
        self.price = settings.search_cost or 0.0
        self.fingerprint: dict[str, Any] = {
            "corpus": checksum,
            "top_k": self._top_k,
            "bm25": [RULES, K1, B, TITLE_WEIGHT],
        }

    async def ask(self, query: str, effort: Effort) -> Answer:
        """The documents that match best; never fails."""
        if len(self._index) <= _DOCUMENTS_IN_THE_LOOP:
            documents = self._index.search(query, self._top_k)
        else:
            documents = await asyncio.to_thread(self._index.search, query, self._top_k)
        return collect(documents, _item, self._top_k, paid=bool(documents))

    async def aclose(self) -> None:
        """Nothing to close: the index is only mapped."""


def _item(document: Document) -> SearchItem:
    return SearchItem(document.title, document.text or document.title)
