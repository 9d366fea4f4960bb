"""The question sets: train, test, and the fixed evaluation sets drawn from test.

Membership of an evaluation set is decided by a hash of source and question, so it does not
depend on the order of the rows, and dev70 is a part of dev500.
"""

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from searchr1.data.questions import SCHEMA
from searchr1.data.sql import connect, register

EVALUATION_SEED = 42
EVALUATION_SIZES = {"dev70": 70, "dev500": 500}


class Splits(NamedTuple):
    """Question sets by name, and the questions that train shares with test."""

    sets: dict[str, pa.Table]
    """train, test, dev70, dev500; each by SCHEMA."""
    overlap: int
    """Training questions that are evaluation questions too, compared by `question_key`."""


def split_questions(questions: pa.Table, drop_overlap: bool) -> Splits:
    """Split clean `questions` (by `searchr1.data.clean.CLEAN_SCHEMA`) into the question sets,
    which keep their order; with `drop_overlap`, without the training questions that are
    evaluation questions too."""
    numbered = questions.append_column("row", pa.array(range(len(questions)), pa.int32()))
    connection = connect()
    register(connection, "questions", numbered)
    connection.execute(
        """
        create temp table train as
        select row, key in (select key from questions where split = 'test') as shared
        from questions where split = 'train';
        create temp table test as
        select row, source, row_number() over (
            partition by source
            order by sha256(concat_ws(chr(10), $seed, source, question)), question_id
        ) as rank
        from questions where split = 'test'
        """,
        {"seed": str(EVALUATION_SEED)},
    )

    def taken(rows: str) -> pa.Table:
        chosen = connection.sql(f"select row from {rows} order by row").to_arrow_table()
        return questions.select(SCHEMA.names).take(chosen["row"])

    shared = connection.sql("select count(*) from train where shared").fetchall()[0][0]
    counts = dict(connection.sql("select source, count(*) from test group by all").fetchall())
    sets = {
        "train": taken("train where not shared" if drop_overlap else "train"),
        "test": taken("test"),
    }
    for name, size in EVALUATION_SIZES.items():
        quotas = even_quotas(counts, size)
        quota = pa.table({"source": list(quotas), "quota": list(quotas.values())}, _QUOTAS)
        register(connection, "quotas", quota)
        sets[name] = taken("test join quotas using (source) where rank <= quota")
    return Splits(sets, shared)


_QUOTAS = pa.schema([("source", pa.string()), ("quota", pa.int64())])


def even_quotas(counts: Mapping[str, int], total: int) -> dict[str, int]:
    """How many of each source, so that they are as even as the `counts` allow and add up to
    `total`, or to everything there is when that is less."""
    quotas = dict.fromkeys(sorted(counts), 0)
    left = min(total, sum(counts.values()))
    while left:
        open_sources = [source for source, quota in quotas.items() if quota < counts[source]]
        for source in open_sources[:left]:
            room = counts[source] - quotas[source]
            quotas[source] += min(room, max(1, left // len(open_sources)))
        left = min(total, sum(counts.values())) - sum(quotas.values())
    return quotas
