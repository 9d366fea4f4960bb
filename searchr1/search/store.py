"""Kept answers, in one SQLite file that several processes read and write at once.

An answer is filed under the environment that gave it (back end and the settings that change
answers, as canonical JSON) and the exact query. Only successful answers are here. The answers
of an environment can be exported to a JSON Lines file and imported elsewhere.
"""

import gzip
import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from searchr1.errors import DataError
from searchr1.files import replacing
from searchr1.trajectory import SearchItem

_BUSY_SECONDS = 10.0
_TABLE = """
create table if not exists answers (
    key blob primary key,       -- SHA-256 of environment and query
    environment text not null,
    query text not null,
    items text not null,        -- JSON: [[title, text, url], ...]
    cost real not null,         -- US dollars when it was asked
    seconds real not null,      -- latency when it was asked
    recorded_at text not null   -- ISO 8601, UTC
) without rowid
"""
_INDEX = "create index if not exists answers_by_environment on answers (environment)"
_INSERT = "insert or replace into answers values (?, ?, ?, ?, ?, ?, ?)"


class StoredAnswer(NamedTuple):
    """A kept answer."""

    items: tuple[SearchItem, ...]
    cost: float
    seconds: float
    recorded_at: str = ""
    """Filled in when it is kept, unless it is given."""


def canonical(environment: dict[str, Any]) -> str:
    """The one JSON text of an environment."""
    return json.dumps(environment, sort_keys=True, ensure_ascii=False)


class AnswerStore:
    """A store file. Methods may be called from any thread and raise `sqlite3.Error` when the
    file is damaged or the disk is full."""

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises:
            DataError: the file cannot be opened or is not such a store.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            _to_write_ahead(self._db)
            self._db.execute("pragma synchronous = normal")
            self._db.execute(_TABLE)
            self._db.execute(_INDEX)
        except (OSError, sqlite3.Error) as error:
            raise DataError(
                f"The search cache {path} cannot be opened ({type(error).__name__}): check the "
                "folder's rights and free space, or move the file away."
            ) from error

    def get(self, environment: str, query: str) -> StoredAnswer | None:
        """The answer kept for a query."""
        row = self._db.execute(
            "select items, cost, seconds, recorded_at from answers where key = ?",
            (_key(environment, query),),
        ).fetchone()
        return StoredAnswer(_items(json.loads(row[0])), *row[1:]) if row else None

    def put(self, environment: str, query: str, answer: StoredAnswer) -> None:
        """Keep an answer, in the place of an older one."""
        self._db.execute(_INSERT, _row(environment, query, answer))

    def counts(self) -> dict[str, int]:
        """The environments in the file, each with its number of answers."""
        sql = "select environment, count(*) from answers group by environment"
        return dict(self._db.execute(sql).fetchall())

    def export(self, environment: str, path: Path) -> int:
        """Write an environment's answers to a file (gzipped if its name ends in .gz), sorted by
        query; returns how many."""
        sql = (
            "select query, items, cost, seconds, recorded_at from answers "
            "where environment = ? order by query"
        )
        count = 0
        opener = gzip.open if path.suffix == ".gz" else open
        with replacing(path) as temporary, opener(temporary, "wt", encoding="utf-8") as file:
            for row in self._db.execute(sql, (environment,)):
                record = dict(zip(_EXPORTED, row, strict=True))
                record["items"] = json.loads(record["items"])
                record = {"environment": json.loads(environment), **record}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
                count += 1
        return count

    def import_file(self, path: Path) -> int:
        """Add the answers of an exported file, all or none, each in the place of an older one;
        returns how many.

        Raises:
            DataError: the file is not such an export.
        """
        rows = list(_exported_rows(path))
        self._db.execute("begin immediate")
        self._db.executemany(_INSERT, rows)
        self._db.execute("commit")
        return len(rows)

    def close(self) -> None:
        """Close the file."""
        self._db.close()


_EXPORTED = ("query", "items", "cost", "seconds", "recorded_at")


def _to_write_ahead(db: sqlite3.Connection) -> None:
    """Readers and a writer no longer block each other. Processes that switch a new file at the
    same moment can meet "locked" in spite of the time-out; soon after they find it switched."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            db.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _key(environment: str, query: str) -> bytes:
    return hashlib.sha256(f"{environment}\0{query}".encode()).digest()


def _row(environment: str, query: str, answer: StoredAnswer) -> tuple[Any, ...]:
    items = json.dumps(
        [[item.title, item.text, item.url] for item in answer.items], ensure_ascii=False
    )
    recorded_at = answer.recorded_at or datetime.now(UTC).isoformat(timespec="seconds")
    key = _key(environment, query)
    return (key, environment, query, items, answer.cost, answer.seconds, recorded_at)


def _items(rows: Any) -> tuple[SearchItem, ...]:
    return tuple(SearchItem(str(title), str(text), str(url)) for title, text, url in rows)


def _exported_rows(path: Path) -> Iterator[tuple[Any, ...]]:
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            for line in file:
                number += 1
                record = json.loads(line)
                cost, seconds = float(record["cost"]), float(record["seconds"])
                answer = StoredAnswer(
                    _items(record["items"]), cost, seconds, str(record["recorded_at"])
                )
                yield _row(canonical(record["environment"]), str(record["query"]), answer)
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} cannot be imported: near line {number} it is not an exported search answer. "
            "Nothing was changed."
        ) from error
