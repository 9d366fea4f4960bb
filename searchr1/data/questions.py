"""Prepared questions, read back.

Every read is checked against the manifest, so two programs that load the same set of the same
manifest see the same questions in the same order (by question id).
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from searchr1.data.manifest import read_manifest, verified_file
from searchr1.errors import DataError
from searchr1.trajectory import Question

SCHEMA = pa.schema(
    [
        ("question_id", pa.string()),
        ("question", pa.string()),
        ("answers", pa.list_(pa.string())),
        ("source", pa.string()),
        ("split", pa.string()),
    ]
)
"""Of every prepared Parquet file; sorted by question id."""

QUESTION_SETS = {
    "train": "train.parquet",
    "test": "test.parquet",
    "dev70": "dev70.parquet",
    "dev500": "dev500.parquet",
    "full": "test.parquet",
}
"""Name of a question set -> its file."""

CORPUS = "corpus.jsonl"
"""Documents for the local search back end, where the source brings its own."""


def load_questions(data_dir: Path, name: str) -> list[Question]:
    """The questions of set `name` (a key of `QUESTION_SETS`) by question id.

    Raises DataError when the set is unknown, not prepared, or changed since it was prepared.
    """
    if name not in QUESTION_SETS:
        known = ", ".join(QUESTION_SETS)
        raise DataError(f"There is no question set {name!r}. Choose one of {known}.")
    path = verified_file(data_dir, read_manifest(data_dir), QUESTION_SETS[name])
    table = pq.read_table(path, schema=SCHEMA)
    columns = (table[field].to_pylist() for field in Question.__dataclass_fields__)
    return [
        Question(question_id, question, tuple(answers), source)
        for question_id, question, answers, source in zip(*columns, strict=True)
    ]


def questions_checksum(data_dir: Path, name: str) -> str:
    """SHA-256 (hex) of the file of set `name`: equal checksums mean the same questions.

    Raises DataError when the folder is not prepared.
    """
    return read_manifest(data_dir).files[QUESTION_SETS[name]].sha256


def corpus_path(data_dir: Path) -> Path:
    """The documents that came with the questions: JSONL with document_id, title and text.

    Raises DataError when the source has none, or the file changed since it was prepared.
    """
    return verified_file(data_dir, read_manifest(data_dir), CORPUS)
