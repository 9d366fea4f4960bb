"""The rules of the watchdog: when is a run's last step a sign of collapse?

Each rule takes the past of a run and thresholds, and returns what it found or None. It looks at
several steps, and at the run's own past where a value has no natural scale, so that one unlucky
batch of questions is no warning; only a value that is not finite, or a gradient out of all
proportion, is one at once.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import NamedTuple

History = Mapping[int, Mapping[str, float]]
"""Metrics by step. Steps without a metric, such as step 0, do not count for it."""

MARK_PREFIX = "watchdog/"
"""Metrics `watchdog/<kind>` are 1.0 in the record of a step that was warned of."""
NON_FINITE_MARK = f"{MARK_PREFIX}non_finite"

FULL_STEP = 64
"""Trajectories of a step that the thresholds' numbers of steps are meant for."""


@dataclass(frozen=True)
class Thresholds:
    """When to warn. Figures for noise are of a step of 8 questions x 8 trajectories, whose share
    of right answers has a standard deviation of 0.11 to 0.15 between batches of one and the same
    policy; a mean over 5 such steps has 0.05 to 0.07."""

    recent: int = 3
    """Steps whose median stands for the present: one odd step never warns."""
    long: int = 5
    """Steps of a mean of noisy rates, and of a reference from the past."""
    reward_share: float = 1 / 3
    """Of the best mean of right answers. From the luckiest window of a steady policy down to this
    share are more than 3 standard deviations, so it hardly ever happens by chance."""
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
    """Of the starting entropy. Reward is bought with entropy, and most of the gain was made by the
    time that some 95% of it was spent (Cui et al., arXiv 2505.22617): little is left to learn."""
    mastered: float = 0.9
    """Share of right answers from which certainty is no fault."""
    likelihood_factor: float = 2.0
    """Surprise (minus mean logprob) of right answers against the run's best. Stagnation, then
    decay of their likelihood precede the collapse of Search-R1 under group-relative advantages
    (Deng et al., arXiv 2512.04220)."""
    likelihood_margin: float = 0.05
    """Nats a token that the surprise must have risen at least."""
    gradient_spike: float = 10.0
    """One gradient against the run's median norm. Adam bounds its step, but its moments remember
    it for many steps. Healthy runs of the tiny policy reach 4."""
    gradient_growth: float = 4.0
    """Several gradients against the run's median norm: inflating gradients are the second half of
    the spiral that Deng et al. describe."""
    drift: float = 0.1
    """Mean difference, nats a token. One policy at one state should give about 0; different
    kernels and half precision give a few hundredths. More makes the importance weights wrong and
    has brought down training by itself (Liu, Li et al. 2025, "When Speed Kills Stability")."""
    all_wrong: float = 0.75
    """Share of groups. Hard questions alone keep it near a half."""
    degenerate: float = 0.9
    """Share of groups; fewer than one of eight questions then trains."""
    limit_endings: float = 0.3
    """Share of trajectories that end at a limit of searches, turns or tokens."""
    no_search: float = 0.9
    """Share of trajectories without a search, where at first most searched."""

    def for_steps_of(self, trajectories: float) -> "Thresholds":
        """The same for smaller steps: as many more of them are looked at, so that every judgement
        rests on as many trajectories."""
        stretch = math.ceil(FULL_STEP / trajectories) if 1 <= trajectories < FULL_STEP else 1
        return replace(self, recent=self.recent * stretch, long=self.long * stretch)


class Finding(NamedTuple):
    """What a rule found."""

    metric: str
    value: float
    threshold: float
    what: str
    """For a person: what happened."""


class Past:
    """The history as the rules read it."""

    def __init__(self, history: History) -> None:
        self.steps = [history[step] for step in sorted(history)]

    @property
    def last(self) -> Mapping[str, float]:
        """Metrics of the step that is judged."""
        return self.steps[-1]

    def values(self, metric: str, least: int) -> list[float]:
        """Finite values in step order; none unless the last step has one and there are at least
        `least`, so that no rule warns of old news or of too little."""
        if not math.isfinite(self.last.get(metric, math.nan)):
            return []
        found = [step[metric] for step in self.steps if metric in step]
        found = [value for value in found if math.isfinite(value)]
        return found if len(found) >= least else []

    @property
    def trajectories(self) -> float:
        """Of the last step; 0 if it does not tell."""
        fates = [v for name, v in self.last.items() if name.startswith("train/trajectories_")]
        return math.fsum(filter(math.isfinite, fates))


_LIMITS = {"search": "searches", "turn": "turns", "token": "tokens"}


def _windows(values: Sequence[float], length: int) -> Iterator[Sequence[float]]:
    return (values[end - length : end] for end in range(length, len(values) + 1))


def non_finite(past: Past, _limits: Thresholds) -> Finding | None:
    """A record keeps no such value, but it keeps the mark."""
    bad = sorted(name for name, value in past.last.items() if not math.isfinite(value))
    if not bad and not past.last.get(NON_FINITE_MARK):
        return None
    what = f"{', '.join(bad) or 'A metric'} was not a finite number."
    return Finding(bad[0] if bad else NON_FINITE_MARK, 1.0, 0.0, what)


