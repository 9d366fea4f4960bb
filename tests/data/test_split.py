"""Question sets: fixed by content, even over the sources."""

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchr1.data.clean import CLEAN_SCHEMA
from searchr1.data.split import EVALUATION_SIZES, even_quotas, split_questions
from searchr1.data.verify import PUBLISHED_ROWS, rows_by_source
from tests.data.raw_files import BENCHMARKS


def question(number: int, source: str, split: str, text: str | None = None) -> dict:
    text = text or f"What is number {number} of {source} in {split}?"
    return {
        "question_id": f"{source}:{number}",
        "question": text,
        "answers": [str(number)],
        "source": source,
        "split": split,
        "key": text.lower().strip(" ?"),
    }


def table(questions: list[dict]) -> pa.Table:
    return pa.Table.from_pylist(questions, CLEAN_SCHEMA)


def benchmark_questions(each: int) -> list[dict]:
    test = [question(n, source, "test") for source in BENCHMARKS for n in range(each)]
    return [question(n, "nq", "train") for n in range(30)] + test


def ids(questions: pa.Table) -> list[str]:
    return questions["question_id"].to_pylist()


def test_dev70_holds_ten_of_each_benchmark() -> None:
    sets = split_questions(table(benchmark_questions(100)), drop_overlap=False).sets
    assert rows_by_source(sets["dev70"]) == dict.fromkeys(sorted(BENCHMARKS), 10)
    assert len(sets["dev500"]) == 500
    assert set(ids(sets["dev70"])) < set(ids(sets["dev500"])) < set(ids(sets["test"]))


def test_sets_keep_the_order_and_train_holds_no_test_question() -> None:
    questions = table(benchmark_questions(12))
    sets = split_questions(questions, drop_overlap=False).sets
    assert ids(sets["train"]) + ids(sets["test"]) == ids(questions)
    for name in ("dev70", "dev500"):
        assert ids(sets[name]) == [i for i in ids(sets["test"]) if i in set(ids(sets[name]))]
    assert set(sets["train"]["split"].to_pylist()) == {"train"}
    assert set(sets["test"]["split"].to_pylist()) == {"test"}


def test_membership_does_not_depend_on_row_order() -> None:
    questions = benchmark_questions(40)
    expected = split_questions(table(questions), drop_overlap=False)
    shuffled = random.Random(1).sample(questions, len(questions))
    found = split_questions(table(shuffled), drop_overlap=False)
    for name, members in expected.sets.items():
        assert set(ids(found.sets[name])) == set(ids(members))


def test_membership_depends_on_the_questions_text_and_not_on_its_id() -> None:
    questions = benchmark_questions(40)
    renamed = [q | {"question_id": f"{q['source']}:other{q['answers'][0]}"} for q in questions]
    before = split_questions(table(questions), drop_overlap=False).sets["dev70"]
    after = split_questions(table(renamed), drop_overlap=False).sets["dev70"]
    assert sorted(before["question"].to_pylist()) == sorted(after["question"].to_pylist())


def test_one_question_more_moves_at_most_one_member_of_its_source() -> None:
    questions = benchmark_questions(40)
    before = set(ids(split_questions(table(questions), False).sets["dev70"]))
    more = [*questions, question(99, "nq", "test")]
    after = set(ids(split_questions(table(more), False).sets["dev70"]))
    assert len(before - after) <= 1


def test_overlap_is_counted_by_normalised_text_and_removed_on_request() -> None:
    shared = question(1000, "hotpotqa", "train", "what is number 3 of NQ in test?")
    shared["key"] = "what is number 3 of nq in test"
    questions = table([*benchmark_questions(12), shared])
    kept = split_questions(questions, drop_overlap=False)
    dropped = split_questions(questions, drop_overlap=True)
    assert (kept.overlap, dropped.overlap) == (1, 1)
    assert set(ids(kept.sets["train"])) - set(ids(dropped.sets["train"])) == {"hotpotqa:1000"}
    assert kept.sets["test"] == dropped.sets["test"]


def test_quotas_of_the_published_sizes() -> None:
    test = PUBLISHED_ROWS["test"]
    assert set(even_quotas(test, 70).values()) == {10}
    quotas = even_quotas(test, 500)
    assert sum(quotas.values()) == 500
    assert set(quotas.values()) == {71, 72}


COUNTS = st.dictionaries(st.text(max_size=3), st.integers(0, 50), max_size=8)


@given(COUNTS, st.integers(0, 300))
def test_quotas_are_as_even_as_the_counts_allow(counts: dict[str, int], total: int) -> None:
    quotas = even_quotas(counts, total)
    assert sum(quotas.values()) == min(total, sum(counts.values()))
    assert all(quotas[source] <= counts[source] for source in counts)
    largest = max(quotas.values(), default=0)
    assert all(q >= largest - 1 or q == counts[source] for source, q in quotas.items())


@given(COUNTS, st.integers(0, 300))
def test_a_larger_set_takes_at_least_as_many_of_every_source(
    counts: dict[str, int], total: int
) -> None:
    small, large = even_quotas(counts, total), even_quotas(counts, total + 1)
    assert all(small[source] <= large[source] for source in counts)


@pytest.mark.parametrize("name", EVALUATION_SIZES)
def test_a_set_is_everything_there_is_when_that_is_less(name: str) -> None:
    sets = split_questions(table(benchmark_questions(2)), drop_overlap=False).sets
    assert sets[name] == sets["test"]
