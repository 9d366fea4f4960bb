"""Early warning of collapse, from the metrics that every step records.

A pure function of the history: the same ledger gives the same warnings in every process, so a run
that was interrupted is judged as if it had not been. Every rule speaks of the last step. It looks
at several steps, and at the run's own past where a value has no natural scale, so that one unlucky
batch of eight questions is no warning; only values that are not finite are one at once.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median
from typing import NamedTuple

History = Mapping[int, Mapping[str, float]]
"""Metrics by step. Steps without a metric, such as step 0, do not count for it."""

PREFIX = "watchdog/"
"""Metrics `watchdog/<kind>` are 1.0 in the record of a step that was warned of."""


class WarningKind(StrEnum):
    """What looks wrong."""

    NON_FINITE = "non_finite"
    """A metric is infinite or not a number."""
    REWARD_COLLAPSE = "reward_collapse"
    """Far fewer answers are right than in the run's best steps."""
    FORMAT_COLLAPSE = "format_collapse"
    """Far fewer answers are well-formed than in the run's best steps."""
    ENTROPY_EXPLOSION = "entropy_explosion"
    """Turns have become much more random than they were."""
    ENTROPY_COLLAPSE = "entropy_collapse"
    """Turns have become nearly certain while many answers are still wrong."""
    RIGHT_LIKELIHOOD = "right_likelihood"
    """The tokens of right answers have become much less likely."""
    GRADIENT_NORM = "gradient_norm"
    """The gradient is much larger than it was."""
    LOGPROB_DRIFT = "logprob_drift"
    """Trainer and sampler disagree about the same tokens."""
    ALL_WRONG_GROUPS = "all_wrong_groups"
    """Most questions have no right trajectory at all."""
    DEGENERATE_GROUPS = "degenerate_groups"
    """Nearly all groups have equal rewards, so that next to nothing is trained on."""
    SEARCH_LIMIT = "search_limit"
    """Many trajectories end because they would go on searching."""
    NO_SEARCH = "no_search"
    """A policy that used to search no longer does."""

    @property
    def stops(self) -> bool:
        """Whether going on does harm or is in vain: what `--on-collapse stop` stops for."""
        return self in _STOPS

    @property
    def metric(self) -> str:
        """Name of the metric that marks a step with this warning."""
        return PREFIX + self.value


_STOPS = frozenset(
    {
        WarningKind.NON_FINITE,
        WarningKind.REWARD_COLLAPSE,
        WarningKind.FORMAT_COLLAPSE,
        WarningKind.ENTROPY_EXPLOSION,
    }
)


class CollapseWarning(NamedTuple):
    """One warning at one step."""

    kind: WarningKind
    step: int
    metric: str
    value: float
    """As judged: a median or mean over the last steps, or the step's own value."""
    threshold: float
    """What `value` has passed."""
    message: str
    """For a person: what happened, what it means, what to look at."""


@dataclass(frozen=True)
class Thresholds:
    """When to warn. Figures for noise are of a step of 8 questions x 8 trajectories, whose share
    of right answers has a standard deviation of about 0.15 between batches of one and the same
    policy; a mean over 5 such steps has 0.07."""

    recent: int = 3
    """Steps whose median stands for the present: one odd step never warns."""
    long: int = 5
    """Steps of a mean of noisy rates, and of a reference from the past."""
    reward_share: float = 1 / 3
    """Of the best mean of right answers. From the luckiest window of a steady policy down to this
    share are more than 3 standard deviations of 5 steps, so it hardly ever happens by chance."""
    reward_drop: float = 0.25
    """Right answers must have fallen by at least this share of all: where few are right, luck
    alone moves them by a large part of themselves."""
    format_drop: float = 0.3
    """Well-formed answers lost, as a share of all. The format is learned first and varies little
    with the questions (standard deviation below 0.06), so this is no accident."""
    explosion_factor: float = 3.0
    """Entropy against the run's median. Where training is healthy it falls or stays (Cui et al.,
    arXiv 2505.22617)."""
    explosion_margin: float = 0.2
    """Nats a token that it must have risen at least: three times next to nothing is nothing."""
    exhaustion_share: float = 0.05
    """Of the starting entropy. Reward is bought with entropy, and with 94% of it spent over 93% of
    the gain was made (Cui et al., arXiv 2505.22617): below this there is little left to learn."""
    mastered: float = 0.9
    """Share of right answers from which certainty is no fault."""
    likelihood_factor: float = 2.0
    """Surprise (minus mean logprob) of right answers against the run's best: stagnation, then
    decay of their likelihood precedes the collapse of Search-R1 under group-relative advantages
    by many steps (Deng et al., arXiv 2512.04220)."""
    likelihood_margin: float = 0.05
    """Nats a token that the surprise must have risen at least."""
    gradient_spike: float = 10.0
    """One gradient against the run's median norm. Adam bounds its step, but its moments remember
    it for many steps."""
    gradient_growth: float = 4.0
    """Several gradients against the run's median norm: inflating gradients are the second half of
    the spiral (Deng et al., arXiv 2512.04220)."""
    drift: float = 0.1
    """Mean difference, nats a token. One policy at one state should give about 0; different
    kernels and half precision give a few hundredths; more makes the importance weights wrong and
    has brought down training by itself (Liu and Li et al. 2025, "When Speed Kills Stability")."""
    all_wrong: float = 0.75
    """Share of groups. Hard questions alone keep it near a half."""
    degenerate: float = 0.9
    """Share of groups; fewer than one of eight questions then trains."""
    search_limit: float = 0.3
    """Share of trajectories that end at the search or turn limit."""
    no_search: float = 0.9
    """Share of trajectories without a search, where at first most searched."""


