"""Group-relative advantages."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchr1.advantage import GroupOutcome, group_advantages

REWARDS = st.sampled_from([1.0, 0.0, -0.1, None, math.nan])


def test_an_advantage_is_the_reward_minus_the_mean_of_its_group():
    advantages = group_advantages([1, 0, 0, -0.1, 1, 0, 0, -0.1])

    assert advantages.values == pytest.approx(
        [0.775, -0.225, -0.225, -0.325, 0.775, -0.225, -0.225, -0.325]
    )
    assert not advantages.degenerate
    assert advantages.outcome is GroupOutcome.MIXED


@pytest.mark.parametrize("size", range(2, 33))
@pytest.mark.parametrize(
    ("reward", "outcome"),
    [
        (1.0, GroupOutcome.ALL_RIGHT),
        (0.0, GroupOutcome.ALL_WRONG),
        (-0.1, GroupOutcome.ALL_WRONG),
        (0.3, GroupOutcome.ALL_EQUAL),
    ],
)
def test_equal_rewards_give_exactly_no_gradient(reward, outcome, size):
    assert group_advantages([reward] * size) == ((0.0,) * size, True, outcome)


@pytest.mark.parametrize(
    "rewards", [[], [1.0], [None, 1.0], [math.nan, -0.1, None], [None, None], [math.inf, 1.0]]
)
def test_fewer_than_two_valid_trajectories_cannot_be_compared(rewards):
    assert group_advantages(rewards) == ((0.0,) * len(rewards), True, GroupOutcome.TOO_FEW)


@pytest.mark.parametrize("invalid", [None, math.nan])
def test_a_trajectory_that_is_not_valid_enters_no_mean(invalid):
    advantages = group_advantages([1.0, invalid, 0.0, invalid])

    assert advantages.values == (0.5, 0.0, -0.5, 0.0)
    assert group_advantages([1.0, invalid, 1.0]).outcome is GroupOutcome.ALL_RIGHT


def test_wrong_and_malformed_answers_differ_and_teach_the_form():
    assert group_advantages([0.0, -0.1]).outcome is GroupOutcome.MIXED


@settings(deadline=None)
@given(st.lists(REWARDS, max_size=16))
def test_advantages_sum_to_zero_and_follow_the_rewards(rewards):
    advantages = group_advantages(rewards)
    valid = [reward for reward in rewards if reward is not None and not math.isnan(reward)]

    assert len(advantages.values) == len(rewards)
    assert math.fsum(advantages.values) == pytest.approx(0.0)
    assert advantages.degenerate is (len(set(valid)) < 2)
    assert advantages.degenerate is (advantages.outcome is not GroupOutcome.MIXED)
    assert advantages.degenerate is all(value == 0.0 for value in advantages.values)


@settings(deadline=None)
@given(st.permutations([1.0, 1.0, 0.0, -0.1, None]))
def test_the_order_within_a_group_does_not_matter(rewards):
    by_reward = dict(zip(rewards, group_advantages(rewards).values, strict=True))
    assert by_reward == {1.0: 0.525, 0.0: -0.475, -0.1: -0.575, None: 0.0}
