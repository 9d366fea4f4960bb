"""Batches: a pure function of questions, seed and step."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchr1.data import BatchSchedule
from searchr1.errors import SettingsError
from searchr1.trajectory import Question


def questions(count: int, source: str = "nq") -> list[Question]:
    return [Question(f"{source}:{n}", f"q {n}?", (str(n),), source) for n in range(count)]


def ids(batch: list[Question]) -> list[str]:
    return [question.question_id for question in batch]


def test_a_step_is_known_without_the_steps_before_it() -> None:
    whole = BatchSchedule(questions(50), 42, 8)
    expected = [whole.batch(step) for step in range(1, 40)]
    for step in (39, 1, 17):
        assert BatchSchedule(questions(50), 42, 8).batch(step) == expected[step - 1]


def test_the_order_of_the_questions_does_not_matter() -> None:
    shuffled = random.Random(0).sample(questions(50), 50)
    one, other = BatchSchedule(questions(50), 42, 8), BatchSchedule(shuffled, 42, 8)
    assert [one.batch(s) for s in range(1, 20)] == [other.batch(s) for s in range(1, 20)]


def test_the_batches_of_a_seed_stay_what_they_are() -> None:
    """Resuming a run after an upgrade must find the same questions."""
    schedule = BatchSchedule(questions(12), 42, 3)
    assert ids(schedule.batch(1)) == ["nq:9", "nq:0", "nq:8"]
    assert ids(schedule.batch(5)) == ["nq:4", "nq:1", "nq:0"]


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    schedule = BatchSchedule(questions(40), 1, 8)
    epochs = [[i for s in range(5) for i in ids(schedule.batch(5 * e + s + 1))] for e in range(3)]
    assert all(sorted(epoch) == sorted(epochs[0]) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert ids(BatchSchedule(questions(40), 2, 8).batch(1)) != epochs[0][:8]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(6, 40), min_size=1, max_size=4),
    st.integers(1, 6),
    st.integers(0, 10),
    st.booleans(),
    st.data(),
)
def test_no_question_twice_in_a_batch_or_in_an_epoch(
    sizes: list[int], batch_size: int, seed: int, weighted: bool, data: st.DataObject
) -> None:
    every = [q for n, size in enumerate(sizes) for q in questions(size, f"s{n}")]
    weight = st.floats(0.01, 10)
    weights = {f"s{n}": data.draw(weight) for n in range(len(sizes))} if weighted else None
    schedule = BatchSchedule(every, seed, batch_size, weights)
    drawn: dict[tuple[str, int], list[str]] = {}
    for step in range(1, 60):
        batch = schedule.batch(step)
        assert len(batch) == len(set(batch)) == batch_size
        cursor = schedule.cursor(step)
        assert cursor.question_ids == tuple(ids(batch))
        for question in batch:
            pool = question.source if weighted else "all"
            drawn.setdefault((pool, cursor.epochs[pool]), []).append(question.question_id)
    assert all(len(epoch) == len(set(epoch)) for epoch in drawn.values())


def test_without_weights_an_epoch_uses_every_question_that_fills_a_batch() -> None:
    schedule = BatchSchedule(questions(26), 0, 8)
    seen = [i for step in (1, 2, 3) for i in ids(schedule.batch(step))]
    assert len(set(seen)) == 24
    assert [schedule.cursor(step).epochs["all"] for step in (1, 3, 4, 6, 7)] == [0, 0, 1, 1, 2]


def test_weights_hold_exactly_over_many_batches_and_nearly_in_each() -> None:
    every = questions(500, "nq") + questions(500, "hotpotqa") + questions(500, "left_out")
    schedule = BatchSchedule(every, 3, 8, {"nq": 0.3, "hotpotqa": 0.7})
    per_batch = [Counter(q.source for q in schedule.batch(s)) for s in range(1, 1001)]
    assert {counts["nq"] for counts in per_batch} == {2, 3}
    assert sum(counts["nq"] for counts in per_batch) == pytest.approx(2400, abs=2)
    assert not any(counts["left_out"] for counts in per_batch)


def test_a_small_source_goes_through_more_epochs_than_a_large_one() -> None:
    every = questions(8, "small") + questions(400, "large")
    schedule = BatchSchedule(every, 3, 8, {"small": 1, "large": 1})
    assert schedule.cursor(21).epochs == {"large": 0, "small": 10}


def test_too_few_questions_for_a_batch_are_refused_with_the_flag_to_change() -> None:
    with pytest.raises(SettingsError, match="--questions-per-batch"):
        BatchSchedule(questions(7), 0, 8)
    with pytest.raises(SettingsError, match="source: nq"):
        BatchSchedule(questions(3) + questions(50, "b"), 0, 8, {"nq": 1, "b": 1})


def test_a_weight_for_a_source_that_is_not_there_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"'hotpot'.*There are: nq\."):
        BatchSchedule(questions(50), 0, 8, {"hotpot": 1})
