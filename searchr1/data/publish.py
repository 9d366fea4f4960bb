"""Prepared questions onto the disk: each file whole or absent, the manifest last."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from searchr1.data.clean import Cleaned
from searchr1.data.manifest import FileRecord, Manifest, write_manifest
from searchr1.data.questions import CORPUS, QUESTION_SETS
from searchr1.data.settings import DataSettings, preparation_digest
from searchr1.data.sources import Progress, RawData
from searchr1.data.split import Splits
from searchr1.data.sql import connect, register
from searchr1.data.verify import Findings, rows_by_source
from searchr1.files import replacing, sha256_file

REJECTED = "rejected.jsonl"
"""Every raw row that was left out: file, row (0-based), split, source, id, question, reason."""


def write_rejected(data_dir: Path, rejected: pa.Table) -> Path:
    """Write the list of rejected rows; returns its path."""
    path = data_dir / REJECTED
    _write_jsonl(path, rejected, "*")
    return path


def publish(
    settings: DataSettings,
    raw: RawData,
    cleaned: Cleaned,
    splits: Splits,
    findings: Findings,
    progress: Progress = print,
) -> Manifest:
    """Write the question sets, and JSONL and corpus where there are any, then the manifest."""
    data_dir = settings.data_dir
    names = [write_rejected(data_dir, cleaned.rejected).name]
    for name, table in splits.sets.items():
        names.append(QUESTION_SETS[name])
        with replacing(data_dir / names[-1]) as temporary:
            pq.write_table(table, temporary, compression="zstd")
        if settings.jsonl:
            names.append(f"{name}.jsonl")
            _write_jsonl(data_dir / names[-1], table, _SEED_COLUMNS)
        progress(f"{name}: {len(table):,} questions")
    if raw.corpus is not None:
        names.append(CORPUS)
        with replacing(data_dir / CORPUS) as temporary:
            temporary.write_bytes(raw.corpus.read_bytes())
    manifest = Manifest(
        source=settings.source,
        origin=raw.origin,
        revision=raw.revision,
        settings_digest=preparation_digest(settings),
        raw_files={str(file.path): _record(file.path) for file in raw.files},
        files={name: _record(data_dir / name) for name in names},
        rows_read=cleaned.rows_read,
        rows={name: rows_by_source(table) for name, table in splits.sets.items()},
        overlap=splits.overlap,
        overlap_dropped=settings.drop_overlap,
        **findings._asdict(),
    )
    write_manifest(data_dir, manifest)
    return manifest


_SEED_COLUMNS = """
substr(question_id, length(source) + 2) as id, question, answers, source as data_source
"""
"""The seed's JSONL, which other programs read; `--source files` reads it back to the same."""


def _record(path: Path) -> FileRecord:
    return FileRecord(sha256=sha256_file(path), bytes=path.stat().st_size)


def _write_jsonl(path: Path, table: pa.Table, columns: str) -> None:
    connection = connect()
    register(connection, "rows", table)
    with replacing(path) as temporary:
        target = str(temporary).replace("'", "''")
        connection.execute(f"copy (select {columns} from rows) to '{target}' (format json)")
