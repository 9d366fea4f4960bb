"""A step's metrics: valid trajectories count, failures outside of the policy are told apart."""

from dataclasses import replace

import pytest

from searchr1.metrics import rollout_metrics, search_statistics
from searchr1.trajectory import Group, Question, StopReason
from tests.trajectories import QUESTION, group, search, trajectory


def test_rewards_are_means_over_valid_trajectories_and_all_is_shown_beside():
    failed = trajectory(2, 0.0, StopReason.ENVIRONMENT_ERROR, (search(False, "timeout"),))
    metrics = rollout_metrics([Group(QUESTION, (*group(1.0, 0.0).trajectories, failed))])
    assert metrics["reward/mean"] == 0.5
    assert metrics["reward/one_hop"] == 0.5
    assert metrics["reward/mean_all"] == pytest.approx(1 / 3)
    assert metrics["rollout/environment_error_rate"] == pytest.approx(1 / 3)


def test_degenerate_groups_are_split_into_all_right_and_all_wrong():
    questions = [Question(f"q{i}", "?", ("a",), "s") for i in range(4)]
    rewards = [(1.0, 1.0), (-0.1,) * 8, (0.0, 0.0), (1.0, -0.1)]
    groups = [group(*r, question=q) for r, q in zip(rewards, questions, strict=True)]
    metrics = rollout_metrics(groups)
    assert metrics["rollout/degenerate_group_rate"] == 0.75
    assert metrics["rollout/all_right_group_rate"] == 0.25
    assert metrics["rollout/all_wrong_group_rate"] == 0.5


def test_likelihood_is_that_of_drawn_tokens_and_apart_for_right_answers():
    wrong = replace(trajectory(1, 0.0), logprobs=(0.0, 0.0, -1.0, -2.0))
    failed = trajectory(2, 0.0, StopReason.SAMPLING_ERROR)
    metrics = rollout_metrics([Group(QUESTION, (trajectory(0, 1.0), wrong, failed))])
    assert metrics["rollout/mean_logprob_right"] == pytest.approx(-0.375)
    assert metrics["rollout/mean_logprob"] == pytest.approx((-0.75 - 3.0) / 4)


def test_a_step_without_right_answers_has_no_likelihood_of_them():
    metrics = rollout_metrics([group(0.0, -0.1)])
    assert "rollout/mean_logprob" in metrics
    assert "rollout/mean_logprob_right" not in metrics


def test_search_metrics_speak_of_the_step_alone():
    searches = [
        search(),
        search(cached=True),
        search(False, "timeout"),
        search(False, "rate_limited"),
    ]
    metrics = search_statistics(searches).metrics()
    assert metrics["search/success_rate"] == 0.5
    assert metrics["search/error_rate"] == 0.5
    assert metrics["search/timeout_rate"] == metrics["search/429_rate"] == 0.25
    assert metrics["search/cache_hit_rate"] == 0.25
    assert metrics["search/results"] == 1.0


def test_a_step_without_any_valid_trajectory_has_finite_metrics():
    failed = trajectory(0, 0.0, StopReason.SAMPLING_ERROR)
    metrics = rollout_metrics([Group(QUESTION, (failed,))])
    assert all(value == value for value in metrics.values())
    assert metrics["rollout/sampling_error_rate"] == 1.0
