"""A run's directory: identity, ledger, lock."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from searchr1.errors import SettingsError
from searchr1.runs import Run, StepRecord, append_jsonl, latest_run, list_runs, now, read_jsonl


@pytest.mark.parametrize(
    ("content", "kept", "after"),
    [
        (b'{"id": 1}\n{"id": 2, "rew', [1], b'{"id": 1}\n{"id": 3}\n'),
        (b'{"id": 1}', [1], b'{"id": 1}\n{"id": 3}\n'),
        (b'{"id": 1}\n', [1], b'{"id": 1}\n{"id": 3}\n'),
        (b"", [], b'{"id": 3}\n'),
        (b'{"i', [], b'{"id": 3}\n'),
        ('{"id": 1}\n{"id": "é'.encode()[:-1], [1], b'{"id": 1}\n{"id": 3}\n'),
    ],
)
def test_a_torn_last_line_is_left_out_and_cut_off_before_the_next(tmp_path, content, kept, after):
    file = tmp_path / "ledger.jsonl"
    file.write_bytes(content)
    assert [row["id"] for row in read_jsonl(file)] == kept
    append_jsonl(file, {"id": 3})
    assert file.read_bytes() == after


def test_damage_before_the_last_line_is_not_passed_over(tmp_path):
    (tmp_path / "l.jsonl").write_text('{"id": 1}\n{"id"\n{"id": 3}\n')
    with pytest.raises(ValueError, match="line 2"):
        read_jsonl(tmp_path / "l.jsonl")


def test_a_number_that_is_not_finite_never_reaches_the_ledger(tmp_path):
    with pytest.raises(ValueError):
        append_jsonl(tmp_path / "l.jsonl", {"loss": float("nan")})


def record(step: int, weights: str | None = None, **changes) -> StepRecord:
    values = {
        "step": step,
        "policy_ref": f"trio://r/training_states/s{step - 1}",
        "state": f"trio://r/training_states/s{step}",
        "saved": True,
        "state_size": 10,
        "training_run": "r",
        "sampler_weights": weights,
        "time": now(),
        "digest": "d",
        "question_ids": ("q1", "q2"),
        "metrics": {"reward/mean": 0.5},
    }
    return StepRecord(**{**values, **changes})


def start(tmp_path: Path, name: str = "demo", **identity) -> Run:
    return Run.start(tmp_path, name, {"max_steps": 3}, {"seed": 1} | identity)


def test_the_ledger_gives_back_what_was_written(tmp_path):
    run = start(tmp_path)
    run.append(record(0))
    run.append(record(1, weights="trio://r/sampler_weights/w1"))
    assert start(tmp_path).ledger() == {0: record(0), 1: record(1, "trio://r/sampler_weights/w1")}
    assert list(run.checkpoints()) == ["step_1"]


def test_a_step_that_stands_twice_counts_once_and_the_last_line_wins(tmp_path):
    run = start(tmp_path)
    for step in (0, 1, 2, 2, 3):
        run.append(record(step, time=f"t{len(run.ledger())}"))
    assert list(run.ledger()) == [0, 1, 2, 3]
    assert run.ledger()[2].time == "t3"


def test_a_run_of_the_same_name_and_settings_is_taken_up_again(tmp_path):
    assert start(tmp_path).run_id == start(tmp_path).run_id


def test_changed_settings_on_an_existing_run_are_refused_with_the_difference(tmp_path):
    start(tmp_path)
    with pytest.raises(SettingsError, match="seed: 1 -> 2"):
        start(tmp_path, seed=2)


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "x" * 81, "with space"])
def test_a_name_that_is_no_directory_name_is_refused(tmp_path, name):
    with pytest.raises(SettingsError, match="run name"):
        start(tmp_path, name)


def test_an_unknown_run_lists_those_there_are(tmp_path):
    start(tmp_path, "one")
    with pytest.raises(SettingsError, match="one"):
        Run.open(tmp_path, "two")


def test_the_latest_run_is_the_one_started_last(tmp_path):
    with pytest.raises(SettingsError, match="train_flow"):
        latest_run(tmp_path)
    start(tmp_path, "b")
    start(tmp_path, "c")
    assert [run.name for run in list_runs(tmp_path)] == ["b", "c"]
    assert latest_run(tmp_path).name == "c"


def _hold(directory: Path, held) -> None:
    with Run.open(directory, "demo").lock():
        held.set()
        signal.pause()


def test_a_second_process_is_refused_with_the_first_ones_pid_and_a_killed_one_holds_nothing(
    tmp_path,
):
    run = start(tmp_path)
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    process = context.Process(target=_hold, args=(tmp_path, held))
    process.start()
    try:
        assert held.wait(60)
        with pytest.raises(SettingsError, match=f"process {process.pid} on "), run.lock():
            pass
        os.kill(process.pid, signal.SIGKILL)
        process.join(30)
        with run.lock():
            pass
    finally:
        process.kill()
