"""The whole chain on a small setting, as a person runs it; killed and taken up again."""

import json
import signal
import time

import duckdb
import httpx

from searchr1.runs import Run

SMALL = (
    *("--questions-per-batch", "2", "--group-size", "4"),
    *("--swanlab-mode", "disabled", "--run-name", "small"),
)


def artifact(flows, key):
    """The content of the latest artifact of that key in Prefect."""
    url = flows.environment["PREFECT_API_URL"]
    return httpx.get(f"{url}/artifacts/{key}/latest", timeout=30).raise_for_status().json()["data"]


def test_the_chain_leaves_a_ledger_evaluations_a_warehouse_and_a_report(flows):
    printed = flows.run(
        *("train_search_r1", "--profile", "local", "--max-steps", "2", "--save-every", "1"), *SMALL
    )
    run = Run.open(flows.runs_dir, "small")
    assert list(run.ledger()) == [0, 1, 2]
    assert list(run.checkpoints()) == ["step_1", "step_2"]
    assert [record.epochs for record in run.ledger().values()] == [{}, {"all": 0}, {"all": 0}]
    evaluations = run.evaluations()
    assert {e["checkpoint"] for e in evaluations} == {"base", "step_1", "step_2"}
    assert len({e["environment_fingerprint"] for e in evaluations}) == 1
    assert {e["questions"] for e in evaluations} == {70}
    with duckdb.connect(str(flows.runs_dir / "warehouse.duckdb"), read_only=True) as warehouse:
        (trajectories,) = warehouse.sql("select count(*) from trajectories").fetchall()
    assert trajectories[0] >= 2 * 2 * 4
    assert (run.directory / "report" / "index.html").exists()
    assert list((run.directory / "report").glob("*.png"))
    for word in ("step 2/2", "base", "step_2", "EM"):
        assert word in printed
    shown = {key: artifact(flows, f"{key}-small") for key in ("progress", "steps", "summary")}
    assert shown["progress"] == 100.0
    assert [row["step"] for row in json.loads(shown["steps"])] == [1, 2]
    assert "Step 2 of 2" in shown["summary"]
    assert run.checkpoint("step_2").sampler_weights in shown["summary"]
    assert "EM" in artifact(flows, "report-small")

    ledger = (run.directory / "ledger.jsonl").read_bytes()
    again = flows.run("train_flow", "--max-steps", "2", "--save-every", "1", *SMALL)
    assert "rollout" not in again and "update" not in again
    assert (run.directory / "ledger.jsonl").read_bytes() == ledger


def test_a_killed_training_goes_on_and_repeats_no_finished_step_and_no_finished_group(flows):
    flows.run("prepare_flow", "--profile", "local")
    settings = ("--max-steps", "4", "--save-every", "2", *SMALL)
    process = flows.start("train_flow", *settings)
    run_directory = flows.runs_dir / "small"
    deadline = time.monotonic() + 200
    try:
        while not (parts := list(run_directory.glob("trajectories/step_0000[234].*/*.parquet"))):
            assert process.poll() is None and time.monotonic() < deadline, process.stdout.read()
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = {part: part.stat().st_mtime_ns for part in parts if part.exists()}
    run = Run.open(flows.runs_dir, "small")
    before = run.ledger()
    assert len(before) < 5, "the kill came too late to show anything"

    printed = flows.run("train_flow", *settings)
    lines = (run_directory / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 1, 2, 3, 4]
    after = run.ledger()
    for step, record in before.items():
        assert after[step] == record
    for step in range(1, 5):
        assert after[step].policy_ref == after[step - 1].state
    if kept:
        assert "finished groups are reused" in printed
