"""Search over a world's documents, as the policy meets it in reinforcement learning.

Ranking and rendering are those of the `local` back end, so that what supervised training shows is
what the rollouts show: BM25 with the title counted three times, two results, one line each.
"""

import re

import bm25s
import numpy as np

from searchr1.data.world import World

RESULTS = 2


class WorldIndex:
    """A BM25 index over the documents of one world."""

    def __init__(self, world: World) -> None:
        self._texts = [document.text for document in world.documents]
        self._index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
        self._index.index(
            [
                _words(f"{3 * (document.title + ' ')}{document.text}")
                for document in world.documents
            ],
            show_progress=False,
        )

    def observe(self, query: str, results: int = RESULTS) -> str:
        """The observation for `query`: the best documents that share a word with it."""
        scores = self._index.get_scores(_words(query))
        best = np.argsort(-scores, kind="stable")[:results]
        lines = [f"- {self._texts[place]}" for place in best if scores[place] > 0]
        return "\n".join(lines) or "- no results"


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
