"""Raw rows to questions: folded text, typed columns, and every rejected row with its reason.

Which of several equal rows is kept depends on their content only, never on the order of the rows.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from searchr1.data.questions import SCHEMA
from searchr1.data.raw import read_raw
from searchr1.data.sql import connect


class RejectReason(StrEnum):
    """Why a raw row is left out."""

    UNREADABLE = "unreadable"
    """The line is not a JSON object."""
    BLANK_QUESTION = "blank_question"
    """There is no question, or none with a letter or digit in it."""
    NO_ANSWER = "no_answer"
    """No field holds an answer."""
    DUPLICATE = "duplicate"
    """The same question with the same answers is in this split and source already."""
    REPEATED_ID = "repeated_id"
    """Another question of this split and source has this id already."""


class RawFile(NamedTuple):
    """A raw file and what to make of its rows."""

    path: Path
    split: str
    """"train" or "test"."""
    default_source: str
    """Source of the rows that name none."""


class Cleaned(NamedTuple):
    """The questions in the raw files, and what was left out."""

    questions: pa.Table
    """By `searchr1.data.questions.SCHEMA`, sorted by split and question id."""
    rejected: pa.Table
    """Columns file, row (0-based), split, source, id, question, reason; one row a rejected row."""
    rows_read: dict[str, dict[str, int]]
    """Raw rows by split and source, rejected ones included."""


def clean(files: Sequence[RawFile]) -> Cleaned:
    """Read and clean all raw files. Raises DataError when one cannot be read."""
    connection = connect()
    connection.execute(_TIDY_TABLE)
    for file in files:
        raw = read_raw(file.path)
        connection.register("raw", raw)
        connection.execute(
            _TIDY, {"file": str(file.path), "split": file.split, "source": file.default_source}
        )
        connection.unregister("raw")
    connection.execute(_JUDGED)
    questions = connection.sql(
        """select question_id, question, answers, source, split from judged
        where reason is null order by split, question_id"""
    )
    rejected = connection.sql(
        """select file, row, split, source, id, question, reason from judged
        where reason is not null order by file, row"""
    )
    counts = connection.sql(
        "select split, source, count(*) from judged group by all order by all"
    ).fetchall()
    rows_read: dict[str, dict[str, int]] = {}
    for split, source, count in counts:
        rows_read.setdefault(split, {})[source] = count
    return Cleaned(questions.to_arrow_table().cast(SCHEMA), rejected.to_arrow_table(), rows_read)


_TIDY_TABLE = """
create temp table tidy (
    file varchar, split varchar, row bigint, readable boolean, source varchar,
    id varchar, question varchar, key varchar, answers varchar[]
)
"""

_TIDY = """
insert into tidy
select $file, $split, row, readable,
    coalesce(nullif(fold(source), ''), $source),
    coalesce(nullif(fold(id), ''), left(sha256(concat(fold(question), answers::varchar)), 16)),
    fold(question), question_key(question), answers
from raw
"""

_JUDGED = """
create temp table judged as
with complete as (
    select *, concat(source, ':', id) as question_id,
        case when not readable then 'unreadable'
            when coalesce(key, '') = '' then 'blank_question'
            when answers is null then 'no_answer'
        end as defect
    from tidy
),
distinct_questions as (
    select *, coalesce(defect, case when row_number() over (
        partition by split, source, key, list_sort(answers), defect
        order by id, question, answers, file, row
    ) > 1 then 'duplicate' end) as flaw
    from complete
)
select *, coalesce(flaw, case when row_number() over (
    partition by split, question_id, flaw order by question, answers, file, row
) > 1 then 'repeated_id' end) as reason
from distinct_questions
"""
