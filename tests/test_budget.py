"""Costs come from trajectories and the ledger alone, and a limit holds across restarts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchr1.budget import (
    Cost,
    Prices,
    Spent,
    Usage,
    check_max_cost,
    dollars,
    next_step_cost,
    price,
    spent,
    step_cost,
    usage,
    why_stopped,
    would_pass,
)
from searchr1.errors import SettingsError
from searchr1.trajectory import Group, StopReason, TurnRecord
from tests.trajectories import QUESTION, search, trajectory

PRICES = Prices(price_train_tokens=3.0, price_sample_tokens=2.0, price_prompt_tokens=1.0)


def turns(*spans: tuple[int, int]) -> tuple[TurnRecord, ...]:
    return tuple(TurnRecord(start, end, "", "call", 0.0) for start, end in spans)


def taking(*spans: tuple[int, int], **changes):
    return replace(trajectory(), turns=turns(*spans), **changes)


def test_the_shared_first_prompt_is_billed_once_and_each_later_prompt_in_full():
    group = Group(QUESTION, (taking((10, 15), (40, 47)), taking((10, 13))))
    assert usage([group], 100) == Usage(0.0, 10 + 40, 5 + 7 + 3, 100)


def test_trajectories_that_failed_are_billed_as_well():
    paid = replace(search(), cost=0.25)
    failed = taking((10, 15), stop_reason=StopReason.ENVIRONMENT_ERROR, searches=(paid, paid))
    assert usage([Group(QUESTION, (failed,))]) == Usage(0.5, 10, 5, 0)


def test_a_group_whose_first_request_failed_is_free():
    failed = taking(stop_reason=StopReason.SAMPLING_ERROR)
    assert usage([Group(QUESTION, (failed, failed))]) == Usage(0.0, 0, 0, 0)


def test_prices_are_dollars_a_million_tokens():
    used = Usage(0.5, 1_000_000, 2_000_000, 4_000_000)
    assert price(used, PRICES) == Cost(search=0.5, sampling=1.0 + 4.0, training=12.0)
    assert price(used, PRICES).total == 17.5
    assert price(used, Prices()).total == 0.5


def test_a_step_costs_what_its_trajectories_took():
    group = Group(QUESTION, (taking((10, 15), (40, 47)),))
    assert step_cost([group], 46, PRICES).total == pytest.approx((50 + 2 * 12 + 3 * 46) / 1e6)


def test_what_a_step_records_is_what_is_read_back():
    costs = [Cost(0.5, 0.25, 1.0), Cost(0.125, 0.0, 0.0)]
    so_far = spent(cost.metrics() for cost in costs)
    assert so_far == Spent(Cost(0.625, 0.25, 1.0), (1.75, 0.125))
    assert so_far.total == 1.875


def test_a_ledger_without_costs_counts_as_free():
    assert spent([{}, {"reward/mean": 0.5}]) == Spent(Cost(0.0, 0.0, 0.0), (0.0, 0.0))
    assert spent([]).total == 0.0


def steps(*costs: float) -> Spent:
    return spent(Cost(0.0, 0.0, cost).metrics() for cost in costs)


def test_the_next_step_is_expected_to_cost_like_the_costliest_recent_one():
    assert next_step_cost(steps(), prior=0.7) == 0.7
    assert next_step_cost(steps(9.0, 1.0, 3.0, 2.0, 1.0, 1.0), prior=0.7) == 3.0


def test_a_step_that_just_fits_is_taken_in_spite_of_rounding():
    assert 0.1 + 0.1 + 0.1 > 0.3
    assert not would_pass(steps(0.1, 0.1), max_cost=0.3, prior=0.0)
    assert would_pass(steps(0.1, 0.1), max_cost=0.29, prior=0.0)
    assert would_pass(steps(), max_cost=0.5, prior=0.6)
    assert not would_pass(steps(1e6), max_cost=None, prior=0.0)


@given(
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=40),
    st.floats(0.0, 20.0),
)
def test_steps_that_cost_no_more_than_expected_never_pass_the_limit(costs, max_cost):
    prior = max(costs)
    done: list[dict[str, float]] = []
    for cost in costs:
        if would_pass(spent(done), max_cost, prior):
            break
        expected = next_step_cost(spent(done), prior)
        done.append(Cost(0.0, 0.0, min(cost, expected)).metrics())
    assert spent(done).total <= max_cost + 1e-6


def test_the_person_is_told_what_it_cost_and_how_to_go_on():
    text = why_stopped(steps(1.0, 2.0), 4.0, 0.0)
    assert "USD 3.00" in text and "USD 2.00" in text and "USD 4.00" in text
    assert "--max-cost" in text and "costliest" in text
    assert "by the estimate" in why_stopped(steps(), 1.0, 2.0)


def test_a_limit_without_prices_is_refused_because_it_would_be_blind():
    with pytest.raises(SettingsError, match="--price-train-tokens"):
        check_max_cost(Prices(), 5.0)
    check_max_cost(PRICES, 5.0)
    check_max_cost(Prices(), None)


@pytest.mark.parametrize("wrong", [-1.0, float("inf"), float("nan")])
def test_a_price_is_a_finite_amount(wrong):
    with pytest.raises(ValueError, match="price_train_tokens"):
        Prices(price_train_tokens=wrong)


def test_every_price_says_what_it_is_for():
    assert all(field.description for field in Prices.model_fields.values())


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0.0, "USD 0.00"),
        (1234.5, "USD 1,234.50"),
        (0.00075, "USD 0.00075"),
        (0.00001, "USD <0.0001"),
    ],
)
def test_small_amounts_stay_readable(amount, text):
    assert dollars(amount) == text
