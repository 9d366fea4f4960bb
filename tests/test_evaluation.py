"""Statistics of evaluations against hand-worked numbers and against scipy."""

import itertools
import json
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from searchr1.evaluation import (
    DifferentQuestions,
    EnvironmentsDiffer,
    Item,
    Metric,
    comparable,
    compare,
    evaluation_metrics,
    items_from,
    jsonl_lines,
    require_comparable,
    resolution,
    summarise,
    verdict,
    wilson,
)
from searchr1.evaluation.intervals import resampled_means
from searchr1.evaluation.summary import pass_at_k
from searchr1.trajectory import StopReason
from tests.synthetic_run import Skill, make_questions, make_trajectory, with_stop


def item(question_id: str, source: str = "nq", *, em: bool = False, **values: object) -> Item:
    """An item of which only a few values matter."""
    defaults = {
        "question_id": question_id,
        "source": source,
        "sample": 0,
        "em": em,
        "em_squad": em,
        "f1": float(em),
        "cover_em": em,
        "valid_format": True,
        "reward": float(em),
        "searches": 1,
        "turns": 2,
        "tokens": 100,
        "stop_reason": StopReason.ANSWERED,
        "search_ok": 1,
        "search_failed": 0,
    }
    return Item(**(defaults | values))  # type: ignore[arg-type]


def items_with(right: dict[str, tuple[int, int]]) -> list[Item]:
    """For each source (right, all) items, one sample a question."""
    return [
        item(f"{source}-{number}", source, em=number < count)
        for source, (count, all_) in right.items()
        for number in range(all_)
    ]


# ---- intervals


def test_wilson_equals_the_textbook_formula() -> None:
    # 8 of 10 with z = 1.96: centre (8 + 1.9208) / 13.8416, half-width worked by hand.
    estimate = wilson(8, 10)
    assert estimate.value == 0.8
    assert estimate.low == pytest.approx(0.4902, abs=1e-4)
    assert estimate.high == pytest.approx(0.9433, abs=1e-4)


def test_wilson_of_no_success_reaches_zero_and_not_below() -> None:
    low, high = wilson(0, 70)[1:]
    assert low == 0.0
    assert high == pytest.approx(3.8415 / 73.8415, abs=1e-4)


def test_rates_by_source_have_wilson_intervals() -> None:
    summary = summarise(items_with({"nq": (8, 10), "popqa": (3, 10)}))
    assert summary.by_source["nq"][Metric.EM] == wilson(8, 10)
    assert summary.by_source["popqa"][Metric.EM] == wilson(3, 10)
    assert summary.overall[Metric.EM] == wilson(11, 20)


def test_macro_weighs_sources_alike_whatever_their_size() -> None:
    summary = summarise(items_with({"nq": (90, 90), "popqa": (0, 10)}))
    assert summary.macro[Metric.EM].value == pytest.approx(0.5)
    assert summary.overall[Metric.EM].value == pytest.approx(0.9)


def test_macro_interval_has_the_width_of_the_stratified_standard_error() -> None:
    right = {"a": (40, 100), "b": (70, 100), "c": (20, 50)}
    summary = summarise(items_with(right))
    variance = sum((k / n) * (1 - k / n) / (n - 1) for k, n in right.values()) / len(right) ** 2
    value, low, high = summary.macro[Metric.EM]
    assert value == pytest.approx((0.4 + 0.7 + 0.4) / 3)
    assert high - low == pytest.approx(2 * 1.96 * math.sqrt(variance), rel=0.05)


def test_resampling_agrees_with_scipys_own_stratified_bootstrap() -> None:
    generator = np.random.default_rng(3)
    strata = [generator.gamma(2.0, 1.0, (1, 200)), generator.gamma(1.0, 3.0, (1, 300))]

    def macro(first: np.ndarray, second: np.ndarray, axis: int) -> np.ndarray:
        return (first.mean(axis=axis) + second.mean(axis=axis)) / 2

    theirs = stats.bootstrap(
        [stratum[0] for stratum in strata], macro, method="percentile", rng=np.random.default_rng(5)
    )
    ours = resampled_means(strata, seed=1)[:, 0].mean(axis=0)
    low, high = np.percentile(ours, [2.5, 97.5])
    width = theirs.confidence_interval.high - theirs.confidence_interval.low
    assert low == pytest.approx(theirs.confidence_interval.low, abs=0.06 * width)
    assert high == pytest.approx(theirs.confidence_interval.high, abs=0.06 * width)


