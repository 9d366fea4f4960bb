"""What a preparation came to, as rows of one table for a person."""

from typing import Any

from searchr1.data.manifest import Manifest
from searchr1.data.settings import DataSource
from searchr1.data.verify import PUBLISHED_ROWS

_PUBLISHED_SOURCES = (DataSource.HUB, DataSource.MODELSCOPE)


def summary_rows(manifest: Manifest) -> list[dict[str, Any]]:
    """Rows with the columns about, of, value and, for counts of the published set, published:
    raw rows and questions by source, rejections by reason, overlap, answers per question, and
    question length in characters."""
    published = PUBLISHED_ROWS if manifest.source in _PUBLISHED_SOURCES else {}
    rows = [
        _row(f"raw rows, {split}", source, count, published.get(split, {}).get(source))
        for split, sources in manifest.rows_read.items()
        for source, count in sources.items()
    ]
    rows += [
        _row(f"questions, {name}", source, count)
        for name, sources in manifest.rows.items()
        for source, count in sources.items()
    ]
    rows += [_row("rejected", reason, count) for reason, count in manifest.rejected.items()]
    done = "removed from train" if manifest.overlap_dropped else "kept in train"
    rows.append(_row("also evaluation questions", done, manifest.overlap))
    for about, figures in (
        ("answers per question", manifest.answers_per_question),
        ("question length, characters", manifest.question_characters),
    ):
        rows += [_row(about, figure, value) for figure, value in figures.items()]
    return rows


def _row(about: str, of: str, value: float, published: int | None = None) -> dict[str, Any]:
    return {"about": about, "of": of, "value": value, "published": published}
