"""What makes two flow runs the same training: the settings that matter, and the questions."""

from flows.train_flow import run_identity

import pytest

from searchr1.config import TrainSettings, resolve
from searchr1.data import prepare
from searchr1.errors import SettingsError
from searchr1.runs import Run


def settings(folder, **given):
    base = {"profile": "local", "data_dir": folder / "data", "run_name": "one"}
    return resolve(TrainSettings, base | given)


def test_a_run_knows_its_questions_by_their_checksum_and_not_by_how_they_were_prepared(tmp_path):
    plain = settings(tmp_path)
    prepare(plain)
    before = run_identity(plain)
    Run.start(tmp_path / "runs", "one", {}, before)

    again = settings(tmp_path, jsonl=True, max_rejected_share=0.5)
    prepare(again)
    assert run_identity(again) == before
    Run.start(tmp_path / "runs", "one", {}, run_identity(again))

    other = settings(tmp_path, world_seed=18)
    prepare(other)
    with pytest.raises(SettingsError, match="train_questions"):
        Run.start(tmp_path / "runs", "one", {}, run_identity(other))
    assert run_identity(settings(tmp_path, learning_rate=1e-4)) != run_identity(other)