DEFAULT = Thresholds()


class _Finding(NamedTuple):
    """A rule's outcome, before it is put into words."""

    metric: str
    value: float
    threshold: float
    what: str


def warnings(history: History, thresholds: Thresholds = DEFAULT) -> list[CollapseWarning]:
    """The warnings at the last step of `history`, the gravest first. Where a cause persists, every
    step is warned of."""
    if not history:
        return []
    step, past = max(history), _Past(history)
    return [
        CollapseWarning(
            kind, step, found.metric, found.value, found.threshold, f"{found.what} {_ADVICE[kind]}"
        )
        for kind, rule in _RULES.items()
        if (found := rule(past, thresholds))
    ]


def collapse(history: History, thresholds: Thresholds = DEFAULT) -> CollapseWarning | None:
    """The gravest warning at the last step that should stop a run under `--on-collapse stop`."""
    return next((w for w in warnings(history, thresholds) if w.kind.stops), None)


def all_warnings(history: History) -> Iterator[CollapseWarning]:
    """The warnings at every step, as each was judged at its time."""
    steps = sorted(history)
    for count in range(1, len(steps) + 1):
        yield from warnings({step: history[step] for step in steps[:count]})


def watchdog_metrics(found: Sequence[CollapseWarning]) -> dict[str, float]:
    """The mark of each warning, for the step's record."""
    return {warning.kind.metric: 1.0 for warning in found}


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that a record can hold."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


class _Past:
    """The history as the rules read it."""

    def __init__(self, history: History) -> None:
        self.steps = [history[step] for step in sorted(history)]

    @property
    def last(self) -> Mapping[str, float]:
        return self.steps[-1]

    def values(self, metric: str, least: int) -> list[float]:
        """Finite values in step order; none unless the last step has one and there are at least
        `least`, so that no rule warns of old news or of too little."""
        if metric not in self.last:
            return []
        found = [step[metric] for step in self.steps if metric in step]
        found = [value for value in found if math.isfinite(value)]
        return found if len(found) >= least else []


def _windows(values: Sequence[float], length: int) -> Iterator[Sequence[float]]:
    return (values[end - length : end] for end in range(length, len(values) + 1))


def _non_finite(past: _Past, _limits: Thresholds) -> _Finding | None:
    """A record keeps no such value, but it keeps the mark."""
    bad = sorted(name for name, value in past.last.items() if not math.isfinite(value))
    mark = WarningKind.NON_FINITE.metric
    if not bad and not past.last.get(mark):
        return None
    names = ", ".join(bad) or "a metric"
    return _Finding(bad[0] if bad else mark, 1.0, 0.0, f"{names} is not a finite number.")


def _reward(past: _Past, limits: Thresholds) -> _Finding | None:
    metric = "reward/correct"
    values = past.values(metric, 2 * limits.long)
    if not values:
        return None
    now = fmean(values[-limits.long :])
    best = max(fmean(window) for window in _windows(values[: -limits.long], limits.long))
    threshold = min(limits.reward_share * best, best - limits.reward_drop)
    if now >= threshold:
        return None
    what = f"Right answers fell from {best:.0%} at best to {now:.0%} over the last {limits.long} steps."
    if max(past.last.get(f"search/{name}_rate", 0.0) for name in ("error", "empty")) > 0.2:
        what += " Many searches of this step failed or found nothing: suspect the environment."
    return _Finding(metric, now, threshold, what)


