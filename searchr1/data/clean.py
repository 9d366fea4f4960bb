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
from searchr1.data.sql import connect, register


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
    """By `CLEAN_SCHEMA`, sorted by split and question id."""
    rejected: pa.Table
    """Columns file, row (0-based), split, source, id, question, reason; one row a rejected row."""
    rows_read: dict[str, dict[str, int]]
    """Raw rows by split and source, rejected ones included."""


CLEAN_SCHEMA = SCHEMA.append(pa.field("key", pa.string()))
"""A prepared question and its `question_key` (see `searchr1.data.sql`)."""


def clean(files: Sequence[RawFile]) -> Cleaned:
    """Read and clean all raw files. Raises DataError when one cannot be read."""
    connection = connect()
    connection.execute(_TIDY_TABLE)
    for number, file in enumerate(files):
        raw = read_raw(file.path)
        register(connection, "raw", raw)
        connection.execute(
            _TIDY, {"file": number, "split": file.split, "source": file.default_source}
        )
        connection.unregister("raw")
    for statement in (_DEFECTS, _DUPLICATES, _REPEATED_IDS):
        connection.execute(statement)
    columns = ", ".join(CLEAN_SCHEMA.names)
    questions = connection.sql(
        f"""select {columns} from tidy anti join rejected using (file, row)
        order by split, question_id"""
    )
    names = pa.table({"file": range(len(files)), "name": [str(file.path) for file in files]})
    register(connection, "names", names)
    rejected = connection.sql(
        """select name as file, row, split, source, id, question, reason
        from rejected join tidy using (file, row) join names using (file) order by file, row"""
    )
    rows_read: dict[str, dict[str, int]] = {}
    for split, source, count in connection.sql(
        "select split, source, count(*) from tidy group by all order by all"
    ).fetchall():
        rows_read.setdefault(split, {})[source] = count
    return Cleaned(
        questions.to_arrow_table().cast(CLEAN_SCHEMA), rejected.to_arrow_table(), rows_read
    )


_TIDY_TABLE = """
create temp table tidy (
    file int, split varchar, row bigint, readable boolean, source varchar, id varchar,
    question varchar, answers varchar[], key varchar, question_id varchar,
    same_question ubigint, same_id ubigint
);
create temp table rejected (file int, row bigint, reason varchar)
"""

# The two hashes find the few rows that need a closer look; they decide nothing.
_TIDY = """
insert into tidy
select *, hash(split, source, key), hash(split, question_id)
from (
    select *, question_key(question), concat(source, ':', id) as question_id
    from (
        select $file, $split as split, row, readable,
            coalesce(nullif(trim(source), ''), $source) as source,
            coalesce(nullif(trim(id), ''), left(sha256(question || answers::varchar), 16))
                as id,
            fold(question) as question, answers
        from raw
    )
) as folded(file, split, row, readable, source, id, question, answers, key, question_id)
"""

_DEFECTS = """
insert into rejected
select file, row, case
    when not readable then 'unreadable'
    when coalesce(key, '') = '' then 'blank_question'
    when answers is null then 'no_answer'
end as reason
from tidy where reason is not null
"""

_DUPLICATES = """
insert into rejected
with sound as (from tidy anti join rejected using (file, row))
select file, row, 'duplicate'
from sound
where same_question in (
    select same_question from sound group by same_question having count(*) > 1
)
qualify row_number() over (
    partition by split, source, key, list_sort(answers) order by id, question, answers, file, row
) > 1
"""

_REPEATED_IDS = """
insert into rejected
with sound as (from tidy anti join rejected using (file, row))
select file, row, 'repeated_id'
from sound
where same_id in (select same_id from sound group by same_id having count(*) > 1)
qualify row_number() over (
    partition by split, question_id order by question, answers, file, row
) > 1
"""
