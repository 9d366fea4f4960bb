"""Build the warehouse, or bring it up to date."""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import duckdb
from filelock import FileLock

from searchr1.files import replacing
from searchr1.warehouse.sources import Kind, Source, find_sources

WAREHOUSE = "warehouse.duckdb"
"""Name of the file in the folder of runs."""

_BATCH_BYTES = 64_000_000
"""Parquet bytes read in one transaction; bounds memory."""
_MEMORY_LIMIT = "1GB"

_log = logging.getLogger(__name__)


def load(runs_dir: Path) -> Path:
    """Bring the warehouse up to date with the run directories and return its path. Only new and
    changed files are read; rows of files that are gone are removed. Damaged files are left out
    with a warning and tried again at the next load."""
    path = runs_dir / WAREHOUSE
    with _exclusive(runs_dir):
        sources = find_sources(runs_dir)
        loaded = _loaded_files(path)
        if loaded is None:
            _replace(path, sources.values(), gone=(), fresh=True)
            return path
        changed = _changed(sources, loaded)
        gone = loaded.keys() - sources.keys()
        if changed or gone:
            _replace(path, changed, gone, fresh=False)
    return path


def rebuild(runs_dir: Path) -> Path:
    """Make the warehouse anew from the run directories and return its path."""
    path = runs_dir / WAREHOUSE
    with _exclusive(runs_dir):
        _replace(path, find_sources(runs_dir).values(), gone=(), fresh=True)
    return path


@contextmanager
def _exclusive(runs_dir: Path) -> Iterator[None]:
    runs_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(runs_dir / f".{WAREHOUSE}.lock"):
        # Whoever holds the lock is alone, so what lies there is of a load that was killed.
        for left_over in runs_dir.glob(f".{WAREHOUSE}.*.part*"):
            left_over.unlink()
        for left_over in runs_dir.glob(f".{WAREHOUSE}.*.spill"):
            shutil.rmtree(left_over)
        yield


def _loaded_files(path: Path) -> dict[str, tuple[int, int]] | None:
    """What is in the warehouse, or None when it has to be built from nothing."""
    if not path.exists():
        return None
    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            version = connection.execute("SELECT version FROM schema_version").fetchone()
            if version != (_schema_version(),):
                return None
            rows = connection.execute("SELECT file, size, modified FROM loaded_files").fetchall()
    except duckdb.Error as error:
        _log.warning("%s cannot be read (%s); it is built again from the runs.", path, error)
        return None
    return {file: (size, modified) for file, size, modified in rows}


def _changed(sources: dict[str, Source], loaded: dict[str, tuple[int, int]]) -> list[Source]:
    changed = {file for file, source in sources.items() if loaded.get(file) != source.state}
    for source in sources.values():
        # Trajectories of an evaluation take their step from its description.
        description = source.file.removesuffix(".parquet") + ".json"
        if source.evaluation and source.kind is Kind.TRAJECTORIES and description in changed:
            changed.add(source.file)
    return [sources[file] for file in sources if file in changed]


def _replace(path: Path, sources: Iterable[Source], gone: Iterable[str], *, fresh: bool) -> None:
    """Write the warehouse with `sources` read (again) and `gone` removed, and rename it into
    place. `fresh` starts from nothing, else from a copy."""
    with replacing(path) as temporary:
        if not fresh:
            shutil.copyfile(path, temporary)
        spill = temporary.with_suffix(".spill")
        try:
            with duckdb.connect(
                str(temporary),
                config={
                    "memory_limit": _MEMORY_LIMIT,
                    "temp_directory": str(spill),
                    "preserve_insertion_order": "false",
                },
            ) as connection:
                _update(connection, list(sources), list(gone), fresh=fresh)
                connection.execute("CHECKPOINT")
        finally:
            shutil.rmtree(spill, ignore_errors=True)
            temporary.with_name(temporary.name + ".wal").unlink(missing_ok=True)


def _update(
    connection: duckdb.DuckDBPyConnection,
    sources: Sequence[Source],
    gone: Sequence[str],
    *,
    fresh: bool,
) -> None:
    connection.execute(_script("macros.sql"))
    if fresh:
        with _transaction(connection):  # one write to the disk instead of one a comment
            connection.execute(_script("tables.sql"))
            connection.execute(
                "INSERT INTO schema_version VALUES ($version)", {"version": _schema_version()}
            )
    else:
        _remove(connection, [source.file for source in sources] + list(gone))
    for kind in Kind:
        wanted = [source for source in sources if source.kind is kind]
        if kind is Kind.TRAJECTORIES:
            rows = connection.execute("SELECT run, evaluation FROM evaluations").fetchall()
            described = set(rows)
            wanted = [s for s in wanted if not s.evaluation or (s.run, s.evaluation) in described]
        for batch in _batches(wanted):
            _load_readable(connection, kind, batch)
    _create_views(connection)


