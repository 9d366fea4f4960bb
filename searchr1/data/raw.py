"""Raw files as columns: Parquet or JSONL of any known shape in, one typed table out."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from searchr1.data.answer_columns import ROW_ANSWERS, AnswerColumn, clean_answer_column
from searchr1.data.sql import connect
from searchr1.errors import DataError

RAW_SCHEMA = pa.schema(
    [
        ("row", pa.int64()),
        ("readable", pa.bool_()),
        ("id", pa.string()),
        ("question", pa.string()),
        ("source", pa.string()),
        ("answers", pa.list_(pa.string())),
    ]
)
"""One row a raw row, numbered from 0 in the file's order. `readable` is False for a line that is
no JSON object. What a row lacks is null; `answers` are clean and null rather than empty."""

QUESTION_FIELDS = ("question", "query")
SOURCE_FIELDS = ("data_source", "source")
ID_FIELDS = ("id", "question_id")
ANSWER_FIELDS = (
    "golden_answers",
    "answers",
    "answer",
    "reward_model.ground_truth.target",
    "reward_model.ground_truth",
)
"""Where a field is looked for, in this order; the first that holds something counts. A dot leads
into a struct or object."""

_PLAIN_FIELDS = ["row", "readable", "id", "question", "source"]


def read_raw(path: Path) -> pa.Table:
    """The rows of a Parquet or JSONL file, by `RAW_SCHEMA`. Raises DataError when the file cannot
    be read or has no field for questions."""
    read = _read_parquet if path.suffix == ".parquet" else _read_jsonl
    try:
        fields, columns = read(path)
        return _with_answers(fields, columns)
    except (pa.ArrowException, duckdb.Error, OSError) as error:
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}). It must be a Parquet file, or JSONL "
            "with one object a line."
        ) from error


def _read_parquet(path: Path) -> tuple[pa.Table, Iterator[AnswerColumn]]:
    file = pq.ParquetFile(path)
    rows = pa.chunked_array([np.arange(file.metadata.num_rows, dtype=np.int64)])
    if not set(QUESTION_FIELDS) & set(file.schema_arrow.names):
        raise _no_questions(path, file.schema_arrow.names)

    def text(names: Sequence[str]) -> pa.ChunkedArray:
        for name in names:
            column = _parquet_column(file, name)
            if column is not None and not pa.types.is_nested(column.type):
                return column.cast(pa.string())
        return pa.chunked_array([pa.nulls(len(rows), pa.string())])

    readable = pa.repeat(True, len(rows))
    plain = [rows, readable, text(ID_FIELDS), text(QUESTION_FIELDS), text(SOURCE_FIELDS)]
    columns = (_parquet_column(file, name) for name in ANSWER_FIELDS)
    found = (AnswerColumn(rows, column, False) for column in columns if column is not None)
    return pa.table(plain, names=_PLAIN_FIELDS), found


def _parquet_column(file: pq.ParquetFile, name: str) -> pa.ChunkedArray | None:
    """The column at the dotted path `name`, and nothing else, off the disk; None if not there."""
    top, *inner = name.split(".")
    schema = file.schema_arrow
    kind = schema.field(top).type if top in schema.names else None
    for part in inner:
        if kind is None or not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            return None
        kind = kind.field(part).type
    if kind is None:
        return None
    column = file.read(columns=[name]).column(0)
    for _ in inner:  # only the wanted field of each struct was read
        column = column.flatten()[0]
    return column


def _read_jsonl(path: Path) -> tuple[pa.Table, Iterator[AnswerColumn]]:
    def text(names: Sequence[str], kinds: str) -> str:
        found = (
            f"case when json_type(json, '$.{name}') in ({kinds}) then json ->> '$.{name}' end"
            for name in names
        )
        return f"coalesce({', '.join(found)})"

    answers = (f"""(json -> '$.{name}')::varchar as "{name}" """ for name in ANSWER_FIELDS)
    table = (
        connect()
        .sql(
            f"""
        select row_number() over () - 1 as row,
            coalesce(json_type(json) = 'OBJECT', false) as readable,
            {text(ID_FIELDS, "'VARCHAR', 'UBIGINT', 'BIGINT'")} as id,
            {text(QUESTION_FIELDS, "'VARCHAR'")} as question,
            {text(SOURCE_FIELDS, "'VARCHAR'")} as source,
            {", ".join(answers)}
        from read_json_objects(
            $path, format = 'newline_delimited', ignore_errors = true,
            maximum_object_size = 33554432
        )
        """,
            params={"path": str(path)},
        )
        .to_arrow_table()
    )
    if table["question"].null_count == table.num_rows > 0:
        raise _no_questions(path, [])
    found = (AnswerColumn(table["row"], table[name], True) for name in ANSWER_FIELDS)
    return table.select(_PLAIN_FIELDS), found


def _no_questions(path: Path, names: list[str]) -> DataError:
    there = f" Its columns are {', '.join(names)}." if names else ""
    return DataError(
        f"{path} holds no questions: there is no field {' or '.join(QUESTION_FIELDS)}.{there} "
        "Expected are id, question, answers (or golden_answers) and data_source."
    )


def _with_answers(fields: pa.Table, columns: Iterator[AnswerColumn]) -> pa.Table:
    """`fields` with each row's answers, from the first column that holds any for it."""
    found = [ROW_ANSWERS.empty_table()]
    missing = np.ones(len(fields), dtype=bool)
    for rows, values, is_json in columns:
        if not missing.all():
            rows, values = rows.filter(pa.array(missing)), values.filter(pa.array(missing))
        found.append(clean_answer_column(AnswerColumn(rows, values, is_json)))
        missing[found[-1]["row"].to_numpy()] = False
        if not missing.any():
            break
    answers = pa.concat_tables(found)
    places = np.full(len(fields), -1)
    places[answers["row"].to_numpy()] = np.arange(len(answers))
    taken = answers["answers"].take(pa.array(places, mask=places < 0))
    return fields.append_column("answers", taken).cast(RAW_SCHEMA)