def test_resampling_does_not_mix_sources() -> None:
    """Two sources without any spread inside: a bootstrap over all questions would see a spread."""
    draws = resampled_means([np.zeros((1, 10)), np.ones((1, 10))], seed=0)
    assert draws.mean(axis=0).std() == 0.0


def test_a_rate_that_never_varies_still_has_an_interval() -> None:
    summary = summarise(items_with({"nq": (10, 10), "popqa": (10, 10)}))
    assert summary.macro[Metric.EM] == wilson(20, 20)
    assert summary.macro[Metric.EM].low < 0.9


def test_shares_stay_between_zero_and_one() -> None:
    items = [item(f"q{n}", "nq", em=n == 0) for n in range(4)]
    for metric in (Metric.EM, Metric.F1, Metric.COVER_EM, Metric.VALID_FORMAT):
        _, low, high = summarise(items).macro[metric]
        assert 0.0 <= low <= high <= 1.0


def test_the_same_items_give_the_same_interval_in_any_order() -> None:
    items = items_with({"nq": (6, 13), "popqa": (2, 9)})
    shuffled = random.Random(0).sample(items, len(items))
    assert summarise(items).macro == summarise(shuffled).macro


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 4)), min_size=1, max_size=30
    )
)
def test_estimates_lie_inside_their_intervals(drawn: list[tuple[str, bool, int]]) -> None:
    items = [
        item(f"q{n}", source, em=em, searches=searches, search_ok=searches)
        for n, (source, em, searches) in enumerate(drawn)
    ]
    summary = summarise(items)
    for metric, (value, low, high) in summary.macro.items():
        if not math.isnan(value):
            assert low <= value <= high, metric


# ---- invalid items


def test_environment_errors_are_missing_answers_and_not_wrong_ones() -> None:
    items = [
        item("q1", em=True),
        item("q2", em=True),
        item("q3", stop_reason=StopReason.ENVIRONMENT_ERROR, search_ok=0, search_failed=1),
        item("q4", stop_reason=StopReason.SAMPLING_ERROR, searches=0, search_ok=0),
    ]
    summary = summarise(items)
    assert summary.overall[Metric.EM].value == 1.0
    assert (summary.questions, summary.missing, summary.invalid) == (2, 2, 2)
    assert summary.stop_reasons["environment_error"] == 1
    (warning,) = summary.warnings
    assert "2 of 4" in warning and "1 environment_error" in warning


def test_search_success_counts_the_searches_of_invalid_items_too() -> None:
    items = [
        item("q1", searches=3, search_ok=3),
        item("q2", stop_reason=StopReason.ENVIRONMENT_ERROR, search_ok=0, search_failed=1),
    ]
    assert summarise(items).overall[Metric.SEARCH_SUCCESS].value == 0.75


def test_nothing_valid_gives_unknown_values_and_no_crash() -> None:
    summary = summarise([item("q1", stop_reason=StopReason.ENVIRONMENT_ERROR)])
    assert math.isnan(summary.macro[Metric.EM].value)
    assert math.isnan(summarise([]).macro[Metric.EM].value)
    assert "nothing can be said" in summarise([]).sentence


# ---- several samples


def test_em_over_several_samples_is_the_mean_over_questions() -> None:
    items = [item("q1", em=s < 3, sample=s) for s in range(4)]
    items += [item("q2", em=s < 1, sample=s) for s in range(4)]
    summary = summarise(items)
    assert summary.macro[Metric.EM].value == pytest.approx((0.75 + 0.25) / 2)
    assert summary.samples == 4


@pytest.mark.parametrize(("right", "samples", "k"), [(3, 5, 2), (1, 6, 4), (0, 4, 2), (4, 4, 3)])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(
    right: int, samples: int, k: int
) -> None:
    outcomes = [True] * right + [False] * (samples - right)
    subsets = list(itertools.combinations(outcomes, k))
    share = sum(any(subset) for subset in subsets) / len(subsets)
    assert pass_at_k(right, samples, k) == pytest.approx(share)


def test_pass_at_one_is_the_mean_and_pass_at_all_is_any() -> None:
    items = [item("q1", em=s == 0, sample=s) for s in range(4)]
    items += [item("q2", em=False, sample=s) for s in range(4)]
    summary = summarise(items)
    assert list(summary.pass_at) == [1, 2, 4]
    assert summary.pass_at[1].value == pytest.approx(summary.macro[Metric.EM].value)
    assert summary.pass_at[4].value == pytest.approx(0.5)


def test_one_sample_a_question_has_no_pass_at_k() -> None:
    assert summarise(items_with({"nq": (1, 2)})).pass_at == {}


