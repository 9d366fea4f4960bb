"""Group-relative advantages: a trajectory's reward minus the mean of its group.

`A_i = r_i - mean(r)` over the valid trajectories of one question (GRPO's baseline without the
division by the standard deviation). A group whose rewards are all equal, or that has fewer than
two valid trajectories, teaches nothing and is degenerate. Equality is decided on the rewards:
after the subtraction, eight rewards of -0.1 are -1.4e-17 away from their mean.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from searchr1.reward import RIGHT, WRONG


class GroupOutcome(StrEnum):
    """What a group of rewards tells."""

    MIXED = "mixed"
    """Rewards differ: the only outcome with a gradient."""
    ALL_RIGHT = "all_right"
    """Every valid trajectory is right: the question is too easy."""
    ALL_WRONG = "all_wrong"
    """Every valid trajectory has the same reward of 0 or less: the question is too hard."""
    ALL_EQUAL = "all_equal"
    """Rewards are equal, and neither those of right answers nor of wrong ones."""
    TOO_FEW = "too_few"
    """Fewer than two valid trajectories: there is nothing to compare."""


class Advantages(NamedTuple):
    """Advantages of one group of G trajectories."""

    values: tuple[float, ...]
    """[G]; 0.0 for a trajectory that is not valid, and all 0.0 in a degenerate group."""
    degenerate: bool
    """Whether the group gives no gradient."""
    outcome: GroupOutcome
    """Why, or `mixed`."""


def group_advantages(rewards: Sequence[float | None]) -> Advantages:
    """Advantages of the trajectories of one question. A reward that is None or not a finite
    number belongs to a trajectory that is not valid: it enters no mean and gets 0.0."""
    valid = [reward for reward in rewards if reward is not None and math.isfinite(reward)]
    outcome = _outcome(valid)
    if outcome is not GroupOutcome.MIXED:
        return Advantages((0.0,) * len(rewards), True, outcome)
    mean = math.fsum(valid) / len(valid)
    values = tuple(
        reward - mean if reward is not None and math.isfinite(reward) else 0.0 for reward in rewards
    )
    return Advantages(values, False, outcome)


def _outcome(valid: Sequence[float]) -> GroupOutcome:
    if len(valid) < 2:
        return GroupOutcome.TOO_FEW
    if any(reward != valid[0] for reward in valid):
        return GroupOutcome.MIXED
    if valid[0] == RIGHT:
        return GroupOutcome.ALL_RIGHT
    return GroupOutcome.ALL_WRONG if valid[0] <= WRONG else GroupOutcome.ALL_EQUAL
