"""Evaluations as a person runs them: resumed, sharded, written out, and never mixed unawares."""

import json
import re
import signal
import time

import pytest

from searchr1.runs import Run
from searchr1.trajectory_store import read_trajectories
from tests.conftest import Flows


@pytest.fixture(scope="module")
def trained(prefect_server, tmp_path_factory) -> Flows:
    """Flows with a run of one step, whose only checkpoint is step_1."""
    flows = Flows(prefect_server, tmp_path_factory.mktemp("evaluated"))
    flows.run("prepare_flow", "--profile", "local")
    flows.run(
        *("train_flow", "--max-steps", "1", "--questions-per-batch", "2", "--group-size", "2"),
        *("--swanlab-mode", "disabled", "--run-name", "one"),
    )
    return flows


def evaluations(flows: Flows) -> dict[str, dict]:
    """The descriptions of finished evaluations by name."""
    directory = Run.open(flows.runs_dir, "one").directory / "evaluations"
    return {file.stem: json.loads(file.read_text()) for file in directory.glob("*.json")}


def new(flows: Flows, *arguments: str, **options) -> tuple[list[dict], str]:
    """Run an evaluation; what it added, and what it printed."""
    before = evaluations(flows)
    printed = flows.run("eval_flow", *arguments, **options)
    return [e for name, e in evaluations(flows).items() if name not in before], printed


def test_shards_answer_every_question_once_and_another_run_asks_none_again(trained, tmp_path):
    sampling = ("--limit", "7", "--samples", "2", "--temperature", "1", "--seed", "3")
    output = tmp_path / "written"
    added, printed = new(trained, *sampling, "--shards", "3", "--output", str(output))
    found = {(e["checkpoint"], e["questions"], e["samples"]) for e in added}
    assert found == {("base", 7, 2), ("step_1", 7, 2)}
    for number in (1, 2, 3):
        assert f"answer one step_1 shard {number}" in printed
    directory = Run.open(trained.runs_dir, "one").directory / "evaluations"
    for one in added:
        rows = read_trajectories(directory / f"{one['evaluation']}.parquet")
        asked = [(row.question.question_id, row.index) for row in rows]
        assert len(asked) == len(set(asked)) == 14
        assert not list(directory.glob(f"{one['evaluation']}.*/"))
        lines = (output / f"{one['checkpoint']}.jsonl").read_text().splitlines()
        assert len(lines) == 14 + 1
        assert json.loads(lines[-1])["type"] == "summary"
        written = [json.loads(line)["exact_match"] for line in lines[:-1]]
        assert sum(written) == sum(row.em for row in rows)
    added, printed = new(trained, *sampling)
    assert added == []
    assert "answers," not in printed


def test_shards_run_in_dask_workers_too(trained):
    pytest.importorskip("prefect_dask")
    arguments = ("--limit", "4", "--shards", "2", "--task-runner", "dask", "--seed", "4")
    added, printed = new(trained, "--ckpts", "base", *arguments)
    assert [e["questions"] for e in added] == [4]
    assert "shard 2" in printed


def test_a_task_runner_that_is_not_installed_is_refused_at_once(trained):
    try:
        import prefect_ray  # noqa: F401
    except ImportError:
        printed = trained.run("eval_flow", "--shards", "2", "--task-runner", "ray", status=2)
        assert "pip install prefect-ray" in printed
    else:
        pytest.skip("prefect-ray is installed")


def test_a_killed_evaluation_asks_only_the_questions_that_are_left(trained):
    arguments = ("--ckpts", "base", "--batch-size", "2", "--seed", "5", "--temperature", "1")
    process = trained.start("eval_flow", *arguments)
    directory = Run.open(trained.runs_dir, "one").directory / "evaluations"
    deadline = time.monotonic() + 200
    while not (parts := [p for d in directory.glob("base.*/") for p in d.glob("*.parquet")]):
        assert process.poll() is None and time.monotonic() < deadline, process.stdout.read()
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = sum(part.exists() for part in parts)
    assert 1 <= kept < 70
    added, printed = new(trained, *arguments)
    assert [e["questions"] for e in added] == [70]
    reused = int(re.search(r"base: (\d+) answered questions are reused", printed).group(1))
    assert kept <= reused < 70


def test_another_environment_evaluates_the_base_model_anew_unless_mixing_is_forced(trained):
    same = ("--limit", "3", "--seed", "6")
    first, _ = new(trained, *same)
    other = (*same, "--max-search-calls", "1")
    mixed, _ = new(trained, *other, "--force-mixed")
    assert [(e["checkpoint"], e["forced_mixed"]) for e in mixed] == [("step_1", True)]
    both, _ = new(trained, *other)
    assert [(e["checkpoint"], e["forced_mixed"]) for e in both] == [("base", False)]
    fingerprints = {e["environment_fingerprint"] for e in first}
    assert len(fingerprints) == 1
    assert both[0]["environment_fingerprint"] == mixed[0]["environment_fingerprint"]
    assert both[0]["environment_fingerprint"] not in fingerprints
