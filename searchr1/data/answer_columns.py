"""`clean_answers` for whole columns.

DuckDB finds the values that are in order as they stand, nearly all in practice; the others go
through `clean_answers` itself. The result is `clean_answers`'s either way.
"""

import json
from typing import NamedTuple

import pyarrow as pa

from searchr1.data.answers import clean_answers
from searchr1.data.sql import connect, register

ROW_ANSWERS = pa.schema([("row", pa.int64()), ("answers", pa.list_(pa.string()))])


class AnswerColumn(NamedTuple):
    """Values of any type in which answers are looked for."""

    rows: pa.ChunkedArray
    """Row numbers, aligned with `values`."""
    values: pa.ChunkedArray
    is_json: bool
    """Whether `values` are JSON as text rather than the values themselves."""


def clean_answer_column(column: AnswerColumn) -> pa.Table:
    """The answers by row (`ROW_ANSWERS`, in no order), of the rows that have any."""
    raw = pa.table({"row": column.rows, "value": column.values})
    connection = connect()
    register(connection, "raw", raw)
    connection.execute(
        f"""
        create temp table judged as
        select *, coalesce(
            len(list_filter(texts, lambda t: t is null or irregular(t))) = 0
            and len(list_distinct(texts)) = len(texts), false) as in_order
        from (select row, value, {_texts(column)} as texts from raw where value is not null)
        """
    )
    in_order = connection.sql(
        "select row, texts as answers from judged where in_order and len(texts) > 0"
    ).to_arrow_table()
    odd = connection.sql("select row, value from judged where not in_order").to_arrow_table()
    found: dict[int, list[str]] = {}
    for item in odd.to_pylist():
        value = json.loads(item["value"]) if column.is_json else item["value"]
        if answers := clean_answers(value):
            found[item["row"]] = answers
    cleaned = pa.table({"row": list(found), "answers": list(found.values())}, ROW_ANSWERS)
    return pa.concat_tables([in_order.cast(ROW_ANSWERS), cleaned])


def _texts(column: AnswerColumn) -> str:
    """SQL for a value as a list of texts; null where it is neither text nor a list of texts."""
    if column.is_json:
        return """
            case json_type(value)
                when 'VARCHAR' then [value ->> '$']
                when 'ARRAY' then case
                    when list_distinct(json_type(value, '$[*]')) = ['VARCHAR']
                    then from_json(value, '["VARCHAR"]') end
            end"""
    kind = column.values.type
    if _is_text(kind):
        return "[value::varchar]"
    if _is_list(kind) and _is_text(kind.value_type):
        return "value::varchar[]"
    return "null::varchar[]"


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
