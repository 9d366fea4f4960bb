"""`clean_answers`: every shape in which data sets of this family hold answers."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchr1.data import clean_answers

TWO = ["Oslo", "City of Oslo"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (TWO, TWO),
        (tuple(TWO), TWO),
        (np.array(TWO), TWO),
        (np.array(TWO, dtype=object), TWO),
        (np.array([["Oslo"], ["Bergen"]]), ["Oslo", "Bergen"]),
        ({"City of Oslo", "Oslo"}, ["City of Oslo", "Oslo"]),
        ("Oslo", ["Oslo"]),
        (np.str_("Oslo"), ["Oslo"]),
        (b"Oslo", ["Oslo"]),
        (1994, ["1994"]),
        (1994.0, ["1994"]),
        (2.5, ["2.5"]),
        (np.int64(7), ["7"]),
    ],
)
def test_lists_arrays_and_single_values_are_answers(value: object, expected: list[str]) -> None:
    assert clean_answers(value) == expected


@pytest.mark.parametrize(
    "text",
    [
        "['Oslo', 'City of Oslo']",
        '["Oslo", "City of Oslo"]',
        "[\"Oslo\", 'City of Oslo']",
        "['Oslo' 'City of Oslo']",
        "['Oslo'\n 'City of Oslo']",
        "array(['Oslo', 'City of Oslo'], dtype=object)",
        "array(['Oslo', 'City of Oslo'], dtype='<U12')",
        "[null, 'Oslo', None, nan, 'City of Oslo']",
        '[["Oslo"], ["City of Oslo"]]',
        "{'target': ['Oslo', 'City of Oslo']}",
        '{"ground_truth": {"target": ["Oslo", "City of Oslo"]}}',
        "  ['Oslo', 'City of Oslo']\n",
    ],
)
def test_a_list_written_as_text_is_read(text: str) -> None:
    assert clean_answers(text) == TWO
    assert clean_answers([text]) == TWO


@pytest.mark.parametrize(
    "text",
    ["[REC]", "(500) Days of Summer", "[sic", "{curly", "[a] b", "array of stars", "O'Brien", "3]"],
)
def test_text_that_only_looks_like_a_list_stays_an_answer(text: str) -> None:
    assert clean_answers(text) == [text]


def test_numbers_written_in_a_list_are_read_with_their_sign() -> None:
    assert clean_answers("[1994, -3 2.0]") == ["1994", "-3", "2"]


@pytest.mark.parametrize(
    "value",
    [
        *(None, math.nan, math.inf, np.nan, True, "", "  \n", "[]", "[None]"),
        *([], [None, ""], {}, {"style": "rule"}, {"target": None}, np.array([]), object()),
    ],
)
def test_missing_values_are_no_answers(value: object) -> None:
    assert clean_answers(value) == []


def test_missing_values_inside_a_list_do_not_become_words() -> None:
    assert clean_answers([None, math.nan, "", "  Lund ", True]) == ["Lund"]


def test_the_words_none_and_nan_stay_answers_when_someone_wrote_them() -> None:
    assert clean_answers(["None", "nan"]) == ["None", "nan"]


@pytest.mark.parametrize(
    "value",
    [
        {"target": np.array(TWO)},
        {"ground_truth": {"target": TWO}},
        {"ground_truth": TWO, "style": "rule"},
        {"value": "Oslo", "aliases": ["City of Oslo", "Oslo"]},
        [{"text": "Oslo"}, {"text": "City of Oslo"}],
    ],
)
def test_answers_are_found_inside_dicts(value: object) -> None:
    assert clean_answers(value) == TWO


def test_answers_are_folded_and_listed_once_in_their_order() -> None:
    assert clean_answers([" b\u00a0 c ", "a", "b c", "a\t"]) == ["b c", "a"]


def test_lone_surrogates_are_left_out_because_no_file_can_hold_them() -> None:
    assert clean_answers('["Os\\ud800lo"]') == ["Oslo"]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON_VALUES | st.binary() | st.text(alphabet="[]{}()'\",\\ abu0d8-"))
def test_any_value_gives_clean_answers_that_are_stable(value: object) -> None:
    answers = clean_answers(value)
    assert all(answer == " ".join(answer.split()) != "" for answer in answers)
    assert len(set(answers)) == len(answers)
    "".join(answers).encode()


@given(st.lists(st.text()))
def test_a_list_and_its_json_and_python_text_give_the_same(values: list[str]) -> None:
    expected = clean_answers(values)
    assert clean_answers(json.dumps(values)) == expected
    assert clean_answers(repr(values)) == expected
