"""What is checked before prepared questions are written, and the figures that go with them."""

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from searchr1.data.clean import Cleaned
from searchr1.data.settings import DataSettings, DataSource
from searchr1.data.split import Splits
from searchr1.data.sql import connect, register
from searchr1.errors import DataError

PUBLISHED_ROWS = {
    "train": {"nq": 79_168, "hotpotqa": 90_447},
    "test": {
        "nq": 3_610,
        "triviaqa": 11_313,
        "popqa": 14_267,
        "hotpotqa": 7_405,
        "2wikimultihopqa": 12_576,
        "musique": 2_417,
        "bamboogle": 125,
    },
}
"""Rows of the published set by split and source."""


class Findings(NamedTuple):
    """What verification found out; these are fields of the manifest."""

    rejected: dict[str, int]
    warnings: tuple[str, ...]
    answers_per_question: dict[str, float]
    question_characters: dict[str, float]


def verify(settings: DataSettings, cleaned: Cleaned, splits: Splits) -> Findings:
    """Check clean and split questions. Raises DataError when too many rows were rejected, or a
    set is empty or holds an id twice."""
    rejected = _check_rejected(settings, cleaned)
    _check_sets(splits.sets)
    return Findings(
        rejected,
        tuple(count_warnings(settings.source, cleaned.rows_read)),
        _distribution(cleaned.questions, "len(answers)"),
        _distribution(cleaned.questions, "length(question)"),
    )


def _check_rejected(settings: DataSettings, cleaned: Cleaned) -> dict[str, int]:
    """Rejected rows by reason, most frequent first."""
    reasons = cleaned.rejected["reason"].value_counts().to_pylist()
    rejected = {item["values"]: item["counts"] for item in reasons}
    rejected = dict(sorted(rejected.items(), key=lambda item: (-item[1], item[0])))
    total = sum(sum(sources.values()) for sources in cleaned.rows_read.values())
    share = len(cleaned.rejected) / max(total, 1)
    limit = settings.max_rejected_share
    if share > limit:
        listed = ", ".join(f"{count:,} {reason}" for reason, count in rejected.items())
        raise DataError(
            f"{len(cleaned.rejected):,} of {total:,} raw rows ({share:.2%}) had to be rejected, "
            f"more than the {limit:.2%} allowed: {listed}. Every one is listed in "
            f"{settings.data_dir}. Repair the files, or allow more with --max-rejected-share."
        )
    return rejected


def _check_sets(sets: Mapping[str, pa.Table]) -> None:
    """Raise DataError unless train and test hold questions, each question id once."""
    for name in ("train", "test"):
        ids = sets[name]["question_id"]
        if not len(ids):
            raise DataError(f"There are no {name} questions left. Check the raw files.")
        if len(ids.unique()) != len(ids):
            raise DataError(f"Question ids repeat among the {name} questions.")


def count_warnings(source: DataSource, rows_read: Mapping[str, Mapping[str, int]]) -> list[str]:
    """For the published set and its mirror: one line for each count that is not the published
    one. Other sources have no published counts."""
    if source not in (DataSource.HUB, DataSource.MODELSCOPE):
        return []
    warnings = []
    for split, published in PUBLISHED_ROWS.items():
        read = rows_read.get(split, {})
        for name in sorted({*published, *read}):
            if read.get(name, 0) != published.get(name, 0):
                warnings.append(
                    f"{split} has {read.get(name, 0):,} rows of {name}, published are "
                    f"{published.get(name, 0):,}"
                )
    return warnings


def rows_by_source(table: pa.Table) -> dict[str, int]:
    """Questions by source, sources in alphabetical order."""
    counts = {item["values"]: item["counts"] for item in table["source"].value_counts().to_pylist()}
    return dict(sorted(counts.items()))


def _distribution(questions: pa.Table, expression: str) -> dict[str, float]:
    """min, median, mean and max of a SQL `expression` over `questions`, rounded to 2 places."""
    connection = connect()
    register(connection, "questions", questions)
    row = connection.execute(
        f"""select min(x), median(x), round(avg(x), 2), max(x)
        from (select {expression} as x from questions)"""
    ).fetchall()[0]
    return dict(zip(("min", "median", "mean", "max"), map(float, row), strict=True))
