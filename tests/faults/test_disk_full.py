"""A disk without space ends a training with a clear message, and costs nothing but time.

The limit is one on the size of files, set from outside on the flow's process: the system refuses
to write beyond it as it does on a full disk, half a line written included.
"""

import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from searchr1.runs import read_jsonl
from tests.faults.outcome import Outcome, outcome
from tests.faults.stage import RUN_SECONDS, Stage

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]
PADDING = 1 << 18
"""Bytes; larger than any other file that a training writes."""


def limit_files(process: subprocess.Popen[str], size: int) -> None:
    """Let the process write no file beyond `size` bytes."""
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + RUN_SECONDS
    while not path.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)


def test_no_space_for_trajectories(stage: Stage, undisturbed: Callable[..., Outcome]) -> None:
    expected = undisturbed()
    stage.engine.meet(None)
    process = stage.start("full")
    ledger = stage.runs_dir / "full" / "ledger.jsonl"
    wait_for(ledger, process)
    limit_files(process, 2000)
    printed = stage.end(process, 1)
    assert printed.strip().splitlines()[-1].startswith("Error: no space is left to write")
    assert [row["step"] for row in read_jsonl(ledger)] == [0]
    stage.finish("full")
    outcome(stage, "full").assert_equal(expected)


def test_no_space_for_the_ledger(stage: Stage, undisturbed: Callable[..., Outcome]) -> None:
    """The update is applied and saved, but not recorded: it is applied again, once, from the
    state before it."""
    expected = undisturbed()
    stage.engine.meet(None)
    process = stage.start("torn")
    run = stage.runs_dir / "torn"
    wait_for(run / "ledger.jsonl", process)
    with (run / "ledger.jsonl").open("ab") as file:
        file.write(b"\n" * PADDING)  # lines that mean nothing, so that no other file is as large
    limit_files(process, (run / "ledger.jsonl").stat().st_size + 100)
    printed = stage.end(process, 1)
    assert printed.strip().splitlines()[-1].startswith("Error: no space is left to write")
    assert "ledger.jsonl" in printed.strip().splitlines()[-1]
    assert not (run / "ledger.jsonl").read_bytes().endswith(b"\n"), "a torn line, as on a disk"
    assert [row["step"] for row in read_jsonl(run / "ledger.jsonl")] == [0]
    stage.finish("torn")
    outcome(stage, "torn").assert_equal(expected)
