"""One evaluation in numbers: per source, macro (mean over sources) and overall (over questions).

Interval by kind: a rate over one sample a question has Wilson's; every other value has the
stratified bootstrap of `searchr1.evaluation.intervals`. A bootstrap cannot see what never
happened, so a share that is 0 or 1 in every question gets Wilson's interval even as a macro.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from searchr1.evaluation.intervals import (
    UNKNOWN,
    Estimate,
    grouped,
    percentile_interval,
    resampled_means,
    wilson,
)
from searchr1.evaluation.items import (
    COLUMNS,
    RATES,
    SHARES,
    Item,
    Metric,
    by_question,
    question_means,
    sources_of,
)


@dataclass(frozen=True, slots=True)
class Summary:
    """What one evaluation says."""

    questions: int
    """Questions with at least one valid sample: what all rates and means are over."""
    missing: int
    """Questions without a valid sample, left out."""
    items: int
    invalid: int
    """Items that ended by an environment or sampling error."""
    samples: int
    """Most samples of a question."""
    sizes: dict[str, int]
    """Questions counted, by source."""
    macro: dict[Metric, Estimate]
    """Mean over the sources' values."""
    overall: dict[Metric, Estimate]
    """Over all questions alike."""
    by_source: dict[str, dict[Metric, Estimate]]
    pass_at: dict[int, Estimate]
    """Macro pass@k for k = 1, 2, 4, … up to `samples`; empty for one sample a question."""
    stop_reasons: dict[str, int]
    """Items by stop reason, invalid ones included."""
    stop_reasons_by_source: dict[str, dict[str, int]]
    warnings: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What a set of this size can and cannot show."""
        return resolution(self.questions)


def resolution(questions: int) -> str:
    """In plain words, how much `questions` questions can tell, for EM near one half."""
    if questions == 0:
        return "No question was counted, so nothing can be said."
    half_width = 100 * 1.96 * math.sqrt(0.25 / questions)
    # The fewest one-sided changes with an exact two-sided McNemar p below .05 are six: 2 / 2^6.
    fewest = math.ceil(600 / questions)
    finest = math.ceil(0.25 * (1.96 / 0.025) ** 2 / 100) * 100
    text = (
        f"{questions:,} questions: an EM near 50% is known to about "
        f"±{half_width:.{0 if half_width >= 2 else 1}f} points (95% interval)"
    )
    if questions <= 6:
        return f"{text}; so few questions show that the program runs, and nothing about the policy."
    text += (
        f". Even if no question were lost, fewer than 6 gained ({fewest} points) would be "
        "within chance."
        if fewest >= 2
        else "."
    )
    if half_width > 3:
        text += (
            " That shows behaviour and large effects; it cannot rank checkpoints a few points "
            f"apart, for which about {finest:,} questions (±2.5 points) and several seeds are "
            "needed."
        )
    else:
        text += " Effects of training seeds are not in the interval; several runs show those."
    return text


def pass_at_k(right: int, samples: int, k: int) -> float:
    """Unbiased estimate of the chance that one of k samples is right, given `right` right ones
    among `samples` (Chen et al. 2021, arXiv 2107.03374)."""
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)


class _Estimates(NamedTuple):
    """Estimates of several metrics, each list aligned with them."""

    macro: list[Estimate]
    overall: list[Estimate]
    by_source: dict[str, list[Estimate]]


def _estimate(
    metric: Metric, values: np.ndarray, value: float, draws: np.ndarray, *, counts: bool
) -> Estimate:
    """`value`, made from question values [Q], with its interval: Wilson's where `values` are
    counts of a yes-or-no metric or a share never varies, else from bootstrap `draws` [B]."""
    constant = bool(values.min() == values.max() and values[0] in (0.0, 1.0))
    if (counts and metric in RATES) or (constant and metric in SHARES):
        return wilson(round(float(values.sum())), len(values))
    estimate = percentile_interval(value, draws)
    if metric in SHARES:
        return Estimate(value, max(estimate.low, 0.0), min(estimate.high, 1.0))
    return estimate


def _estimates(
    strata: dict[str, np.ndarray], metrics: Sequence[Metric], *, counts: bool, seed: int
) -> _Estimates:
    """Estimates from question values, by source arrays [C, Q] whose rows are `metrics`. `counts`
    says that a question has one sample, so that yes-or-no metrics are counts of questions."""
    sizes = np.array([values.shape[1] for values in strata.values()])
    means = np.stack([values.mean(axis=1) for values in strata.values()])
    resampled = resampled_means(list(strata.values()), seed)
    pooled = np.concatenate(list(strata.values()), axis=1)
    found = _Estimates([], [], {source: [] for source in strata})
    for column, metric in enumerate(metrics):
        values, draws = pooled[column], resampled[:, column]
        value = float(means[:, column].mean())
        found.macro.append(_estimate(metric, values, value, draws.mean(axis=0), counts=False))
        value, weighted = float(values.mean()), sizes @ draws / sizes.sum()
        found.overall.append(_estimate(metric, values, value, weighted, counts=counts))
        for row, (source, its) in enumerate(strata.items()):
            value = float(means[row, column])
            found.by_source[source].append(
                _estimate(metric, its[column], value, draws[row], counts=counts)
            )
    return found


def _search_success(items: Sequence[Item], seed: int) -> tuple[Estimate, dict[str, Estimate]]:
    """Successful over all searches, overall and by source, questions resampled as a whole. There
    is no macro of it: sources that search more weigh more, as they do on the service."""
    counts = {
        question_id: np.array(
            [
                sum(item.search_ok for item in samples),
                sum(item.search_ok + item.search_failed for item in samples),
            ],
            dtype=float,
        )
        for question_id, samples in by_question(items).items()
    }
    strata = grouped(counts, sources_of(items))
    draws = resampled_means(list(strata.values()), seed)
    sizes = np.array([values.shape[1] for values in strata.values()])

    def ratio(totals: np.ndarray, means: np.ndarray) -> Estimate:
        done, all_ = totals
        if all_ == 0:
            return UNKNOWN
        if done in (0, all_):
            return wilson(int(done), int(all_))
        value, low, high = percentile_interval(
            done / all_, means[0] / np.maximum(means[1], np.finfo(float).tiny)
        )
        return Estimate(value, max(low, 0.0), min(high, 1.0))

    overall = ratio(
        np.sum([values.sum(axis=1) for values in strata.values()], axis=0),
        np.tensordot(sizes, draws, axes=1),
    )
    by_source = {
        source: ratio(values.sum(axis=1), draws[row])
        for row, (source, values) in enumerate(strata.items())
    }
    return overall, by_source


def _pass_at(items: Sequence[Item], samples: int, seed: int) -> dict[int, Estimate]:
    if samples < 2:
        return {}
    sources = sources_of(items)
    found = {}
    ks = [2**power for power in range(samples.bit_length()) if 2**power < samples] + [samples]
    valid = by_question(item for item in items if item.valid)
    for k in ks:
        values = {
            question_id: np.array([pass_at_k(sum(i.em for i in group), len(group), k)])
            for question_id, group in valid.items()
            if len(group) >= k
        }
        if values:
            strata = grouped(values, sources)
            found[k] = _estimates(strata, [Metric.EM], counts=False, seed=seed).macro[0]
    return found


def _warnings(items: Sequence[Item], missing: int) -> tuple[str, ...]:
    invalid = [item for item in items if not item.valid]
    if not invalid:
        return ()
    share = 100 * len(invalid) / len(items)
    kinds = ", ".join(
        f"{n} {reason}" for reason, n in Counter(i.stop_reason for i in invalid).items()
    )
    return (
        f"{len(invalid)} of {len(items)} trajectories ({share:.1f}%) ended by an error outside of "
        f"the policy ({kinds}). They are missing answers, not wrong ones: all rates leave them out"
        + (f", and {missing} questions with them" if missing else "")
        + ". Trajectories that search more are more often hit, so repair the environment and run "
        "the evaluation again before trusting small differences.",
    )


def summarise(items: Sequence[Item], seed: int = 0) -> Summary:
    """All statistics of one evaluation. `seed` fixes the bootstrap. Values that cannot be
    estimated, as when no item is valid, are NaN."""
    sources = sources_of(items)
    means = question_means(items)
    samples = max((len(group) for group in by_question(items).values()), default=0)
    missing = len(sources) - len(means)
    stop_reasons: dict[str, Counter[str]] = {}
    for item in items:
        stop_reasons.setdefault(item.source, Counter())[item.stop_reason.value] += 1

    macro = dict.fromkeys(Metric, UNKNOWN)
    overall = dict.fromkeys(Metric, UNKNOWN)
    by_source = {source: dict.fromkeys(Metric, UNKNOWN) for source in sorted(stop_reasons)}
    strata = grouped(means, sources)
    if strata:
        found = _estimates(strata, COLUMNS, counts=samples == 1, seed=seed)
        macro.update(zip(COLUMNS, found.macro, strict=True))
        overall.update(zip(COLUMNS, found.overall, strict=True))
        for source, estimates in found.by_source.items():
            by_source[source].update(zip(COLUMNS, estimates, strict=True))
    if items:
        success, success_by_source = _search_success(items, seed)
        macro[Metric.SEARCH_SUCCESS] = overall[Metric.SEARCH_SUCCESS] = success
        for source, estimate in success_by_source.items():
            by_source[source][Metric.SEARCH_SUCCESS] = estimate

    return Summary(
        questions=len(means),
        missing=missing,
        items=len(items),
        invalid=sum(not item.valid for item in items),
        samples=samples,
        sizes={source: values.shape[1] for source, values in strata.items()},
        macro=macro,
        overall=overall,
        by_source=by_source,
        pass_at=_pass_at(items, samples, seed),
        stop_reasons=dict(sum(stop_reasons.values(), Counter()).most_common()),
        stop_reasons_by_source={s: dict(c.most_common()) for s, c in sorted(stop_reasons.items())},
        warnings=_warnings(items, missing),
    )
