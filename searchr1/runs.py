"""A run on disk: who it is, what it has done, who is at work on it.

    runs/<name>/run.json                   identity and resolved settings
    runs/<name>/ledger.jsonl               one line a finished step
    runs/<name>/trajectories/step_00001.parquet
    runs/<name>/evaluations/<name>.json, .parquet
    runs/<name>/lock                       held by the process at work

The ledger is the truth about a run: a step that stands in it is done and is never done again.
`python -m searchr1.runs list | show NAME | checkpoints NAME` prints runs for a person.
"""

import json
import os
import re
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from searchr1.errors import SettingsError
from searchr1.files import disk_errors, write_text
from searchr1.trajectory_store import TrajectoryStore

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$"


def now() -> str:
    """The time, ISO 8601, UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a JSONL file ([] when it is absent). A torn last line, which a kill in
    the middle of a write leaves behind, is left out; damage before it raises ValueError."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            if number == len(lines):
                break
            raise ValueError(f"{path}, line {number} is damaged: {error}") from error
    return rows


def append_jsonl(path: Path, row: Mapping[str, Any]) -> None:
    """Append one line and flush it to disk. A torn last line is cut off first; a whole last line
    that lacks its newline is kept and completed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with disk_errors(path), path.open("a+b") as file:
        file.seek(0)
        content = file.read()
        tail = content[content.rfind(b"\n") + 1 :]
        if tail.strip():
            try:
                json.loads(tail)
                file.write(b"\n")
            except ValueError:
                file.truncate(len(content) - len(tail))
        file.write(json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One finished step in the ledger. Step 0 is the policy before any update."""

    step: int
    policy_ref: str | None
    """State that the step sampled from; None for step 0."""
    state: str
    """The policy after the step: the URI of its saved state, or, when `saved` is False, the last
    saved one with the number of updates since ("…+2")."""
    saved: bool
    state_size: int
    training_run: str
    sampler_weights: str | None
    """Set on checkpoints."""
    time: str
    digest: str
    question_ids: tuple[str, ...] = ()
    epochs: dict[str, int] = field(default_factory=dict)
    """Times that the questions had been gone through before the step, by source ("all" without
    weights): with the seed and the step's number, the place in the data."""
    datums: int = 0
    updated: bool = False
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def checkpoint(self) -> str | None:
        """Its name as a checkpoint, if it is one."""
        return f"step_{self.step}" if self.sampler_weights else None


class Run:
    """One training run's directory."""

    def __init__(self, directory: Path, description: dict[str, Any]) -> None:
        self.directory = directory
        self.description = description

    @property
    def name(self) -> str:
        """What the person calls it; the directory's name."""
        return self.directory.name

    @property
    def run_id(self) -> str:
        """Unique, and new when a directory of the same name is made again."""
        return self.description["run_id"]

    @property
    def settings(self) -> dict[str, Any]:
        """The resolved settings it was started with."""
        return self.description["settings"]

    @classmethod
    def open(cls, runs_dir: Path, name: str) -> "Run":
        """An existing run. Raises SettingsError naming the runs there are."""
        file = runs_dir / name / "run.json"
        if not file.exists():
            known = ", ".join(run.name for run in list_runs(runs_dir)) or "none"
            raise SettingsError(f"there is no run '{name}' in {runs_dir}. Runs there: {known}.")
        return cls(file.parent, json.loads(file.read_text(encoding="utf-8")))

    @classmethod
    def find(cls, runs_dir: Path, name: str | None) -> "Run":
        """The run called `name`, or the latest one. Raises SettingsError when there is none."""
        return cls.open(runs_dir, name) if name else latest_run(runs_dir)

    @classmethod
    def start(
        cls, runs_dir: Path, name: str, settings: Mapping[str, Any], identity: Mapping[str, Any]
    ) -> "Run":
        """The run called `name`: made new, or taken up again when it exists with the same
        `identity`, the settings that decide what a step does. Raises SettingsError that prints
        the difference when they changed."""
        if not re.match(NAME_PATTERN, name):
            raise SettingsError(
                f"run name '{name}' cannot be used: letters, digits, '.', '_' and '-', "
                "at most 80, beginning with a letter or digit."
            )
        if (runs_dir / name / "run.json").exists():
            run = cls.open(runs_dir, name)
            changes = [
                f"  {key}: {run.description['identity'].get(key)!r} -> {value!r}"
                for key, value in identity.items()
                if run.description["identity"].get(key) != value
            ]
            if changes:
                raise SettingsError(
                    f"run '{name}' exists with other settings:\n" + "\n".join(changes) + "\n"
                    "Go on with the old settings, or choose another --run-name."
                )
            return run
        description = {
            "run_id": uuid.uuid4().hex[:12],
            "name": name,
            "created_at": now(),
            "identity": dict(identity),
            "settings": dict(settings),
        }
        write_text(runs_dir / name / "run.json", json.dumps(description, indent=2) + "\n")
        return cls(runs_dir / name, description)

    @contextmanager
    def lock(self, what: str = "training") -> Iterator[None]:
        """Hold the training of the run, or one of its evaluations, for this process; the lock goes
        with the process, however it ends. Raises SettingsError naming the process that holds it."""
        locks = self.directory / "locks"
        locks.mkdir(exist_ok=True)
        lock, holder = FileLock(locks / what), locks / f"{what}.holder"
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            who = holder.read_text() if holder.exists() else "another process"
            raise SettingsError(
                f"run '{self.name}' is being worked on ({what}) by {who}. Wait for that process "
                "or stop it first, or choose another run."
            ) from error
        try:
            write_text(holder, f"process {os.getpid()} on {socket.gethostname()}")
            yield
        finally:
            lock.release()

    def ledger(self) -> dict[int, StepRecord]:
        """Finished steps by number. A step that stands twice counts once, the last line wins."""
        rows = read_jsonl(self.directory / "ledger.jsonl")
        records = [
            StepRecord(**{**row, "question_ids": tuple(row["question_ids"])}) for row in rows
        ]
        return {record.step: record for record in records}

    def append(self, record: StepRecord) -> None:
        """Write a finished step to the ledger."""
        append_jsonl(self.directory / "ledger.jsonl", asdict(record))

    def add_spoiled(self, step: int, cost: Mapping[str, float]) -> None:
        """Write down what groups of `step` cost that are thrown away and sampled again."""
        append_jsonl(self.directory / "spoiled.jsonl", {"step": step, "time": now(), **cost})

    def spoiled(self, step: int) -> list[dict[str, Any]]:
        """What was thrown away of `step`, as it was written down."""
        rows = read_jsonl(self.directory / "spoiled.jsonl")
        return [row for row in rows if row["step"] == step]

    def trajectories(self, step: int, policy_ref: str) -> TrajectoryStore:
        """Where the trajectories of a step lie."""
        path = self.directory / "trajectories" / f"step_{step:05d}.parquet"
        return TrajectoryStore(path, policy_ref)

    def evaluation(self, name: str, policy_ref: str) -> TrajectoryStore:
        """Where the trajectories of an evaluation lie."""
        return TrajectoryStore(self.directory / "evaluations" / f"{name}.parquet", policy_ref)

    def evaluations(self) -> list[dict[str, Any]]:
        """The descriptions of the finished evaluations, oldest first."""
        files = self.directory.glob("evaluations/*.json")
        found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        return sorted(found, key=lambda one: (one["finished_at"], one["evaluation"]))

    def checkpoints(self) -> dict[str, StepRecord]:
        """Kept checkpoints by name, in order of their steps."""
        return {
            record.checkpoint: record
            for _, record in sorted(self.ledger().items())
            if record.checkpoint
        }

    def checkpoint(self, name: str) -> StepRecord:
        """The kept checkpoint called `name`, or the `latest`. Raises SettingsError naming those
        that there are."""
        kept = self.checkpoints()
        if name == "latest" and kept:
            return list(kept.values())[-1]
        if name not in kept:
            raise SettingsError(
                f"run '{self.name}' has no checkpoint '{name}'. It has: "
                f"{', '.join(kept) or 'none yet'}."
            )
        return kept[name]


def list_runs(runs_dir: Path) -> list[Run]:
    """All runs, oldest first."""
    found = [Run.open(runs_dir, file.parent.name) for file in runs_dir.glob("*/run.json")]
    return sorted(found, key=lambda run: (run.description["created_at"], run.name))


def latest_run(runs_dir: Path) -> Run:
    """The run that was started last. Raises SettingsError when there is none."""
    found = list_runs(runs_dir)
    if not found:
        raise SettingsError(
            f"there is no run in {runs_dir} yet. Train one first: python flows/train_flow.py"
        )
    return found[-1]


if __name__ == "__main__":
    from searchr1.runs_cli import app

    app()
