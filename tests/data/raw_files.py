"""Small raw files for the tests of this folder."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

BENCHMARKS = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")


def row(number: int, source: str = "nq", split: str = "train", **changes: object) -> dict:
    """A sound raw row in the published shape; ids repeat across sources, as the published do."""
    return {
        "id": f"{split}_{number}",
        "question": f"What is number {number} of {source} in {split}?",
        "golden_answers": [f"answer {number}"],
        "data_source": source,
    } | changes


def rows(count: int, source: str = "nq", split: str = "train") -> list[dict]:
    """`count` sound raw rows."""
    return [row(number, source, split) for number in range(count)]


def evaluation_rows(each: int = 12) -> list[dict]:
    """`each` evaluation rows of every benchmark."""
    return [found for source in BENCHMARKS for found in rows(each, source, "test")]


def write_jsonl(path: Path, values: Sequence[dict]) -> Path:
    """One JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def write_parquet(path: Path, values: Sequence[dict]) -> Path:
    """Columns of the types that pyarrow infers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(values)), path)
    return path
