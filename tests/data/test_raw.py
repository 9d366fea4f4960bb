"""Raw Parquet and JSONL of every known shape, read as columns."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from searchr1.data import clean_answers
from searchr1.data.raw import read_raw
from searchr1.errors import DataError
from tests.data.raw_files import row, write_jsonl, write_parquet


def parquet_answers(path: Path, values: list, kind: pa.DataType | None = None) -> list:
    """What `read_raw` makes of a column golden_answers with these values."""
    questions = [f"q {number}" for number in range(len(values))]
    answers = pa.array(values, kind)
    pq.write_table(pa.table({"question": questions, "golden_answers": answers}), path)
    return read_raw(path)["answers"].to_pylist()


def jsonl_answers(path: Path, values: list) -> list:
    write_jsonl(path, [{"question": "q", "golden_answers": value} for value in values])
    return read_raw(path)["answers"].to_pylist()


TEXTS = st.text() | st.sampled_from(
    [
        "['a', 'b']",
        '["a"]',
        "[]",
        "[x",
        "{'target': ['a']}",
        " a\u00a0b ",
        "a",
        "\u2003",
        "\x1c",
        "",
    ]
)
ODD = st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | TEXTS
COLUMNS = {
    "list of texts": (st.lists(TEXTS | st.none()) | st.none(), pa.list_(pa.string())),
    "large list": (st.lists(TEXTS), pa.large_list(pa.large_string())),
    "text": (TEXTS | st.none(), pa.string()),
    "list of numbers": (st.lists(st.floats() | st.none()), pa.list_(pa.float64())),
    "number": (st.integers(-5, 5) | st.none(), pa.int64()),
    "struct": (
        st.fixed_dictionaries({"target": st.lists(TEXTS)}) | st.none(),
        pa.struct([("target", pa.list_(pa.string()))]),
    ),
    "nothing": (st.none(), pa.null()),
}

relaxed = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def expected(values: list) -> list:
    return [clean_answers(value) or None for value in values]


@relaxed
@given(data=st.data())
@pytest.mark.parametrize("column", COLUMNS)
def test_a_parquet_column_gives_what_clean_answers_gives(
    tmp_path: Path, column: str, data: st.DataObject
) -> None:
    values, kind = COLUMNS[column]
    chosen = data.draw(st.lists(values, min_size=1, max_size=60))
    assert parquet_answers(tmp_path / "a.parquet", chosen, kind) == expected(chosen)


@relaxed
@given(
    st.lists(
        st.recursive(ODD, lambda inner: st.lists(inner, max_size=3)),
        min_size=1,
        max_size=60,
    )
)
def test_jsonl_values_of_mixed_shapes_give_what_clean_answers_gives(
    tmp_path: Path, values: list
) -> None:
    assert jsonl_answers(tmp_path / "a.jsonl", values) == expected(values)


def test_answers_are_taken_from_the_reward_model_where_the_golden_ones_are_missing(
    tmp_path: Path,
) -> None:
    truth = {"style": "rule", "ground_truth": {"target": ["from target"]}}
    values = [
        row(0, reward_model=truth),
        row(1, reward_model=truth, golden_answers=None),
        row(2, reward_model=truth, golden_answers=["", None]),
        row(3, reward_model=None, golden_answers=[]),
    ]
    expected = [["answer 0"], ["from target"], ["from target"], None]
    for path in (
        write_parquet(tmp_path / "a.parquet", values),
        write_jsonl(tmp_path / "a.jsonl", values),
    ):
        assert read_raw(path)["answers"].to_pylist() == expected


def test_a_ground_truth_without_target_is_read(tmp_path: Path) -> None:
    values = [{"question": "q", "reward_model": {"ground_truth": ["Oslo"], "style": "rule"}}]
    assert read_raw(write_parquet(tmp_path / "a.parquet", values))["answers"].to_pylist() == [
        ["Oslo"]
    ]
    assert read_raw(write_jsonl(tmp_path / "a.jsonl", values))["answers"].to_pylist() == [["Oslo"]]


def test_the_seeds_own_jsonl_is_read(tmp_path: Path) -> None:
    line = {"id": "7", "question": "Who?", "answers": ["Ada"], "data_source": "nq"}
    assert read_raw(write_jsonl(tmp_path / "a.jsonl", [line])).to_pylist() == [
        {
            "row": 0,
            "readable": True,
            "id": "7",
            "question": "Who?",
            "source": "nq",
            "answers": ["Ada"],
        }
    ]


def test_flashrag_jsonl_is_read_with_its_metadata_left_alone(tmp_path: Path) -> None:
    line = {
        "id": "dev_0",
        "question": "Who?",
        "golden_answers": ["Ada"],
        "metadata": {"question": "another", "supporting_facts": {"title": ["x"], "sent_id": [0]}},
    }
    found = read_raw(write_jsonl(tmp_path / "a.jsonl", [line])).to_pylist()[0]
    assert (found["id"], found["question"], found["answers"]) == ("dev_0", "Who?", ["Ada"])
    assert found["source"] is None


def test_integer_ids_become_text(tmp_path: Path) -> None:
    values = [row(0, id=5), row(1, id=6)]
    assert read_raw(write_parquet(tmp_path / "a.parquet", values))["id"].to_pylist() == ["5", "6"]
    assert read_raw(write_jsonl(tmp_path / "a.jsonl", values))["id"].to_pylist() == ["5", "6"]


def test_lines_that_are_no_json_objects_are_marked_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    good = json.dumps(row(0))
    path.write_text(f'{good}\nnot json\n["a list"]\n{good[:30]}\n{good}\n', encoding="utf-8")
    table = read_raw(path)
    assert table["readable"].to_pylist() == [True, False, False, False, True]
    assert table["row"].to_pylist() == [0, 1, 2, 3, 4]


def test_a_question_that_is_no_text_is_missing(tmp_path: Path) -> None:
    values = [row(0), row(1, question=5), row(2, question=["q"]), row(3, question=None)]
    questions = read_raw(write_jsonl(tmp_path / "a.jsonl", values))["question"].to_pylist()
    assert questions == [values[0]["question"], None, None, None]


def test_rows_keep_the_files_order_over_many_row_groups(tmp_path: Path) -> None:
    table = pa.table({"id": [f"{n}" for n in range(5000)], "question": ["q"] * 5000})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    assert read_raw(tmp_path / "a.parquet")["id"].to_pylist() == table["id"].to_pylist()


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    assert len(read_raw(write_jsonl(tmp_path / "a.jsonl", []))) == 0


def test_a_damaged_parquet_file_is_refused_by_name(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", [row(0)])
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"a\.parquet cannot be read"):
        read_raw(path)


def test_a_file_without_questions_is_refused_with_its_columns(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", [{"title": "t", "body": "b"}])
    with pytest.raises(DataError, match=r"holds no questions.*title, body"):
        read_raw(path)
    with pytest.raises(DataError, match="holds no questions"):
        read_raw(write_jsonl(tmp_path / "a.jsonl", [{"title": "t"}]))
