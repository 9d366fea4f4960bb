"""What a training came to, in a form that two trainings can be compared by.

Left out is what cannot be equal: times, and the service's names for runs and saved weights.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from searchr1.runs import Run
from searchr1.trajectory import Trajectory
from tests.faults.stage import Stage

BY_CHANCE = ("time/", *(f"search/{name}" for name in ("latency", "waited", "requests", "join")))
"""Beginnings of the names of metrics that depend on time: two equal queries that meet on their
way to the search server are one request."""
SEARCH_BY_CHANCE = {"seconds", "waited", "requests", "joined"}
"""The same in the record of a turn or search."""


@dataclass(frozen=True)
class Outcome:
    """A finished training."""

    ledger: list[dict[str, Any]]
    """Every line, also when a step stands twice."""
    trajectories: dict[int, list[dict[str, Any]]]
    """By step."""
    weights: dict[str, np.ndarray]
    """Adapter and Adam state at the end."""
    checkpoint: dict[str, np.ndarray]
    """The sampler weights of the last checkpoint."""
    requests: int = 0
    """How many the engine got, background traffic apart."""

    def assert_equal(self, other: "Outcome") -> None:
        """Both trainings came to the same."""
        assert self.ledger == other.ledger
        assert self.trajectories == other.trajectories
        for ours, theirs in ((self.weights, other.weights), (self.checkpoint, other.checkpoint)):
            assert ours.keys() == theirs.keys()
            for name, values in ours.items():
                np.testing.assert_array_equal(values, theirs[name], err_msg=name)


def outcome(stage: Stage, name: str) -> Outcome:
    """Read what the run `name` left behind."""
    run = Run.open(stage.runs_dir, name)
    records = run.ledger()
    last = records[max(records)]
    lines = (run.directory / "ledger.jsonl").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) == len(records), "a step stands twice"
    for step in range(1, max(records) + 1):
        assert records[step].policy_ref == records[step - 1].state
    return Outcome(
        ledger=[_comparable(asdict(record)) for record in records.values()],
        trajectories={
            step: [_timeless(asdict(t)) for t in trajectories(run, step, records[step].policy_ref)]
            for step in sorted(records)
            if step
        },
        weights=load_file(stage.engine.file(last.state)),
        checkpoint=load_file(stage.engine.file(last.sampler_weights or "")),
    )


def trajectories(run: Run, step: int, policy_ref: str | None) -> list[Trajectory]:
    """The stored trajectories of a step, in their order."""
    groups = run.trajectories(step, policy_ref or "").groups()
    return [trajectory for group in groups for trajectory in group.trajectories]


def _comparable(record: dict[str, Any]) -> dict[str, Any]:
    metrics = {
        name: value for name, value in record["metrics"].items() if not name.startswith(BY_CHANCE)
    }
    same = ("step", "saved", "digest", "question_ids", "datums", "updated")
    return {
        **{name: record[name] for name in same},
        "checkpoint": bool(record["sampler_weights"]),
        "metrics": metrics,
    }


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in SEARCH_BY_CHANCE}
    return [_timeless(v) for v in value] if isinstance(value, (list, tuple)) else value


def finished_queries(stage: Stage, name: str) -> dict[tuple[int, str], Counter[str]]:
    """The queries of every group that is stored now, by step and question."""
    found: dict[tuple[int, str], Counter[str]] = {}
    if not (stage.runs_dir / name / "run.json").exists():
        return found
    run = Run.open(stage.runs_dir, name)
    records = run.ledger()
    for step in range(1, max(records, default=-1) + 2):
        for trajectory in trajectories(run, step, records[step - 1].state):
            key = step, trajectory.question.question_id
            found.setdefault(key, Counter()).update(s.query for s in trajectory.searches)
    return found
