"""Early warning of collapse, from the metrics that every step records.

A pure function of the history: the same ledger gives the same warnings in every process, so a run
that was interrupted is judged as if it had not been. The rules are in `searchr1.watchdog_rules`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from searchr1 import watchdog_rules as rules
from searchr1.watchdog_rules import MARK_PREFIX, Finding, History, Past, Thresholds


class WarningKind(StrEnum):
    """What looks wrong."""

    NON_FINITE = "non_finite"
    """A metric is infinite or not a number."""
    DEAD = "dead"
    """Nothing is right any more and nothing is trained on, so nothing will change."""
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
    LIMIT_ENDINGS = "limit_endings"
    """Many trajectories end at a limit of searches, turns or tokens instead of with an answer."""
    NO_SEARCH = "no_search"
    """A policy that used to search no longer does."""

    @property
    def stops(self) -> bool:
        """Whether going on does harm or is in vain: what `--on-collapse stop` stops for."""
        return self in _STOPS

    @property
    def metric(self) -> str:
        """Name of the metric that marks a step with this warning."""
        return MARK_PREFIX + self.value


_STOPS = frozenset(
    {
        WarningKind.NON_FINITE,
        WarningKind.DEAD,
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


DEFAULT = Thresholds()


def warnings(history: History, thresholds: Thresholds = DEFAULT) -> list[CollapseWarning]:
    """The warnings at the last step of `history`, the gravest first. Where a cause persists, every
    step is warned of; it is news where the step before has no mark of the kind."""
    if not history:
        return []
    step, past = max(history), Past(history)
    limits = thresholds.for_steps_of(past.trajectories)
    found = {kind: rule(past, limits) for kind, rule in _RULES.items()}
    return [
        CollapseWarning(
            kind, step, one.metric, one.value, one.threshold, f"{one.what} {_ADVICE[kind]}"
        )
        for kind, one in found.items()
        if one
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


_RULES: dict[WarningKind, Callable[[Past, Thresholds], Finding | None]] = {
    WarningKind.NON_FINITE: rules.non_finite,
    WarningKind.DEAD: rules.dead,
    WarningKind.REWARD_COLLAPSE: rules.reward,
    WarningKind.FORMAT_COLLAPSE: rules.format,
    WarningKind.ENTROPY_EXPLOSION: rules.entropy_explosion,
    WarningKind.ENTROPY_COLLAPSE: rules.entropy_collapse,
    WarningKind.RIGHT_LIKELIHOOD: rules.right_likelihood,
    WarningKind.GRADIENT_NORM: rules.gradient,
    WarningKind.LOGPROB_DRIFT: rules.drift,
    WarningKind.ALL_WRONG_GROUPS: rules.all_wrong,
    WarningKind.DEGENERATE_GROUPS: rules.degenerate,
    WarningKind.LIMIT_ENDINGS: rules.limit_endings,
    WarningKind.NO_SEARCH: rules.no_search,
}

_ADVICE = {
    WarningKind.NON_FINITE: "The weights or the service's numerics have broken down; what is "
    "trained from here on is worthless. Fork from an earlier checkpoint, with a lower "
    "--learning-rate or with --grad-clip-norm 1.",
    WarningKind.DEAD: "All rewards are equal, so there is no gradient and the policy will not "
    "recover by itself. Fork from a checkpoint at which some answers were right, with a lower "
    "--learning-rate; if there is none, the model is too weak for the task or search is broken.",
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
    "and search/empty_rate, at reward/format, and whether the questions are too hard.",
    WarningKind.DEGENERATE_GROUPS: "Hardly anything is trained on. If rollout/all_right_group_rate "
    "is high, training is done or the questions are too easy; if rollout/all_wrong_group_rate is, "
    "they are too hard, or the policy or the search is broken.",
    WarningKind.LIMIT_ENDINGS: "The policy goes on and on without coming to an answer. Read some "
    "of these trajectories: does it ramble, is evidence there and not used (the policy), is there "
    "none (the search back end), or is the limit too low?",
    WarningKind.NO_SEARCH: "It answers from memory, so it no longer learns to search. Look at "
    "search/error_rate and search/empty_rate: searching that did not help was unlearned; fork from "
    "a checkpoint that still searched.",
}
