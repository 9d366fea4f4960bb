"""What a run will take: expectations stay within the limits, and meet what was published."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from searchr1.budget import Cost, Prices, Usage, usage
from searchr1.config import EvalSettings, TrainSettings, resolve
from searchr1.estimate import (
    DEEPSEEK_SEARCH_USD,
    Figure,
    duration,
    evaluation,
    first_step_cost,
    kept_checkpoints,
    search_price,
    text,
    training,
)
from searchr1.search.deepseek import DeepSeekProvider
from searchr1.search.settings import SearchSettings
from searchr1.trajectory import Group, TurnRecord
from tests.trajectories import QUESTION, search, trajectory


class Priced(TrainSettings, Prices):
    """Settings of a training that knows the service's prices."""


PRICES = {"price_train_tokens": 3.0, "price_sample_tokens": 2.0, "price_prompt_tokens": 1.0}
FIGURES = ("searches", "prompt_tokens", "sampled_tokens", "train_tokens", "seconds", "cost")


def deepseek(model=TrainSettings, **given):
    return resolve(model, {"profile": "deepseek", **given})


settings = st.builds(
    lambda **given: resolve(Priced, {"profile": "deepseek", **PRICES, **given}),
    base_model=st.sampled_from(["tiny-search-world", "Qwen/Qwen3.5-4B"]),
    search_backend=st.sampled_from(["local", "deepseek", "wikipedia", "zhihu"]),
    max_steps=st.integers(1, 300),
    questions_per_batch=st.integers(1, 64),
    group_size=st.integers(2, 32),
    max_search_calls=st.integers(0, 8),
    max_assistant_turns=st.integers(1, 10),
    max_trajectory_tokens=st.integers(16, 32_768),
    max_assistant_tokens=st.integers(1, 4096),
    max_tool_response_tokens=st.integers(16, 4096),
)


@given(settings, st.integers(1, 500), st.integers(1, 10))
def test_expectations_are_ordered_and_within_the_limits(chosen, questions, policies):
    for forecast in (training(chosen), evaluation(chosen, questions, policies)):
        for name in FIGURES:
            low, high, most = getattr(forecast, name)
            assert 0 <= low <= high <= most, name


@examples(max_examples=50)
@given(settings, st.data())
def test_no_trajectory_within_the_limits_passes_the_bounds(chosen, data):
    """Trajectories are grown by the rules of `searchr1.rollout`, as long as they let them."""

    def draw(most: int) -> int:
        return data.draw(st.integers(1, most) | st.just(most))

    start = draw(chosen.max_trajectory_tokens - 1)
    grown = []
    for index in range(chosen.group_size if chosen.group_size < 4 else 4):
        turns, searches, length = [], 0, start
        while True:
            room = chosen.max_trajectory_tokens - length
            if room <= 0:
                break
            end = length + draw(min(chosen.max_assistant_tokens, room))
            turns.append(TurnRecord(length, end, "", "call", 0.0))
            length = end
            if searches >= chosen.max_search_calls or len(turns) >= chosen.max_assistant_turns:
                break
            room = chosen.max_trajectory_tokens - length
            if room <= 0:
                break
            length += draw(min(chosen.max_tool_response_tokens, room))
            searches += 1
        grown.append(
            replace(trajectory(index), turns=tuple(turns), searches=(search(),) * searches)
        )
    chosen = chosen.model_copy(
        update={"group_size": len(grown), "questions_per_batch": 1, "max_steps": 1}
    )
    most = training(chosen)
    used = usage([Group(QUESTION, tuple(grown))])
    assert used.prompt_tokens <= most.prompt_tokens.most
    assert used.sampled_tokens <= most.sampled_tokens.most
    assert sum(len(t.searches) for t in grown) <= most.searches.most


def test_the_bill_of_the_published_run_is_expected():
    """14 yuan of search in 20 steps, at 5 yuan (USD 0.75) a thousand."""
    published = 14 / 5 * 0.75
    low, high, most = training(deepseek(max_steps=20)).cost
    assert low < published < high < most


def test_every_trajectory_may_be_trained_on_up_to_its_last_token():
    low, high, most = training(deepseek(max_steps=20)).train_tokens
    assert 0 < low < high < most == 20 * 64 * 8191


