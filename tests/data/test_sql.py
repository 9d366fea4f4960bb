"""The text functions in SQL do what their Python twins do."""

import sys

import pytest

from searchr1.data.answers import clean_answers, fold, may_be_written_value
from searchr1.data.sql import connect

SPACES = [chr(code) for code in range(sys.maxunicode) if chr(code).isspace()]
TEXTS = [
    *("", "a", "a b", " a", "a ", "a  b", "  ", "a \t b", "O'Brien", "é\u0301", "\x00a"),
    *(text for space in SPACES for text in (f"a{space}b", f"{space}a", f"a{space}", space)),
    *(
        f"{before}{text}"
        for before in ("", " ", "\u3000\t")
        for text in ("[x]", "{x", "array(x", "x[")
    ),
]


def apply(function: str, texts: list[str]) -> list:
    connection = connect()
    query = f"select [{function}(t) for t in $texts]"
    return connection.execute(query, {"texts": texts}).fetchall()[0][0]


def test_fold_is_pythons() -> None:
    assert apply("fold", TEXTS) == [fold(text) for text in TEXTS]


def test_what_is_not_irregular_is_an_answer_as_it_stands() -> None:
    regular = [clean_answers(text) == [text] and not may_be_written_value(text) for text in TEXTS]
    assert apply("irregular", TEXTS) == [not value for value in regular]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Who wrote it?", "who wrote it"),
        ("The film's year", "the film s year"),
        ("a - b", "a b"),
        ("(a), [b]!", "a b"),
        ("É", "E\u0301"),
    ],
)
def test_question_keys_ignore_case_and_punctuation(one: str, other: str) -> None:
    assert apply("question_key", [one]) == apply("question_key", [other])


def test_question_keys_keep_letters_marks_and_digits_of_all_scripts() -> None:
    assert apply("question_key", ["谁写了它?", "कौन 7", "?!"]) == ["谁写了它", "कौन 7", ""]
