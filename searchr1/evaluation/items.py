"""The outcome of one evaluated trajectory, and the metrics that are read from it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from searchr1.trajectory import StopReason, Trajectory


class Metric(StrEnum):
    """What is measured on an item."""

    EM = "em"
    """Exact match by the project's normaliser; with K samples a question, avg@K."""
    EM_SQUAD = "em_squad"
    """Exact match by the published SQuAD / Search-R1 normaliser."""
    F1 = "f1"
    """Word overlap with the best accepted answer."""
    COVER_EM = "cover_em"
    """An accepted answer is contained in the given one."""
    VALID_FORMAT = "valid_format"
    """Exactly one well-formed answer line."""
    REWARD = "reward"
    """What training would have paid."""
    SEARCHES = "searches"
    """Searches a trajectory."""
    TURNS = "turns"
    """Assistant turns a trajectory."""
    TOKENS = "tokens"
    """Tokens a trajectory, prompt and observations included."""
    NO_SEARCH = "no_search"
    """Share of trajectories without a search."""
    SEARCH_SUCCESS = "search_success"
    """Successful searches over all searches; of every item, valid or not."""


RATES = frozenset(
    {Metric.EM, Metric.EM_SQUAD, Metric.COVER_EM, Metric.VALID_FORMAT, Metric.NO_SEARCH}
)
"""Metrics that are yes or no on an item, so that a count of them is binomial."""

SHARES = RATES | {Metric.F1}
"""Metrics between 0 and 1."""

COLUMNS = tuple(metric for metric in Metric if metric is not Metric.SEARCH_SUCCESS)
"""Metrics that are a plain mean over items; search success is a ratio of two sums."""


@dataclass(frozen=True, slots=True)
class Item:
    """One (question, sample) of an evaluation."""

    question_id: str
    source: str
    sample: int
    """0-based index among the samples of the question."""
    em: bool
    em_squad: bool
    f1: float
    cover_em: bool
    valid_format: bool
    reward: float
    searches: int
    turns: int
    tokens: int
    stop_reason: StopReason
    search_ok: int
    search_failed: int

    @property
    def no_search(self) -> bool:
        """Whether the trajectory ended without any search."""
        return self.searches == 0

    @property
    def valid(self) -> bool:
        """Whether the item says something about the policy."""
        return self.stop_reason.valid


def items_from(trajectories: Iterable[Trajectory]) -> list[Item]:
    """The items of evaluated trajectories, in their order."""
    return [
        Item(
            question_id=t.question.question_id,
            source=t.question.source,
            sample=t.index,
            em=t.em,
            em_squad=t.em_squad,
            f1=t.f1,
            cover_em=t.cover_em,
            valid_format=t.valid_format,
            reward=t.reward,
            searches=len(t.searches),
            turns=len(t.turns),
            tokens=len(t.tokens),
            stop_reason=t.stop_reason,
            search_ok=sum(search.ok for search in t.searches),
            search_failed=sum(not search.ok for search in t.searches),
        )
        for t in trajectories
    ]


def by_question(items: Iterable[Item]) -> dict[str, list[Item]]:
    """Items by question id, in order of first appearance."""
    questions: dict[str, list[Item]] = {}
    for item in items:
        questions.setdefault(item.question_id, []).append(item)
    return questions


def question_means(items: Iterable[Item]) -> dict[str, np.ndarray]:
    """For each question with a valid item, the means of `COLUMNS` [C] over its valid items."""
    valid = by_question(item for item in items if item.valid)
    return {
        question_id: np.array(
            [[float(getattr(item, column)) for column in COLUMNS] for item in samples]
        ).mean(axis=0)
        for question_id, samples in valid.items()
    }


def sources_of(items: Iterable[Item]) -> dict[str, str]:
    """The source of each question id."""
    return {item.question_id: item.source for item in items}