def _format(past: _Past, limits: Thresholds) -> _Finding | None:
    metric = "reward/format"
    values = past.values(metric, 2 * limits.recent)
    if not values:
        return None
    now = median(values[-limits.recent :])
    best = max(median(window) for window in _windows(values[: -limits.recent], limits.recent))
    threshold = best - limits.format_drop
    if now >= threshold:
        return None
    what = (
        f"Well-formed answers fell from {best:.0%} at best to {now:.0%} over the last "
        f"{limits.recent} steps."
    )
    return _Finding(metric, now, threshold, what)


def _entropy_explosion(past: _Past, limits: Thresholds) -> _Finding | None:
    metric = "rollout/mean_logprob"
    values = [-value for value in past.values(metric, limits.recent + limits.long)]
    if not values:
        return None
    now, before = median(values[-limits.recent :]), median(values[: -limits.recent])
    threshold = max(limits.explosion_factor * before, before + limits.explosion_margin)
    if now <= threshold:
        return None
    what = f"The policy's entropy rose from {before:.3g} to {now:.3g} nats a token."
    return _Finding(metric, -now, -threshold, what)


def _entropy_collapse(past: _Past, limits: Thresholds) -> _Finding | None:
    metric = "rollout/mean_logprob"
    values = [-value for value in past.values(metric, limits.recent + limits.long)]
    right = past.values("reward/correct", limits.recent)
    if not values or not right:
        return None
    now, start = median(values[-limits.recent :]), median(values[: limits.long])
    threshold = limits.exhaustion_share * start
    if now >= threshold or median(right[-limits.recent :]) >= limits.mastered:
        return None
    what = f"The policy's entropy fell from {start:.3g} to {now:.3g} nats a token."
    return _Finding(metric, -now, -threshold, what)


def _right_likelihood(past: _Past, limits: Thresholds) -> _Finding | None:
    metric = "rollout/mean_logprob_right"
    values = past.values(metric, limits.recent + limits.long)
    if not values:
        return None
    now = median(values[-limits.recent :])
    best = max(median(window) for window in _windows(values[: -limits.recent], limits.long))
    threshold = min(limits.likelihood_factor * best, best - limits.likelihood_margin)
    if now >= threshold:
        return None
    what = f"The mean logprob of right answers' tokens fell from {best:.3g} at best to {now:.3g}."
    return _Finding(metric, now, threshold, what)


def _gradient(past: _Past, limits: Thresholds) -> _Finding | None:
    metric = "trainer/grad_norm"
    values = past.values(metric, limits.long + 1)
    before = median(values[:-1]) if values else 0.0
    if before and values[-1] > (threshold := limits.gradient_spike * before):
        what = f"The gradient norm is {values[-1]:.3g}, the run's median {before:.3g}."
        return _Finding(metric, values[-1], threshold, what)
    if len(values) < limits.recent + limits.long:
        return None
    now, before = median(values[-limits.recent :]), median(values[: -limits.recent])
    threshold = limits.gradient_growth * before
    if not before or now <= threshold:
        return None
    what = (
        f"The gradient norm is {now:.3g} over the last {limits.recent} steps, before it was "
        f"{before:.3g}."
    )
    return _Finding(metric, now, threshold, what)


def _drift(past: _Past, limits: Thresholds) -> _Finding | None:
    metric = "trainer/logprob_drift"
    values = past.values(metric, limits.recent)
    now = median(values[-limits.recent :]) if values else 0.0
    if now <= limits.drift:
        return None
    what = f"Trainer and sampler differ by {now:.3g} nats a token on the tokens trained on."
    return _Finding(metric, now, limits.drift, what)


def _all_wrong(past: _Past, limits: Thresholds) -> _Finding | None:
    what = "In {now:.0%} of the groups of the last {steps} steps no answer was right."
    return _high_rate(past, "rollout/all_wrong_group_rate", limits.all_wrong, limits.long, what)


def _degenerate(past: _Past, limits: Thresholds) -> _Finding | None:
    what = "In {now:.0%} of the groups of the last {steps} steps all rewards were equal."
    return _high_rate(past, "rollout/degenerate_group_rate", limits.degenerate, limits.long, what)


def _search_limit(past: _Past, limits: Thresholds) -> _Finding | None:
    metric, turns = "rollout/search_limit_rate", "rollout/turn_limit_rate"
    searching, turning = past.values(metric, limits.recent), past.values(turns, limits.recent)
    if not searching or not turning:
        return None
    now = fmean(searching[-limits.recent :]) + fmean(turning[-limits.recent :])
    if now < limits.search_limit:
        return None
    what = (
        f"{now:.0%} of the trajectories of the last {limits.recent} steps ended at the limit of "
        "searches or turns."
    )
    return _Finding(metric, now, limits.search_limit, what)


