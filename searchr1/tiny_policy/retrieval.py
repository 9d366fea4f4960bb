"""Search over one world's documents in memory, for supervised training.

Ranking and rendering are those of the `local` back end, so that the observations shown here are
those that rollouts show later: its rules for words and weights, two results, a line each.
"""

import bm25s
import numpy as np

from searchr1.data.world import World
from searchr1.search.corpus import Document
from searchr1.search.index import K1, B, document_words, words
from searchr1.search.observation import NO_RESULTS, render_items
from searchr1.trajectory import SearchItem

RESULTS = 2


class WorldIndex:
    """A BM25 index over the documents of one world."""

    def __init__(self, world: World) -> None:
        # In the order of ids, which decides between equally good documents.
        documents = sorted(world.documents, key=lambda document: document.document_id)
        self._lines = render_items([SearchItem(each.title, each.text) for each in documents])
        self._bm25 = bm25s.BM25(method="lucene", k1=K1, b=B)
        self._bm25.index(
            [
                document_words(Document(each.document_id, each.title, each.text))
                for each in documents
            ],
            show_progress=False,
        )

    def observe(self, query: str, results: int = RESULTS) -> str:
        """The observation for `query`: the best documents that share a word with it."""
        vocabulary = self._bm25.vocab_dict
        known = [vocabulary[word] for word in words(query) if word in vocabulary]
        if not known:
            return NO_RESULTS
        scores = self._bm25.get_scores_from_ids(known)
        best = np.argsort(-scores, kind="stable")[:results]
        return "\n".join(self._lines[row] for row in best if scores[row] > 0)
