"""Early warnings: heard when training breaks, silent while it is healthy, the same afterwards."""

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from searchr1.runs import append_jsonl, read_jsonl
from searchr1.watchdog import (
    WarningKind,
    all_warnings,
    collapse,
    finite,
    warnings,
    watchdog_metrics,
)

HEALTHY = {
    "reward/correct": 0.5,
    "reward/format": 0.95,
    "rollout/mean_logprob": -0.4,
    "rollout/mean_logprob_right": -0.3,
    "rollout/degenerate_group_rate": 0.375,
    "rollout/all_wrong_group_rate": 0.25,
    "rollout/no_search_rate": 0.05,
    "rollout/search_limit_rate": 0.05,
    "rollout/turn_limit_rate": 0.0,
    "rollout/token_limit_rate": 0.0,
    "search/error_rate": 0.0,
    "train/update_skipped": 0.0,
    "train/trajectories_trained": 40.0,
    "train/trajectories_degenerate": 24.0,
    "trainer/grad_norm": 1.0,
    "trainer/logprob_drift": 0.02,
}


def recorded(learning_rate: str) -> dict[int, dict[str, float]]:
    """A training as it really went."""
    file = json.loads((Path(__file__).parent / "watchdog_histories.json").read_text())
    rows = file["learning_rates"][learning_rate]
    return {
        step: {
            name: value
            for name, value in zip(file["metrics"], row, strict=True)
            if value is not None
        }
        for step, row in enumerate(rows, 1)
    }


def steady(steps: int, then: int = 0, **changed: float) -> dict[int, dict[str, float]]:
    """`steps` healthy steps, and `then` further ones with other values ("reward__correct")."""
    changes = {name.replace("__", "/"): value for name, value in changed.items()}
    history = {step: dict(HEALTHY) for step in range(1, steps + 1)}
    return history | {steps + step: HEALTHY | changes for step in range(1, then + 1)}


def kinds(history) -> set[WarningKind]:
    return {warning.kind for warning in warnings(history)}


def first(history, kind: WarningKind) -> int | None:
    return next((w.step for w in all_warnings(history) if w.kind is kind), None)


def test_a_healthy_training_is_never_warned_of():
    assert list(all_warnings(recorded("3e-3"))) == []


def test_a_training_that_unlearns_is_warned_of_before_it_is_over():
    history = recorded("1.2e-2")
    assert first(history, WarningKind.ENTROPY_EXPLOSION) == 8
    assert first(history, WarningKind.REWARD_COLLAPSE) == 10
    assert first(history, WarningKind.RIGHT_LIKELIHOOD) == 11


def test_a_training_that_dies_at_once_is_stopped_after_five_dead_steps():
    history = recorded("3e-2")
    upto = [{n: history[n] for n in range(1, last + 1)} for last in range(1, 17)]
    assert [collapse(past) is not None for past in upto] == [False] * 6 + [True] * 10
    found = collapse(history)
    assert found is not None and found.kind is WarningKind.DEAD


def noisy(chance: random.Random, steps: int, start: float, end: float):
    """A policy that improves from `start` to `end`, eight questions of mixed difficulty a step."""
    for step in range(1, steps + 1):
        progress = 1 - math.exp(-step / 10)
        mean = start + (end - start) * progress
        right = []
        for _ in range(8):
            chance_right = chance.betavariate(1.2 * mean, 1.2 * (1 - mean))
            right.append(sum(chance.random() < chance_right for _ in range(8)))
        calm = max(0.15, math.exp(-step / 60))
        yield HEALTHY | {
            "reward/correct": sum(right) / 64,
            "reward/format": sum(chance.random() < 0.85 + 0.13 * progress for _ in range(64)) / 64,
            "rollout/mean_logprob": -0.3 * calm * chance.lognormvariate(0, 0.15),
            "rollout/mean_logprob_right": -0.25 * calm * chance.lognormvariate(0, 0.25),
            "rollout/all_wrong_group_rate": sum(n == 0 for n in right) / 8,
            "rollout/degenerate_group_rate": sum(n in (0, 8) for n in right) / 8,
            "trainer/grad_norm": chance.lognormvariate(0, 0.4),
        }


