"""Trajectories on disk: one Parquet file a finished group, one a finished step or evaluation.

While a step runs, each finished group is a file of its own in a directory; `finish` merges them
into one Parquet file beside the directory and removes the parts. Every file is written beside
and renamed, so a kill leaves whole groups and nothing else. Once the merged file is there, parts
that a kill left behind are ignored.
"""

import hashlib
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.dataset import dataset

from searchr1.files import replacing
from searchr1.trajectory import (
    Group,
    Question,
    SearchItem,
    SearchRecord,
    StopReason,
    Trajectory,
    TurnRecord,
)

_AT_A_TIME = 256
"""Trajectories, or files of groups, that are in memory together."""
_TURN = pa.struct(
    [
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("text", pa.string()),
        ("kind", pa.string()),
        ("seconds", pa.float64()),
    ]
)
_ITEM = pa.struct([("title", pa.string()), ("text", pa.string()), ("url", pa.string())])
_SEARCH = pa.struct(
    [
        ("turn", pa.int32()),
        ("query", pa.string()),
        ("ok", pa.bool_()),
        ("error", pa.string()),
        ("items", pa.list_(_ITEM)),
        ("observation", pa.string()),
        ("seconds", pa.float64()),
        ("cached", pa.bool_()),
        ("cost", pa.float64()),
        ("joined", pa.bool_()),
        ("requests", pa.int32()),
        ("rate_limited", pa.int32()),
        ("timeouts", pa.int32()),
        ("waited", pa.float64()),
        ("dropped", pa.int32()),
    ]
)
SCHEMA = pa.schema(
    [
        ("question_id", pa.string()),
        ("question", pa.string()),
        ("answers", pa.list_(pa.string())),
        ("source", pa.string()),
        ("index", pa.int32()),
        ("tokens", pa.list_(pa.int32())),
        ("loss_mask", pa.list_(pa.bool_())),
        ("logprobs", pa.list_(pa.float32())),
        ("turns", pa.list_(_TURN)),
        ("searches", pa.list_(_SEARCH)),
        ("stop_reason", pa.string()),
        ("error", pa.string()),
        ("final_text", pa.string()),
        ("answer", pa.string()),
        ("reward", pa.float64()),
        ("valid_format", pa.bool_()),
        ("em", pa.bool_()),
        ("em_squad", pa.bool_()),
        ("f1", pa.float64()),
        ("cover_em", pa.bool_()),
        ("seconds", pa.float64()),
    ]
)
"""One row a trajectory."""


def to_row(trajectory: Trajectory) -> dict[str, object]:
    """A trajectory as one row of `SCHEMA`."""
    row = asdict(trajectory)
    row.update(row.pop("question"))
    return row


def from_row(row: dict) -> Trajectory:
    """The inverse of `to_row`, exact but for logprobs, which are stored as float32."""
    searches = tuple(
        SearchRecord(**{**search, "items": tuple(SearchItem(**item) for item in search["items"])})
        for search in row["searches"]
    )
    question = Question(
        question_id=row["question_id"],
        question=row["question"],
        answers=tuple(row["answers"]),
        source=row["source"],
    )
    plain = {name: row[name] for name in SCHEMA.names if name not in asdict(question)}
    plain.update(
        tokens=tuple(row["tokens"]),
        loss_mask=tuple(row["loss_mask"]),
        logprobs=tuple(row["logprobs"]),
        turns=tuple(TurnRecord(**turn) for turn in row["turns"]),
        searches=searches,
        stop_reason=StopReason(row["stop_reason"]),
    )
    return Trajectory(question=question, **plain)


def write_trajectories(path: Path, trajectories: Sequence[Trajectory]) -> None:
    """Write one Parquet file, atomically."""
    table = pa.Table.from_pylist([to_row(t) for t in trajectories], schema=SCHEMA)
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def iterate_trajectories(path: Path) -> Iterator[Trajectory]:
    """The trajectories of one Parquet file in its order, few in memory at a time: as Python objects
    those of a large evaluation take ten gigabytes."""
    for batch in dataset(path, schema=SCHEMA).to_batches(batch_size=_AT_A_TIME):
        yield from map(from_row, batch.to_pylist())


def read_trajectories(path: Path) -> list[Trajectory]:
    """All trajectories of one Parquet file, in its order."""
    return list(iterate_trajectories(path))


class TrajectoryStore:
    """The groups of one step, or the questions of one evaluation, by question id.

    `path` is the merged file (`….parquet`); the parts lie in a directory beside it, whose name
    holds `policy_ref`, so that parts sampled from another policy are never taken up.
    """

    def __init__(self, path: Path, policy_ref: str) -> None:
        self.path = path
        self.parts = path.with_name(f"{path.stem}.{_short_hash(policy_ref)}")

    @property
    def finished(self) -> bool:
        """Whether the merged file is there."""
        return self.path.exists()

    def write(self, group: Group) -> None:
        """Store a finished group."""
        write_trajectories(self._part(group.question.question_id), group.trajectories)

    def missing(self, questions: Iterable[Question]) -> list[Question]:
        """Those of `questions` whose group is not there, in their order."""
        if self.finished:
            column = pq.read_table(self.path, columns=["question_id"]).column(0)
            there = set(column.to_pylist())
            return [q for q in questions if q.question_id not in there]
        parts = set(self.parts.glob("*.parquet"))
        return [q for q in questions if self._part(q.question_id) not in parts]

    def groups(self, only: Collection[str] | None = None) -> Iterator[Group]:
        """The groups that are there, one in memory at a time; with `only`, those of these
        questions. Once they are merged, in the order of that."""
        if self.finished:
            whole = iterate_trajectories(self.path)
            for question_id, members in groupby(whole, lambda t: t.question.question_id):
                if only is None or question_id in only:
                    yield _group(members)
            return
        wanted = None if only is None else set(map(self._part, only))
        for file in sorted(self.parts.glob("*.parquet")):
            if wanted is None or file in wanted:
                yield _group(iterate_trajectories(file))

    def _part(self, question_id: str) -> Path:
        return self.parts / f"{_short_hash(question_id)}.parquet"

    def discard(self, question_id: str) -> None:
        """Remove the part of one question, so that it is sampled anew."""
        self._part(question_id).unlink(missing_ok=True)

    def finish(self, order: Iterable[str]) -> None:
        """Merge the groups in the order of these question ids into the one file, and remove the
        parts. Does nothing new when it has been done before. Raises KeyError when a group is
        missing."""
        if not self.finished:
            files = {question_id: self._part(question_id) for question_id in order}
            for question_id, file in files.items():
                if not file.exists():
                    raise KeyError(question_id)
            with (
                replacing(self.path) as temporary,
                pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as writer,
            ):
                left = iter(files.values())
                while some := list(islice(left, _AT_A_TIME)):
                    tables = [pq.read_table(file, schema=SCHEMA) for file in some]
                    writer.write_table(pa.concat_tables(tables))
        shutil.rmtree(self.parts, ignore_errors=True)


def _group(members: Iterable[Trajectory]) -> Group:
    trajectories = tuple(members)
    return Group(trajectories[0].question, trajectories)


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
