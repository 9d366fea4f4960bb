"""Which questions a training step uses: a pure function of the questions, a seed and the step.

Each source's questions are put in an order of their own for every epoch, by a hash of seed,
epoch and question id; a step reads one stretch of that order. So a resumed run needs the step's
number and nothing else, and the order of the rows in the data never matters. What always holds:

- no question twice in a batch, and none twice in an epoch of its source;
- what does not fill a whole stretch at the end of an epoch is left out of that epoch;
- with weights, each batch holds a source's share rounded up or down, and over many batches the
  shares are exact.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from searchr1.errors import SettingsError
from searchr1.trajectory import Question

_GOLDEN = 0x9E3779B97F4A7C15
"""The golden ratio's fraction in 64 bits: its multiples spread evenly over the unit interval."""


class Cursor(NamedTuple):
    """Where a step stands in the questions, for a run's record."""

    step: int
    epochs: dict[str, int]
    """Epoch (0-based) by source; without weights there is one entry, "all"."""
    question_ids: tuple[str, ...]


class _Pool:
    """Questions that are drawn together; `stretch` of them are set aside for each step."""

    def __init__(self, questions: Sequence[Question], stretch: int, seed: int) -> None:
        self.questions = questions
        self.stretch = stretch
        self.seed = seed
        self._order: tuple[int, list[Question]] = (-1, [])

    def epoch(self, step: int) -> int:
        return self._place(step)[0]

    def draw(self, step: int, count: int) -> list[Question]:
        """The first `count` questions of `step`'s stretch; `count` is at most `stretch`."""
        epoch, index = self._place(step)
        if self._order[0] != epoch:
            self._order = epoch, sorted(self.questions, key=lambda q: self._rank(epoch, q))
        start = index * self.stretch
        return self._order[1][start : start + count]

    def _place(self, step: int) -> tuple[int, int]:
        return divmod(step - 1, len(self.questions) // self.stretch)

    def _rank(self, epoch: int, question: Question) -> bytes:
        text = f"{self.seed}\n{epoch}\n{question.question_id}"
        return hashlib.blake2b(text.encode(), digest_size=16).digest()


class BatchSchedule:
    """The batches of a training run.

    `weights` maps a source to its share of every batch (any positive scale); sources that are not
    named are not drawn. Without weights every question is drawn equally often.

    Raises SettingsError when the questions do not fill a batch, or a weight names no source.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        seed: int,
        questions_per_batch: int,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        pools = _by_source(questions, weights) if weights else {"all": list(questions)}
        # Fractions of the numbers as written, so that no rounding moves a question.
        exact = {name: Fraction(str((weights or {}).get(name, 1))) for name in pools}
        total = sum(exact.values())
        shares = [share / total * questions_per_batch for share in exact.values()]
        self._bounds = [Fraction(0), *accumulate(shares)]
        self._pools = {
            name: _Pool(pool, math.ceil(share), seed)
            for (name, pool), share in zip(pools.items(), shares, strict=True)
        }
        for name, pool in self._pools.items():
            if len(pool.questions) < pool.stretch:
                raise SettingsError(
                    f"A batch takes {pool.stretch} training questions (source: {name}) but there "
                    f"are only {len(pool.questions)}. Lower --questions-per-batch, or prepare "
                    "more questions."
                )

    def batch(self, step: int) -> list[Question]:
        """The questions of `step` (1, 2, …), `questions_per_batch` of them, all different."""
        drawn = [
            pool.draw(step, count)
            for pool, count in zip(self._pools.values(), self._counts(step), strict=True)
        ]
        return [question for part in drawn for question in part]

    def cursor(self, step: int) -> Cursor:
        """Where `step` stands."""
        epochs = {name: pool.epoch(step) for name, pool in self._pools.items()}
        return Cursor(step, epochs, tuple(q.question_id for q in self.batch(step)))

    def _counts(self, step: int) -> list[int]:
        """How many questions each pool gives: systematic sampling of the shares, with an offset
        that runs evenly through [0, 1) over the steps."""
        offset = Fraction(step * _GOLDEN % 2**64, 2**64)
        return [
            math.floor(high + offset) - math.floor(low + offset)
            for low, high in pairwise(self._bounds)
        ]


def _by_source(
    questions: Sequence[Question], weights: Mapping[str, float]
) -> dict[str, list[Question]]:
    pools: dict[str, list[Question]] = {name: [] for name in sorted(weights)}
    for question in questions:
        if question.source in pools:
            pools[question.source].append(question)
    for name, pool in pools.items():
        if not pool:
            there = ", ".join(sorted({question.source for question in questions}))
            raise SettingsError(
                f"--source-weights names {name!r}, which has no training questions. "
                f"There are: {there}."
            )
    return pools