@pytest.mark.parametrize(("start", "end"), [(0.44, 0.5), (0.3, 0.45), (0.35, 0.8)])
def test_the_noise_of_small_batches_is_no_warning(start, end):
    for seed in range(4):
        history = dict(enumerate(noisy(random.Random(seed), 100, start, end), 1))
        assert list(all_warnings(history)) == []


SIGNS = {
    WarningKind.DEAD: (5, {"reward__correct": 0.0, "train__update_skipped": 1.0}),
    WarningKind.REWARD_COLLAPSE: (5, {"reward__correct": 0.12}),
    WarningKind.FORMAT_COLLAPSE: (3, {"reward__format": 0.6}),
    WarningKind.ENTROPY_EXPLOSION: (3, {"rollout__mean_logprob": -1.3}),
    WarningKind.ENTROPY_COLLAPSE: (3, {"rollout__mean_logprob": -0.01}),
    WarningKind.RIGHT_LIKELIHOOD: (3, {"rollout__mean_logprob_right": -0.65}),
    WarningKind.GRADIENT_NORM: (3, {"trainer__grad_norm": 4.5}),
    WarningKind.LOGPROB_DRIFT: (3, {"trainer__logprob_drift": 0.15}),
    WarningKind.ALL_WRONG_GROUPS: (5, {"rollout__all_wrong_group_rate": 0.8}),
    WarningKind.DEGENERATE_GROUPS: (5, {"rollout__degenerate_group_rate": 1.0}),
    WarningKind.LIMIT_ENDINGS: (
        5,
        {"rollout__search_limit_rate": 0.25, "rollout__turn_limit_rate": 0.1},
    ),
    WarningKind.NO_SEARCH: (5, {"rollout__no_search_rate": 0.95}),
}
"""For each kind: after how many bad steps at the latest, and what is bad in them."""


@pytest.mark.parametrize("kind", [k for k in WarningKind if k is not WarningKind.NON_FINITE])
def test_a_lasting_sign_is_warned_of_in_time(kind):
    steps, changed = SIGNS[kind]
    found = [w for w in warnings(steady(10, steps, **changed)) if w.kind is kind]
    assert len(found) == 1
    warning = found[0]
    assert warning.step == 10 + steps
    assert warning.metric in {name.replace("__", "/") for name in changed}
    assert kind in kinds(steady(10, steps + 2, **changed))
    assert len(warning.message) > 80


@pytest.mark.parametrize("kind", [k for k in WarningKind if k is not WarningKind.NON_FINITE])
def test_one_bad_step_is_not_enough(kind):
    assert kinds(steady(10, 1, **SIGNS[kind][1])) == set()


@pytest.mark.parametrize(
    ("changed", "steps"),
    [
        ({"reward__correct": 0.26}, 8),
        ({"reward__format": 0.66}, 8),
        ({"rollout__mean_logprob": -1.1}, 8),
        ({"rollout__mean_logprob": -0.03}, 8),
        ({"rollout__mean_logprob_right": -0.55}, 8),
        ({"trainer__grad_norm": 3.8}, 8),
        ({"trainer__grad_norm": 9.0}, 1),
        ({"trainer__logprob_drift": 0.09}, 8),
        ({"rollout__all_wrong_group_rate": 0.7}, 8),
        ({"rollout__degenerate_group_rate": 0.85}, 8),
        ({"rollout__search_limit_rate": 0.28}, 8),
        ({"rollout__no_search_rate": 0.85}, 8),
    ],
)
def test_what_stays_within_the_thresholds_is_no_warning(changed, steps):
    assert kinds(steady(10, steps, **changed)) == set()