def dead(past: Past, limits: Thresholds) -> Finding | None:
    """Without a gradient the policy stays as it is, so what it is now it remains."""
    right = past.values("reward/correct", limits.long)
    skipped = past.values("train/update_skipped", limits.long)
    if not right or not skipped:
        return None
    if any(right[-limits.long :]) or not all(skipped[-limits.long :]):
        return None
    what = f"For {limits.long} steps no answer was right, and no update was made."
    return Finding("train/update_skipped", 1.0, 1.0, what)


def reward(past: Past, limits: Thresholds) -> Finding | None:
    metric = "reward/correct"
    values = past.values(metric, 2 * limits.long)
    if not values:
        return None
    now = fmean(values[-limits.long :])
    best = max(fmean(window) for window in _windows(values[: -limits.long], limits.long))
    threshold = min(limits.reward_share * best, best - limits.reward_drop)
    if now >= threshold:
        return None
    what = (
        f"Right answers fell from {best:.0%} at best to {now:.0%} over the last "
        f"{limits.long} steps."
    )
    if past.last.get("search/error_rate", 0.0) > 0.1:
        what += " Many searches of this step failed: suspect the environment first."
    return Finding(metric, now, threshold, what)


def format(past: Past, limits: Thresholds) -> Finding | None:
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
    return Finding(metric, now, threshold, what)


def entropy_explosion(past: Past, limits: Thresholds) -> Finding | None:
    metric = "rollout/mean_logprob"
    values = [-value for value in past.values(metric, limits.recent + limits.long)]
    if not values:
        return None
    now, before = median(values[-limits.recent :]), median(values[: -limits.recent])
    threshold = max(limits.explosion_factor * before, before + limits.explosion_margin)
    if now <= threshold:
        return None
    what = f"The policy's entropy rose from {before:.3g} to {now:.3g} nats a token."
    return Finding(metric, -now, -threshold, what)


def entropy_collapse(past: Past, limits: Thresholds) -> Finding | None:
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
    return Finding(metric, -now, -threshold, what)


def right_likelihood(past: Past, limits: Thresholds) -> Finding | None:
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
    return Finding(metric, now, threshold, what)


def gradient(past: Past, limits: Thresholds) -> Finding | None:
    metric = "trainer/grad_norm"
    values = past.values(metric, limits.long + 1)
    before = median(values[:-1]) if values else 0.0
    if before and values[-1] > (threshold := limits.gradient_spike * before):
        what = f"The gradient norm is {values[-1]:.3g}, the run's median {before:.3g}."
        return Finding(metric, values[-1], threshold, what)
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
    return Finding(metric, now, threshold, what)


def drift(past: Past, limits: Thresholds) -> Finding | None:
    metric = "trainer/logprob_drift"
    values = past.values(metric, limits.recent)
    now = median(values[-limits.recent :]) if values else 0.0
    if now <= limits.drift:
        return None
    what = f"Trainer and sampler differ by {now:.3g} nats a token on the tokens trained on."
    return Finding(metric, now, limits.drift, what)


def all_wrong(past: Past, limits: Thresholds) -> Finding | None:
    what = "In {now:.0%} of the groups of the last {steps} steps no answer was right."
    return _high_rate(past, "rollout/all_wrong_group_rate", limits.all_wrong, limits.long, what)


def degenerate(past: Past, limits: Thresholds) -> Finding | None:
    what = "In {now:.0%} of the groups of the last {steps} steps all rewards were equal."
    return _high_rate(past, "rollout/degenerate_group_rate", limits.degenerate, limits.long, what)


def limit_endings(past: Past, limits: Thresholds) -> Finding | None:
    rates: dict[str, float] = {}
    for kind in ("search", "turn", "token"):
        values = past.values(f"rollout/{kind}_limit_rate", limits.long)
        rates[kind] = fmean(values[-limits.long :]) if values else 0.0
    now, worst = math.fsum(rates.values()), max(rates, key=lambda kind: rates[kind])
    if now < limits.limit_endings:
        return None
    what = (
        f"{now:.0%} of the trajectories of the last {limits.long} steps ended at a limit, most "
        f"of them ({rates[worst]:.0%} of all) at that of {_LIMITS[worst]}."
    )
    return Finding(f"rollout/{worst}_limit_rate", now, limits.limit_endings, what)


def no_search(past: Past, limits: Thresholds) -> Finding | None:
    metric = "rollout/no_search_rate"
    values = past.values(metric, 2 * limits.long)
    if not values or fmean(values[: limits.long]) > 0.5:
        return None  # it never searched much, or stopped so early that `dead` or `all_wrong` speak
    what = "{now:.0%} of the trajectories of the last {steps} steps made no search."
    return _high_rate(past, metric, limits.no_search, limits.long, what)


def _high_rate(past: Past, metric: str, threshold: float, steps: int, what: str) -> Finding | None:
    """A mean over the last `steps` that has reached `threshold`."""
    values = past.values(metric, steps)
    now = fmean(values[-steps:]) if values else 0.0
    if now < threshold:
        return None
    return Finding(metric, now, threshold, what.format(now=now, steps=steps))