def test_samples_of_one_question_do_not_count_as_questions() -> None:
    """Eight copies of each answer say nothing more: the interval must not shrink."""
    once = items_with({"nq": (10, 20), "popqa": (10, 20)})
    copies = [
        item(i.question_id, i.source, em=i.em, sample=sample) for i in once for sample in range(8)
    ]

    def width(items: list[Item]) -> float:
        _, low, high = summarise(items).macro[Metric.EM]
        return high - low

    assert width(copies) == pytest.approx(width(once), rel=0.05)


# ---- comparison


def pair(gained: int, lost: int, both: int, neither: int) -> tuple[list[Item], list[Item]]:
    """Base and checkpoint with so many questions of each kind, in two sources by turns."""
    kinds = [(False, True)] * gained + [(True, False)] * lost
    kinds += [(True, True)] * both + [(False, False)] * neither
    made: tuple[list[Item], list[Item]] = ([], [])
    for number, outcome in enumerate(kinds):
        for side, em in zip(made, outcome, strict=True):
            side.append(item(f"q{number:03}", "ab"[number % 2], em=em))
    return made


def test_mcnemar_is_the_exact_binomial_test_worked_by_hand() -> None:
    comparison = compare(*pair(gained=9, lost=2, both=20, neither=39))
    # Two-sided: 2 * (C(11,0) + C(11,1) + C(11,2)) / 2^11 = 2 * 67 / 2048.
    assert comparison.p_value == pytest.approx(134 / 2048)
    assert (len(comparison.gained), len(comparison.lost)) == (9, 2)
    assert comparison.gained == tuple(f"q{n:03}" for n in range(9))


def test_mcnemar_does_not_depend_on_questions_that_did_not_change() -> None:
    few = compare(*pair(9, 2, 5, 5))
    many = compare(*pair(9, 2, 500, 500))
    assert few.p_value == many.p_value


def test_paired_interval_has_the_width_of_the_paired_standard_error() -> None:
    base, checkpoint = pair(gained=40, lost=20, both=60, neither=80)
    comparison = compare(base, checkpoint)
    strata: dict[str, list[float]] = {"a": [], "b": []}
    for before, after in zip(base, checkpoint, strict=True):
        strata[before.source].append(float(after.em) - float(before.em))
    variance = sum(np.var(d, ddof=1) / len(d) for d in strata.values()) / 4
    value, low, high = comparison.em
    assert value == pytest.approx(0.1)
    assert high - low == pytest.approx(2 * 1.96 * math.sqrt(variance), rel=0.05)


def test_pairing_is_narrower_than_comparing_two_independent_rates() -> None:
    base, checkpoint = pair(gained=6, lost=0, both=32, neither=32)
    _, low, high = compare(base, checkpoint).em
    separate = summarise(base).macro[Metric.EM]
    assert high - low < (separate.high - separate.low) * 0.8


def test_no_change_still_has_an_interval() -> None:
    comparison = compare(*pair(0, 0, 35, 35))
    assert comparison.p_value == 1.0
    assert comparison.em.low == pytest.approx(-wilson(0, 70).high)
    assert comparison.em.high == pytest.approx(wilson(0, 70).high)


def test_comparison_leaves_out_questions_that_are_invalid_on_either_side() -> None:
    base, checkpoint = pair(3, 0, 3, 4)
    checkpoint[0] = item("q000", "a", em=False, stop_reason=StopReason.ENVIRONMENT_ERROR)
    comparison = compare(base, checkpoint)
    assert (comparison.questions, comparison.left_out) == (9, 1)
    assert comparison.gained == ("q001", "q002")


def test_comparison_refuses_other_questions_and_names_one() -> None:
    base, checkpoint = pair(1, 1, 1, 1)
    with pytest.raises(DifferentQuestions, match=r"4 questions and the checkpoint on 3.*q003"):
        compare(base, checkpoint[:-1])


def test_comparison_refuses_unequal_numbers_of_samples() -> None:
    base, checkpoint = pair(1, 1, 1, 1)
    extra = item("q000", "a", sample=1)
    with pytest.raises(DifferentQuestions, match="--samples"):
        compare(base, [*checkpoint, extra])


def test_verdict_claims_a_difference_only_when_chance_is_unlikely() -> None:
    assert "within what chance" in verdict(compare(*pair(5, 1, 30, 34)))
    assert verdict(compare(*pair(20, 2, 20, 28))).startswith("EM is higher")
    assert verdict(compare(*pair(2, 20, 20, 28))).startswith("EM is lower")