def test_a_gradient_out_of_all_proportion_is_warned_of_at_once_and_only_then():
    history = steady(10, 1, trainer__grad_norm=11.0)
    assert kinds(history) == {WarningKind.GRADIENT_NORM}
    assert kinds(history | {12: HEALTHY}) == set()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_warned_of_at_once_and_named(bad):
    found = collapse({1: {"trainer/loss_mean": bad}})
    assert found is not None and found.kind is WarningKind.NON_FINITE
    assert "trainer/loss_mean" in found.message


def test_certainty_is_no_fault_of_a_policy_that_has_mastered_its_task():
    changed = {"rollout__mean_logprob": -0.01, "reward__correct": 0.95}
    assert kinds(steady(10, 5, **changed)) == set()


def test_a_policy_that_never_searched_is_not_said_to_have_stopped():
    history = {step: HEALTHY | {"rollout/no_search_rate": 1.0} for step in range(1, 21)}
    assert kinds(history) == set()


def test_a_fall_beside_failed_searches_points_to_the_environment():
    falls = {"reward__correct": 0.0}
    policy = collapse(steady(10, 5, **falls))
    search = collapse(steady(10, 5, **falls, search__error_rate=0.3))
    assert policy is not None and "environment" not in policy.message
    assert search is not None and "environment" in search.message


def test_smaller_steps_are_judged_by_as_many_trajectories():
    small = {"train/trajectories_trained": 8.0, "train/trajectories_degenerate": 8.0}
    history = {n: m | small for n, m in steady(40, 20, reward__format=0.5).items()}
    assert first(history, WarningKind.FORMAT_COLLAPSE) == 40 + 7  # the median of 12 steps
    history = steady(40, 20, reward__format=0.5)
    assert first(history, WarningKind.FORMAT_COLLAPSE) == 40 + 2


def test_a_metric_that_the_last_step_lacks_is_old_news():
    history = steady(10, 5, rollout__mean_logprob_right=-0.9)
    assert kinds(history) == {WarningKind.RIGHT_LIKELIHOOD}
    last = {k: v for k, v in HEALTHY.items() if k != "rollout/mean_logprob_right"}
    assert kinds(history | {16: last}) == set()


def test_only_what_is_beyond_repair_stops_a_run():
    assert {kind for kind in WarningKind if kind.stops} == {
        WarningKind.NON_FINITE,
        WarningKind.DEAD,
        WarningKind.REWARD_COLLAPSE,
        WarningKind.FORMAT_COLLAPSE,
        WarningKind.ENTROPY_EXPLOSION,
    }
    assert collapse(steady(10, 5, rollout__all_wrong_group_rate=1.0)) is None


def test_a_run_without_finished_steps_is_not_judged():
    assert warnings({}) == []
    assert warnings({0: {}}) == []


values = st.floats(-2, 2) | st.sampled_from([0.0, 1.0, math.nan, math.inf])
histories = st.lists(
    st.dictionaries(st.sampled_from(sorted(HEALTHY)), values), min_size=1, max_size=14
).map(lambda rows: dict(enumerate(rows, 1)))


@settings(max_examples=40)
@example(
    {
        n: {"reward/format": float(n < 4), "train/trajectories_trained": math.nan}
        for n in range(1, 7)
    }
)
@example({1: {"train/trajectories_trained": 1e-320}})
@given(histories)
def test_the_ledger_gives_the_same_warnings_as_the_step_did(history):
    stored: dict[int, dict[str, float]] = {}
    for step, metrics in history.items():
        live = warnings(stored | {step: metrics})
        stored[step] = finite(metrics) | watchdog_metrics(live)
        assert {w.kind for w in warnings(stored)} == {w.kind for w in live}
        assert all(math.isfinite(value) for value in stored[step].values())


def test_a_marked_step_can_be_written_to_a_ledger(tmp_path):
    metrics = {"trainer/grad_norm": math.nan, "reward/mean": 0.5}
    append_jsonl(tmp_path / "l.jsonl", finite(metrics) | watchdog_metrics(warnings({1: metrics})))
    assert read_jsonl(tmp_path / "l.jsonl") == [{"reward/mean": 0.5, "watchdog/non_finite": 1.0}]
