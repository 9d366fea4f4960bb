"""From trajectories to training data: pure, and knowing nothing of any service.

One datum a trajectory, over its whole token sequence. Tokens that the policy drew carry the
trajectory's advantage and the sampler's logprob; all others carry zero of both. One right shift
for all four arrays: position i of targets, logprobs and advantages speaks of the token that
follows `input_tokens[i]`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from searchr1.advantage import GroupOutcome, group_advantages
from searchr1.trajectory import Group, Trajectory


class Datum(NamedTuple):
    """Arrays of one trajectory of T tokens, each [T-1]."""

    input_tokens: np.ndarray
    """int64"""
    target_tokens: np.ndarray
    """int64"""
    logprobs: np.ndarray
    """float64, of the distribution that was sampled from; 0 where the policy drew nothing."""
    advantages: np.ndarray
    """float64; 0 where the policy drew nothing."""


class Fate(StrEnum):
    """What became of a trajectory in a batch: the first of these that applies."""

    INVALID = "invalid"
    """Ended by an environment or sampling error; in no mean and in no loss."""
    DEGENERATE = "degenerate"
    """In a group without gradient."""
    ZERO_ADVANTAGE = "zero_advantage"
    """Exactly at the mean of a mixed group: its gradient is zero, so it is not sent."""
    UNTRAINABLE = "untrainable"
    """Without a single token that the policy drew."""
    OVER_LONG = "over_long"
    """Longer than the service trains; skipped, the advantages of its group stay as they are."""
    TRAINED = "trained"
    """It gave a datum."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one update trains on, and what became of every trajectory of the step."""

    datums: tuple[Datum, ...]
    fates: Mapping[Fate, int]
    """Number of trajectories by fate, every fate present."""
    outcomes: Mapping[GroupOutcome, int]
    """Number of groups by outcome, every outcome present."""

    @property
    def trajectories(self) -> int:
        """All trajectories of the step."""
        return sum(self.fates.values())

    @property
    def groups(self) -> int:
        """All groups of the step."""
        return sum(self.outcomes.values())

    @property
    def degenerate_groups(self) -> int:
        """Groups without gradient."""
        return self.groups - self.outcomes[GroupOutcome.MIXED]

    @property
    def tokens(self) -> int:
        """Input tokens of all datums: what training is billed for."""
        return sum(len(datum.input_tokens) for datum in self.datums)

    @property
    def loss_tokens(self) -> int:
        """Positions with an advantage other than zero."""
        return sum(int(np.count_nonzero(datum.advantages)) for datum in self.datums)


def build_datum(trajectory: Trajectory, advantage: float) -> Datum | None:
    """The datum of one trajectory, or None if there is no token to train: nothing was drawn, or
    the trajectory is not valid.

    Raises:
        ValueError: tokens, mask and logprobs of the trajectory differ in length.
    """
    tokens = np.asarray(trajectory.tokens, dtype=np.int64)
    drawn = np.asarray(trajectory.loss_mask, dtype=bool)
    logprobs = np.asarray(trajectory.logprobs, dtype=np.float64)
    if not len(tokens) == len(drawn) == len(logprobs):
        raise ValueError(
            f"a trajectory has {len(tokens)} tokens, {len(drawn)} mask values and "
            f"{len(logprobs)} logprobs; there must be as many of each"
        )
    if not trajectory.valid or not drawn[1:].any():
        return None
    return Datum(
        input_tokens=tokens[:-1],
        target_tokens=tokens[1:],
        logprobs=np.where(drawn, logprobs, 0.0)[1:],
        advantages=np.where(drawn, advantage, 0.0)[1:],
    )


def trajectory_rewards(group: Group) -> list[float | None]:
    """Rewards of a group's trajectories, None for those that are not valid."""
    return [trajectory.reward if trajectory.valid else None for trajectory in group.trajectories]


def build_batch(groups: Sequence[Group], max_tokens: int | None = None) -> Batch:
    """The datums of a step, in the order of groups and trajectories.

    The service takes the mean over the datums of a call. Advantages are therefore scaled by
    (datums / valid trajectories), which makes the step the mean over all valid trajectories,
    whatever gave no datum: degenerate groups, over-long trajectories, advantages of zero.
    Trajectories that an outage spoiled are not in that mean, so an outage does not shorten the
    step that the others justify.

    Args:
        groups: the groups of one step.
        max_tokens: most input tokens of a datum (T-1) that the service trains; None = no limit.
    """
    fates: Counter[Fate] = Counter()
    outcomes: Counter[GroupOutcome] = Counter()
    datums: list[Datum] = []
    for group in groups:
        advantages = group_advantages(trajectory_rewards(group))
        outcomes[advantages.outcome] += 1
        for trajectory, advantage in zip(group.trajectories, advantages.values, strict=True):
            datum = build_datum(trajectory, advantage)
            if not trajectory.valid:
                fate = Fate.INVALID
            elif advantages.degenerate:
                fate = Fate.DEGENERATE
            elif advantage == 0.0:
                fate = Fate.ZERO_ADVANTAGE
            elif datum is None:
                fate = Fate.UNTRAINABLE
            elif max_tokens is not None and len(datum.input_tokens) > max_tokens:
                fate = Fate.OVER_LONG
            else:
                fate = Fate.TRAINED
                datums.append(datum)
            fates[fate] += 1

    valid = fates.total() - fates[Fate.INVALID]
    scale = len(datums) / valid if valid else 0.0
    return Batch(
        datums=tuple(datum._replace(advantages=datum.advantages * scale) for datum in datums),
        fates={fate: fates[fate] for fate in Fate},
        outcomes={outcome: outcomes[outcome] for outcome in GroupOutcome},
    )
