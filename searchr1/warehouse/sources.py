"""Which files of the run directories the warehouse is made from, and what state they are in."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Kind(StrEnum):
    """What a file holds; the value is the name of the SQL script that loads it. Scripts run in
    this order."""

    RUN = "runs"
    """run.json"""
    LEDGER = "steps"
    """ledger.jsonl"""
    EVALUATION = "evaluations"
    """evaluations/<name>.json"""
    TRAJECTORIES = "trajectories"
    """trajectories/step_00001.parquet or evaluations/<name>.parquet"""


@dataclass(frozen=True, slots=True)
class Source:
    """One file, as it was found."""

    path: Path
    file: str
    """Path below the folder of runs: the key in the warehouse."""
    kind: Kind
    run: str
    step: int | None
    """Training step of trajectories; None for all else."""
    evaluation: str | None
    size: int
    modified: int
    """Nanoseconds since 1970."""

    @property
    def state(self) -> tuple[int, int]:
        """Changes when the file changes."""
        return self.size, self.modified


def _source(
    runs_dir: Path, path: Path, kind: Kind, step: int | None = None, evaluation: str | None = None
) -> Source | None:
    try:
        status = path.stat()
    except FileNotFoundError:  # removed since it was listed
        return None
    file = path.relative_to(runs_dir)
    return Source(
        path=path,
        file=file.as_posix(),
        kind=kind,
        run=file.parts[0],
        step=step,
        evaluation=evaluation,
        size=status.st_size,
        modified=status.st_mtime_ns,
    )


def _of_run(runs_dir: Path, directory: Path) -> Iterator[Source | None]:
    yield _source(runs_dir, directory / "run.json", Kind.RUN)
    yield _source(runs_dir, directory / "ledger.jsonl", Kind.LEDGER)
    for path in sorted((directory / "trajectories").glob("step_*.parquet")):
        number = path.stem.removeprefix("step_")
        if number.isdecimal():
            yield _source(runs_dir, path, Kind.TRAJECTORIES, step=int(number))
    for path in sorted((directory / "evaluations").glob("*.json")):
        yield _source(runs_dir, path, Kind.EVALUATION, evaluation=path.stem)
        trajectories = path.with_suffix(".parquet")
        yield _source(runs_dir, trajectories, Kind.TRAJECTORIES, evaluation=path.stem)


def find_sources(runs_dir: Path) -> dict[str, Source]:
    """Files by their path below `runs_dir`. Parts of unfinished steps and evaluations, temporary
    files, and trajectories of an evaluation without a description are not among them."""
    found: dict[str, Source] = {}
    for description in sorted(runs_dir.glob("*/run.json")):
        found |= {s.file: s for s in _of_run(runs_dir, description.parent) if s is not None}
    return found
