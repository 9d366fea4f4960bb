"""`python -m searchr1.warehouse` in a process of its own."""

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest

from tests.synthetic_run import make_run


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small run, not loaded yet."""
    folder = tmp_path_factory.mktemp("command") / "runs"
    make_run(folder, steps=1, evaluation_questions=7)
    return folder


def ask(runs_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [sys.executable, "-m", "searchr1.warehouse", "--runs-dir", str(runs_dir), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "100"},
        cwd=Path(__file__).parents[2],
    )


def test_a_query_prints_a_table(runs_dir: Path) -> None:
    done = ask(runs_dir, "select checkpoint, em_macro, gained from comparison")
    assert done.returncode == 0, done.stderr
    header, first, *_ = done.stdout.splitlines()
    assert header.split() == ["checkpoint", "em_macro", "gained"]
    assert first.split()[0] == "base"
    assert first.split()[2] == "-"


def test_without_a_query_everything_that_can_be_asked_is_listed(runs_dir: Path) -> None:
    done = ask(runs_dir)
    assert done.returncode == 0, done.stderr
    for name in ("trajectories", "searches", "comparison", "evidence_use", "slowest_trajectories"):
        assert name in done.stdout
    assert "One row a search." in done.stdout


def test_csv_is_exact(runs_dir: Path) -> None:
    done = ask(runs_dir, "--csv", "select question, em from trajectories order by all limit 3")
    rows = list(csv.reader(io.StringIO(done.stdout)))
    assert rows[0] == ["question", "em"]
    assert len(rows) == 4


def test_a_wrong_query_says_so_and_lists_the_tables(runs_dir: Path) -> None:
    done = ask(runs_dir, "select nothing from nowhere")
    assert done.returncode == 1
    assert "nowhere" in done.stderr
    assert "trajectories" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_folder_says_what_to_do(tmp_path: Path) -> None:
    done = ask(tmp_path / "absent", "from runs")
    assert done.returncode == 2
    assert "--runs-dir" in done.stderr
    assert not (tmp_path / "absent").exists()


def test_the_warehouse_cannot_be_written_through_the_command(runs_dir: Path) -> None:
    done = ask(runs_dir, "delete from trajectories")
    assert done.returncode == 1
    assert "read-only" in done.stderr