def test_the_seeds_own_result_is_within_chance() -> None:
    """44.29% to 50.00% on 70 questions is four questions: with 7 gained and 3 lost nobody knows."""
    comparison = compare(*pair(gained=7, lost=3, both=28, neither=32))
    assert 100 * comparison.em.value == pytest.approx(5.7, abs=0.1)
    assert comparison.em.low < 0 < comparison.em.high
    assert "within what chance" in verdict(comparison)


# ---- sentences and environments


def test_seventy_questions_show_about_twelve_points() -> None:
    assert "±12 points" in resolution(70)
    assert "cannot rank checkpoints" in resolution(70)


def test_six_one_sided_changes_are_the_fewest_that_count() -> None:
    assert compare(*pair(6, 0, 30, 34)).p_value < 0.05
    assert compare(*pair(5, 0, 30, 35)).p_value > 0.05
    assert "fewer than 6 gained" in resolution(70)


def test_large_sets_are_said_to_be_fine_but_for_seeds() -> None:
    assert "training seeds" in resolution(5000)
    assert "cannot rank" not in resolution(5000)


def test_environments_compare_by_content_and_not_by_order() -> None:
    first = {"search": {"backend": "local", "top_k": 3}, "rules": {"max_search_calls": 4}}
    same = {"rules": {"max_search_calls": 4}, "search": {"top_k": 3, "backend": "local"}}
    assert comparable(first, same)
    require_comparable(first, same)
    other = {"search": {"backend": "wikipedia", "top_k": 3}, "rules": {"max_search_calls": 4}}
    assert not comparable(first, other)
    with pytest.raises(EnvironmentsDiffer, match=r"search: .*local.*wikipedia.*--force-mixed"):
        require_comparable(first, other)


# ---- the seed's file


def test_items_carry_what_the_trajectory_says() -> None:
    chance = random.Random(4)
    trajectories = [
        make_trajectory(question, 0, Skill.at(0.5), chance, search_errors=0.2)
        for question in make_questions(30)
    ]
    for trajectory, made in zip(trajectories, items_from(trajectories), strict=True):
        assert made.question_id == trajectory.question.question_id
        assert made.em == trajectory.em
        assert made.searches == len(trajectory.searches) == made.search_ok + made.search_failed
        assert made.tokens == len(trajectory.tokens)
        assert made.no_search == (not trajectory.searches)
        assert made.valid == trajectory.valid


def test_the_seeds_jsonl_has_its_fields_and_ends_with_its_summary() -> None:
    chance = random.Random(0)
    questions = make_questions(14)
    trajectories = [make_trajectory(q, 0, Skill.at(1), chance, search_errors=0) for q in questions]
    lines = [
        json.loads(line)
        for line in jsonl_lines(
            trajectories,
            base_model="tiny",
            model_path=None,
            search_backend="local",
            search={"search/latency": 0.5},
            extra={"search_timeout": 15.0},
        )
    ]
    *rows, summary = lines
    assert [row["id"] for row in rows] == [q.question_id for q in questions]
    assert {
        *("type", "id", "question", "answers", "data_source", "final_text", "reward"),
        *("exact_match", "valid_format", "search_calls", "assistant_turns"),
    } <= rows[0].keys()
    assert summary["type"] == "summary"
    assert summary["evaluated_examples"] == 14
    assert summary["search_timeout"] == 15.0
    metrics = summary["metrics"]
    by_source: dict[str, list[bool]] = {}
    for row in rows:
        by_source.setdefault(row["data_source"], []).append(row["exact_match"])
    means = {source: sum(values) / len(values) for source, values in by_source.items()}
    assert metrics["em/macro"] == pytest.approx(sum(means.values()) / len(means))
    for source, mean in means.items():
        assert metrics[f"em/{source}"] == pytest.approx(mean)
    assert metrics["format/rate"] == pytest.approx(sum(r["valid_format"] for r in rows) / 14)
    assert metrics["rollout/search_calls"] == pytest.approx(
        sum(r["search_calls"] for r in rows) / 14
    )
    assert metrics["search/latency"] == 0.5
    assert {"rollout/no_search_rate", "rollout/turns"} <= metrics.keys()


def test_metrics_that_are_unknown_are_left_out_of_the_file() -> None:
    trajectory = make_trajectory(make_questions(1)[0], 0, Skill.at(1), random.Random(0))
    failed = with_stop(trajectory, StopReason.ENVIRONMENT_ERROR)
    summary = summarise(items_from([failed]))
    metrics = evaluation_metrics(summary)
    assert "em/macro" not in metrics
    assert metrics["rollout/invalid_rate"] == 1.0
    # Strict JSON: no NaN reaches the file.
    for line in jsonl_lines([failed], base_model="m", model_path=None, search_backend="local"):
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} in the file"))