def _no_search(past: _Past, limits: Thresholds) -> _Finding | None:
    metric = "rollout/no_search_rate"
    values = past.values(metric, 2 * limits.long)
    if not values or fmean(values[: limits.long]) > 0.5:
        return None
    what = "{now:.0%} of the trajectories of the last {steps} steps made no search."
    return _high_rate(past, metric, limits.no_search, limits.long, what)


def _high_rate(
    past: _Past, metric: str, threshold: float, steps: int, what: str
) -> _Finding | None:
    """A mean over the last `steps` that has reached `threshold`."""
    values = past.values(metric, steps)
    now = fmean(values[-steps:]) if values else 0.0
    if now < threshold:
        return None
    return _Finding(metric, now, threshold, what.format(now=now, steps=steps))


_RULES: dict[WarningKind, Callable[[_Past, Thresholds], _Finding | None]] = {
    WarningKind.NON_FINITE: _non_finite,
    WarningKind.REWARD_COLLAPSE: _reward,
    WarningKind.FORMAT_COLLAPSE: _format,
    WarningKind.ENTROPY_EXPLOSION: _entropy_explosion,
    WarningKind.ENTROPY_COLLAPSE: _entropy_collapse,
    WarningKind.RIGHT_LIKELIHOOD: _right_likelihood,
    WarningKind.GRADIENT_NORM: _gradient,
    WarningKind.LOGPROB_DRIFT: _drift,
    WarningKind.ALL_WRONG_GROUPS: _all_wrong,
    WarningKind.DEGENERATE_GROUPS: _degenerate,
    WarningKind.SEARCH_LIMIT: _search_limit,
    WarningKind.NO_SEARCH: _no_search,
}

_ADVICE = {
    WarningKind.NON_FINITE: "The weights or the service's numerics have broken down; what is "
    "trained from here on is worthless. Fork from an earlier checkpoint, with a lower "
    "--learning-rate or with --grad-clip-norm 1.",
    WarningKind.REWARD_COLLAPSE: "The policy is unlearning what it knew. Look at search/error_rate "
    "and search/empty_rate first, then read trajectories of the best and of the last steps side "
    "by side; fork from the checkpoint before the fall with a lower --learning-rate.",
    WarningKind.FORMAT_COLLAPSE: "The format does not depend on search, so the policy itself is "
    "breaking. Read some final turns; fork from the checkpoint before the fall with a lower "
    "--learning-rate.",
    WarningKind.ENTROPY_EXPLOSION: "The policy is dissolving into noise; rewards follow. Look at "
    "trainer/grad_norm and trainer/logprob_drift, and fork from an earlier checkpoint with a "
    "lower --learning-rate or with --grad-clip-norm 1.",
    WarningKind.ENTROPY_COLLAPSE: "The trajectories of a group become alike and hardly anything "
    "new is tried, so little more will be learned. Compare checkpoints by evaluation; a lower "
    "--learning-rate or a larger --group-size keeps more variety.",
    WarningKind.RIGHT_LIKELIHOOD: "Updates push down right answers together with the wrong ones "
    "that resemble them, which comes before a collapse. Watch trainer/grad_norm and reward/correct "
    "closely; a lower --learning-rate slows it down.",
    WarningKind.GRADIENT_NORM: "Such updates can undo many steps. Look at rollout/mean_logprob and "
    "at the shortest and longest trajectories of the step; --grad-clip-norm 1 bounds them.",
    WarningKind.LOGPROB_DRIFT: "The importance weights then correct a difference that is not the "
    "policy's, and training may break. Look whether --temperature and --top-p are 1, and ask the "
    "service which distribution its logprobs are of.",
    WarningKind.ALL_WRONG_GROUPS: "They teach nothing and are paid for. Look at search/error_rate "
    "and search/empty_rate, at reward/format, and whether the questions are too hard for the model.",
    WarningKind.DEGENERATE_GROUPS: "Hardly anything is trained on. If rollout/all_right_group_rate "
    "is high, training is done or the questions are too easy; if rollout/all_wrong_group_rate is, "
    "they are too hard, or the policy or the search is broken.",
    WarningKind.SEARCH_LIMIT: "The policy searches without coming to an answer. Read some of these "
    "trajectories: is the evidence there and not used (then the policy), or not there (then the "
    "search back end, or --max-search-calls)?",
    WarningKind.NO_SEARCH: "It answers from memory, so it no longer learns to search. Look at "
    "search/error_rate and search/empty_rate: searching that did not help was unlearned; fork from "
    "a checkpoint that still searched.",
}