def _batches(sources: Sequence[Source]) -> Iterator[list[Source]]:
    batch: list[Source] = []
    size = 0
    for source in sources:
        if batch and size + source.size > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(source)
        size += source.size
    if batch:
        yield batch


def _load_readable(
    connection: duckdb.DuckDBPyConnection, kind: Kind, batch: Sequence[Source]
) -> None:
    """Load what can be read of `batch`. One damaged file makes the whole batch fail, so it is
    halved until the damaged ones stand alone."""
    try:
        _load(connection, kind, batch)
    except duckdb.Error as error:
        if len(batch) > 1:
            half = len(batch) // 2
            _load_readable(connection, kind, batch[:half])
            _load_readable(connection, kind, batch[half:])
            return
        if not _damaged(batch[0]):
            raise
        _log.warning(
            "%s is damaged and left out of the warehouse (%s). The next load tries it again.",
            batch[0].path,
            str(error).splitlines()[0],
        )


def _damaged(source: Source) -> bool:
    """Whether the file itself is at fault, rather than this program or the disk."""
    if source.path.suffix == ".parquet":
        try:
            with duckdb.connect() as connection:
                connection.execute(
                    "SELECT max(hash(COLUMNS(*))) FROM read_parquet($file)",
                    {"file": str(source.path)},
                )
        except duckdb.Error:
            return True
        return False
    try:
        return not isinstance(json.loads(source.path.read_bytes()), dict)
    except ValueError:
        return True


def _load(connection: duckdb.DuckDBPyConnection, kind: Kind, batch: Sequence[Source]) -> None:
    with _transaction(connection):
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE batch (path VARCHAR, file VARCHAR, run VARCHAR, "
            "phase VARCHAR, step INTEGER, evaluation VARCHAR)"
        )
        connection.executemany(
            "INSERT INTO batch VALUES (?, ?, ?, ?, ?, ?)",
            [
                (
                    str(source.path),
                    source.file,
                    source.run,
                    "evaluation" if source.evaluation else "train",
                    source.step,
                    source.evaluation,
                )
                for source in batch
            ],
        )
        connection.execute(
            "UPDATE batch SET step = described.step FROM evaluations AS described "
            "WHERE batch.run = described.run AND batch.evaluation = described.evaluation"
        )
        connection.execute("SET VARIABLE paths = (SELECT list(path) FROM batch)")
        connection.execute(_script(f"load/{kind}.sql"))
        connection.executemany(
            "INSERT INTO loaded_files VALUES (?, ?, ?)",
            [(source.file, source.size, source.modified) for source in batch],
        )


def _remove(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> None:
    with _transaction(connection):
        for table in ("turns", "searches"):
            connection.execute(
                f"DELETE FROM {table} WHERE trajectory_id IN "
                "(SELECT trajectory_id FROM trajectories WHERE list_contains($files, file))",
                {"files": files},
            )
        tables = (
            "runs",
            "steps",
            "checkpoints",
            "evaluations",
            "trajectories",
            "evaluation_items",
            "loaded_files",
        )
        for table in tables:
            connection.execute(
                f"DELETE FROM {table} WHERE list_contains($files, file)", {"files": files}
            )


@contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    connection.begin()
    try:
        yield
    except BaseException:  # boundary: whatever it was, nothing half-written is kept
        connection.rollback()
        raise
    connection.commit()


def _script(name: str) -> str:
    return resources.files("searchr1.warehouse").joinpath(name).read_text(encoding="utf-8")


def _schema_version() -> str:
    """Digest of all scripts, so that a file made by others is built again."""
    scripts = ["macros.sql", "tables.sql"]
    scripts += [f"load/{kind}.sql" for kind in Kind]
    scripts += [f"views/{name}.sql" for name in view_names()]
    return hashlib.sha256("".join(map(_script, scripts)).encode()).hexdigest()[:16]


def view_names() -> list[str]:
    """Names of the views, each in a file of its own, in the order in which they build on one
    another."""
    folder = resources.files("searchr1.warehouse").joinpath("views")
    files = [entry.name for entry in folder.iterdir() if entry.name.endswith(".sql")]
    # A view that others read comes first.
    return sorted((name.removesuffix(".sql") for name in files), key=lambda n: (n not in _BASE, n))


_BASE = ("groups", "evaluation_pairs", "paired_questions")


def _create_views(connection: duckdb.DuckDBPyConnection) -> None:
    with _transaction(connection):
        for name in view_names():
            connection.execute(_script(f"views/{name}.sql"))
