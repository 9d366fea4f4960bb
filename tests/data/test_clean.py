"""Cleaning: every defect has its reason, and the order of the rows does not matter."""

import random
from pathlib import Path

import pytest

from searchr1.data.clean import Cleaned, RawFile, RejectReason, clean
from tests.data.raw_files import row, rows, write_jsonl, write_parquet


def cleaned(tmp_path: Path, values: list[dict], split: str = "train") -> Cleaned:
    path = write_jsonl(tmp_path / f"{split}.jsonl", values)
    return clean([RawFile(path, split, "folder")])


def reasons(found: Cleaned) -> list[tuple[int, str]]:
    return [(item["row"], item["reason"]) for item in found.rejected.to_pylist()]


def test_a_sound_row_becomes_a_typed_question(tmp_path: Path) -> None:
    raw = row(7, question="  Who\u00a0wrote   it? ", golden_answers=[" Ada ", "Ada"])
    assert cleaned(tmp_path, [raw]).questions.to_pylist() == [
        {
            "question_id": "nq:train_7",
            "question": "Who wrote it?",
            "answers": ["Ada"],
            "source": "nq",
            "split": "train",
            "key": "who wrote it",
        }
    ]


@pytest.mark.parametrize("question", [None, "", "  \t ", "?", "... !", 5])
def test_blank_questions_are_rejected(tmp_path: Path, question: object) -> None:
    found = cleaned(tmp_path, [row(0), row(1, question=question)])
    assert reasons(found) == [(1, RejectReason.BLANK_QUESTION)]


@pytest.mark.parametrize("answers", [None, [], [""], float("nan"), [None, " "], {"style": "rule"}])
def test_questions_without_answer_are_rejected(tmp_path: Path, answers: object) -> None:
    found = cleaned(tmp_path, [row(0), row(1, golden_answers=answers)])
    assert reasons(found) == [(1, RejectReason.NO_ANSWER)]


def test_unreadable_lines_are_rejected_with_their_place(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "train.jsonl", rows(2))
    path.write_text(path.read_text() + '{"id": "torn', encoding="utf-8")
    found = clean([RawFile(path, "train", "folder")])
    assert found.rejected.to_pylist() == [
        {
            "file": str(path),
            "row": 2,
            "split": "train",
            "source": "folder",
            "id": None,
            "question": None,
            "reason": "unreadable",
        }
    ]


def test_the_same_question_with_the_same_answers_is_kept_once(tmp_path: Path) -> None:
    first = row(0, question="Who wrote it?", golden_answers=["Ada", "Bo"])
    again = row(1, question="who wrote  IT", golden_answers=["Bo", "Ada"])
    found = cleaned(tmp_path, [again, first])
    assert found.questions["question_id"].to_pylist() == ["nq:train_0"]
    assert reasons(found) == [(0, RejectReason.DUPLICATE)]


def test_the_same_question_with_other_answers_is_another_question(tmp_path: Path) -> None:
    values = [row(0, question="Who?", golden_answers=["Ada"]), row(1, question="Who?")]
    assert len(cleaned(tmp_path, values).questions) == 2


def test_the_same_question_in_another_source_or_split_is_no_duplicate(tmp_path: Path) -> None:
    same = [row(n, question="Who?", golden_answers=["Ada"]) for n in range(2)]
    values = [value | {"data_source": source} for value in same for source in ("a", "b")]
    paths = [write_jsonl(tmp_path / f"{split}.jsonl", values) for split in ("train", "test")]
    found = clean([RawFile(path, path.stem, "x") for path in paths])
    assert found.questions["question_id"].to_pylist() == ["a:train_0", "b:train_0"] * 2
    assert found.rejected["reason"].to_pylist() == [RejectReason.DUPLICATE] * 4


def test_ids_may_repeat_across_sources_but_not_within_one(tmp_path: Path) -> None:
    values = [row(0, source="nq"), row(0, source="hotpotqa"), row(0, question="Another one?")]
    found = cleaned(tmp_path, values)
    assert found.questions["question_id"].to_pylist() == ["hotpotqa:train_0", "nq:train_0"]
    assert [reason for _, reason in reasons(found)] == [RejectReason.REPEATED_ID]


def test_an_id_may_be_in_train_and_in_test(tmp_path: Path) -> None:
    paths = [
        write_jsonl(tmp_path / "train.jsonl", [row(0, question="One?")]),
        write_jsonl(tmp_path / "test.jsonl", [row(0, question="Another?")]),
    ]
    assert not len(clean([RawFile(path, path.stem, "x") for path in paths]).rejected)


def test_a_row_is_rejected_for_one_reason_only(tmp_path: Path) -> None:
    values = [row(0, question="", golden_answers=[]), row(0, question="", golden_answers=[])]
    assert reasons(cleaned(tmp_path, values)) == [
        (0, RejectReason.BLANK_QUESTION),
        (1, RejectReason.BLANK_QUESTION),
    ]


def test_rows_without_id_get_one_from_their_content(tmp_path: Path) -> None:
    values = [row(n) for n in range(3)]
    for value in values:
        del value["id"]
    ids = cleaned(tmp_path, values).questions["question_id"].to_pylist()
    assert len(set(ids)) == 3
    assert cleaned(tmp_path, values[::-1]).questions["question_id"].to_pylist() == ids


def test_rows_without_source_get_the_files(tmp_path: Path) -> None:
    value = row(0, data_source=" ")
    assert cleaned(tmp_path, [value]).questions["source"].to_pylist() == ["folder"]


def test_rows_are_counted_by_split_and_source_before_any_is_rejected(tmp_path: Path) -> None:
    values = rows(3) + rows(2, "hotpotqa") + [row(9, question="")]
    assert cleaned(tmp_path, values).rows_read == {"train": {"hotpotqa": 2, "nq": 4}}


def test_shuffled_rows_give_the_same_questions(tmp_path: Path) -> None:
    values = rows(50) + rows(50, "hotpotqa")
    values += [row(n, id=f"train_{n}_again") for n in range(5)]  # duplicates
    values += [row(n, question=f"Another {n}?") for n in range(5)]  # repeated ids
    values += [row(90, question=""), row(91, golden_answers=[])]
    expected = cleaned(tmp_path, values)
    assert len(expected.rejected) == 12
    for seed in range(3):
        shuffled = random.Random(seed).sample(values, len(values))
        found = cleaned(tmp_path, shuffled)
        assert found.questions == expected.questions
        assert sorted(found.rejected["reason"].to_pylist()) == sorted(
            expected.rejected["reason"].to_pylist()
        )


def test_parquet_and_jsonl_of_the_same_rows_give_the_same(tmp_path: Path) -> None:
    values = [*rows(20), row(30, golden_answers=["['x', 'y']", ""])]
    jsonl = clean([RawFile(write_jsonl(tmp_path / "a.jsonl", values), "train", "x")])
    parquet = clean([RawFile(write_parquet(tmp_path / "a.parquet", values), "train", "x")])
    assert jsonl.questions == parquet.questions
    assert ["x", "y"] in jsonl.questions["answers"].to_pylist()