def test_the_price_of_a_search_is_what_the_provider_charges(monkeypatch):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "key")
    assert DeepSeekProvider(SearchSettings()).price == DEEPSEEK_SEARCH_USD
    assert search_price(deepseek()) == DEEPSEEK_SEARCH_USD
    assert search_price(deepseek(search_cost=0.5)) == 0.5
    assert search_price(deepseek(search_cost=0.0)) == 0.0
    assert search_price(deepseek(search_cache="replay")) == 0.0
    assert search_price(deepseek(search_backend="local")) == 0.0


def test_prices_make_the_money():
    free, priced = training(deepseek()), training(deepseek(Priced, **PRICES))
    for i in range(3):
        tokens = priced.prompt_tokens[i] + 2 * priced.sampled_tokens[i] + 3 * priced.train_tokens[i]
        assert priced.cost[i] - free.cost[i] == pytest.approx(tokens / 1e6, rel=1e-4)


def test_the_first_step_is_judged_by_the_high_end():
    chosen = deepseek(Priced, max_steps=10, **PRICES)
    assert first_step_cost(chosen) == pytest.approx(training(chosen).cost.high / 10)


def test_a_run_under_way_is_judged_by_its_last_steps():
    chosen = deepseek(Priced, max_steps=20, **PRICES)
    step = {
        "search/searches": 100.0,
        "train/tokens_per_rollout_batch": 50_000.0,
        "time/step_seconds": 60.0,
        **Usage(0.075, 200_000, 10_000, 0).metrics(),
        **Cost(0.075, 0.0, 0.0).metrics(),
    }
    odd, dear = {**step, "search/searches": 9e9}, {**step, "search/searches": 140.0}
    forecast = training(chosen, [odd, step, step, dear, step, step])
    assert forecast.searches == Figure(14 * 100, 14 * 140, training(chosen).searches.most * 14 / 20)
    assert forecast.seconds.low == forecast.seconds.high == 14 * 60
    assert forecast.cost.low == pytest.approx(14 * (0.075 + 0.2 + 0.02 + 0.15))
    assert "Measured" in forecast.basis
    assert "14 of 20 steps" in forecast.title


def test_nothing_is_left_of_a_finished_run():
    forecast = training(deepseek(max_steps=2), [{}, {}, {}])
    assert forecast.trajectories == 0
    assert all(getattr(forecast, name) == Figure(0.0, 0.0, 0.0) for name in FIGURES)


def test_a_slow_search_service_decides_the_time():
    forecast = training(deepseek(search_backend="zhihu"))
    assert forecast.seconds.low >= forecast.searches.low  # 60 requests a minute
    assert training(deepseek()).seconds.low < forecast.seconds.low


def test_an_evaluation_trains_nothing_and_asks_every_policy_every_question():
    forecast = evaluation(resolve(EvalSettings, {"profile": "deepseek"}), 70, policies=5)
    assert (forecast.questions, forecast.trajectories) == (350, 350)
    assert forecast.train_tokens == Figure(0.0, 0.0, 0.0)
    assert forecast.searches.most == 350 * 4


def test_fewer_questions_at_once_take_longer():
    few, many = (
        evaluation(resolve(EvalSettings, {"profile": "deepseek", "batch_size": size}), 64, 1)
        for size in (4, 64)
    )
    assert few.seconds.low > 8 * many.seconds.low


@given(st.integers(1, 200), st.integers(1, 50))
def test_checkpoints_are_counted_as_training_keeps_them(max_steps, save_every):
    kept = [n for n in range(1, max_steps + 1) if n % save_every == 0 or n == max_steps]
    chosen = resolve(TrainSettings, {"max_steps": max_steps, "save_every": save_every})
    assert kept_checkpoints(chosen) == len(kept)


def test_the_text_fits_a_terminal_and_says_what_is_not_in_it():
    chosen = deepseek()
    shown = text([training(chosen), evaluation(chosen, 70, 5)], chosen)
    assert max(map(len, shown.splitlines())) <= 80
    assert "160 questions, 1,280 trajectories" in shown
    assert "USD 1.44 to USD 2.88" in shown
    assert "no price of the policy service is set" in shown.replace("\n", " ")
    assert shown.count("Assumed") == 1


def test_prices_that_are_known_are_not_asked_for():
    chosen = deepseek(Priced, **PRICES)
    assert "--price" not in text([training(chosen)], chosen)
    local = resolve(TrainSettings, {})
    assert "price" not in text([training(local)], local)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0 s"), (119, "119 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_a_length_of_time_is_readable(seconds, shown):
    assert duration(seconds) == shown
