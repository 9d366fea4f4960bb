"""A checkpoint against the base on the same questions, in the same environment.

Both answered the same questions, so the comparison is paired: what counts is how each question
changed. A question enters only where both sides have a valid sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from searchr1.config import digest
from searchr1.errors import FatalError
from searchr1.evaluation.intervals import (
    UNKNOWN,
    Estimate,
    grouped,
    percentile_interval,
    resampled_means,
    wilson,
)
from searchr1.evaluation.items import COLUMNS, Item, Metric, by_question, question_means, sources_of


class DifferentQuestions(FatalError):
    """Two evaluations were not made on the same questions with as many samples."""


class EnvironmentsDiffer(FatalError):
    """Two evaluations were made in different search environments."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Checkpoint minus base."""

    questions: int
    """Questions compared: valid on both sides."""
    left_out: int
    """Questions without a valid sample on one side or both."""
    differences: dict[Metric, Estimate]
    """Macro difference of each metric, paired, with its bootstrap interval."""
    em_by_source: dict[str, Estimate]
    gained: tuple[str, ...]
    """Ids of questions whose EM rose, sorted."""
    lost: tuple[str, ...]
    """Ids of questions whose EM fell, sorted."""
    p_value: float
    """Exact two-sided McNemar test of EM (a sign test over changed questions when a question
    has several samples); 1.0 when no question changed."""

    @property
    def em(self) -> Estimate:
        """Macro EM of the checkpoint minus that of the base."""
        return self.differences[Metric.EM]


def _require_same_questions(base: Sequence[Item], checkpoint: Sequence[Item]) -> None:
    ours, theirs = by_question(base), by_question(checkpoint)
    if ours.keys() != theirs.keys():
        only_base, only_checkpoint = sorted(ours.keys() - theirs), sorted(theirs.keys() - ours)
        example = (only_base or only_checkpoint)[0]
        raise DifferentQuestions(
            f"the base was evaluated on {len(ours)} questions and the checkpoint on {len(theirs)}; "
            f"{len(only_base)} are only in the base's and {len(only_checkpoint)} only in the "
            f"checkpoint's (for example {example}). A paired comparison needs the same questions: "
            "evaluate both on the same set, with the same --limit"
        )
    uneven = [key for key in ours if len(ours[key]) != len(theirs[key])]
    if uneven:
        raise DifferentQuestions(
            f"question {uneven[0]} has {len(ours[uneven[0]])} samples in the base's evaluation and "
            f"{len(theirs[uneven[0]])} in the checkpoint's; use the same --samples for both"
        )


def compare(base: Sequence[Item], checkpoint: Sequence[Item], seed: int = 0) -> Comparison:
    """Compare two evaluations question by question. Raises DifferentQuestions when they do not
    hold the same questions with equally many samples; `seed` fixes the bootstrap."""
    _require_same_questions(base, checkpoint)
    sources = sources_of(base)
    before, after = question_means(base), question_means(checkpoint)
    change = {key: after[key] - before[key] for key in before if key in after}
    em = COLUMNS.index(Metric.EM)
    gained = tuple(sorted(key for key, value in change.items() if value[em] > 0))
    lost = tuple(sorted(key for key, value in change.items() if value[em] < 0))
    changed = len(gained) + len(lost)
    differences = dict.fromkeys(COLUMNS, UNKNOWN)
    em_by_source: dict[str, Estimate] = {}
    strata = grouped(change, sources)
    if strata:
        draws = resampled_means(list(strata.values()), seed)
        means = np.stack([values.mean(axis=1) for values in strata.values()])
        for column, metric in enumerate(COLUMNS):
            differences[metric] = percentile_interval(
                means[:, column].mean(), draws[:, column].mean(axis=0)
            )
        for row, source in enumerate(strata):
            em_by_source[source] = percentile_interval(means[row, em], draws[row, em])
        if not changed:
            # No change among n questions does not mean that none can change: up to what Wilson's
            # bound for 0 of n leaves open, either way.
            unseen = wilson(0, len(change)).high
            differences[Metric.EM] = Estimate(0.0, -unseen, unseen)
    return Comparison(
        questions=len(change),
        left_out=len(sources) - len(change),
        differences=differences,
        em_by_source=em_by_source,
        gained=gained,
        lost=lost,
        p_value=float(stats.binomtest(len(gained), changed).pvalue) if changed else 1.0,
    )


def verdict(comparison: Comparison) -> str:
    """What the comparison says about EM, in one plain sentence."""
    if not comparison.questions:
        return "No question has a valid answer on both sides, so nothing can be compared."
    value, low, high = (100 * bound for bound in comparison.em)
    equals = "" if comparison.p_value < 0.001 else "= "
    numbers = (
        f"{value:+.1f} points (95% interval {low:+.1f} to {high:+.1f}; "
        f"{len(comparison.gained)} questions gained, {len(comparison.lost)} lost of "
        f"{comparison.questions}; exact McNemar p {equals}{format_p(comparison.p_value)})"
    )
    if comparison.p_value < 0.05 and (low > 0 or high < 0):
        direction = "higher" if value > 0 else "lower"
        return f"EM is {direction} than the base's by more than chance explains: {numbers}."
    return f"The change in EM is within what chance alone would give: {numbers}."


def format_p(p_value: float) -> str:
    """A p-value as a person reads it."""
    return f"{p_value:.3f}" if p_value >= 0.001 else "<0.001"


def comparable(first: Mapping[str, object], second: Mapping[str, object]) -> bool:
    """Whether two environments are one and the same, by fingerprint."""
    return digest(first) == digest(second)


def require_comparable(first: Mapping[str, object], second: Mapping[str, object]) -> None:
    """Raise EnvironmentsDiffer, naming every setting that differs, unless `comparable`."""
    if comparable(first, second):
        return
    names = sorted(first.keys() | second.keys())
    absent = "absent"
    different = [
        f"{name}: {first.get(name, absent)} against {second.get(name, absent)}"
        for name in names
        if first.get(name, absent) != second.get(name, absent)
    ]
    raise EnvironmentsDiffer(
        "these evaluations met different search environments, so a difference between them is not "
        f"the policy's alone ({'; '.join(different)}). Evaluate both in the same environment, or "
        "pass --force-mixed to compare them all the same, labelled as mixed"
    )
