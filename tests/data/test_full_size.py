"""A set of the published size, with all its columns and defects."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.synthetic_questions import write_synthetic
from searchr1.data import DataSource, load_questions, read_manifest
from searchr1.data.verify import count_warnings
from tests.data.raw_files import BENCHMARKS

ROOT = Path(__file__).parents[2]
SECONDS = 240.0
MEGABYTES = 1000.0


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """Folder of the prepared full-size set, and seconds and memory that it took."""
    folder = tmp_path_factory.mktemp("full")
    write_synthetic(folder)
    command = [sys.executable, "-m", "benchmarks.prepare_contenders", "columnar"]
    done = subprocess.run(
        [*command, folder, folder / "data"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return folder / "data", json.loads(done.stdout.splitlines()[-1])


def test_the_set_has_the_published_size_and_shape(prepared: tuple[Path, dict]) -> None:
    manifest = read_manifest(prepared[0])
    assert prepared[1]["rows"] == 221_328
    assert count_warnings(DataSource.HUB, manifest.rows_read) == []


def test_dev70_holds_ten_of_each_benchmark(prepared: tuple[Path, dict]) -> None:
    sources = [question.source for question in load_questions(prepared[0], "dev70")]
    assert {source: sources.count(source) for source in sources} == dict.fromkeys(BENCHMARKS, 10)
    assert len(load_questions(prepared[0], "dev500")) == 500


def test_every_defect_is_met_and_too_few_rows_are_rejected_to_fail(
    prepared: tuple[Path, dict],
) -> None:
    manifest = read_manifest(prepared[0])
    assert set(manifest.rejected) == {"blank_question", "no_answer", "duplicate"}
    kept = sum(sum(manifest.rows[name].values()) for name in ("train", "test"))
    assert kept + sum(manifest.rejected.values()) == 221_328
    assert manifest.overlap > 100
    answers = [answer for q in load_questions(prepared[0], "test") for answer in q.answers]
    assert not [answer for answer in answers if answer != answer.strip() or "[" in answer]


def test_it_takes_less_than_a_gigabyte(prepared: tuple[Path, dict]) -> None:
    assert prepared[1]["peak_mb"] < MEGABYTES
