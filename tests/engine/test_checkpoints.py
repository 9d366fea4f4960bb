"""Checkpoints on disk: whole or absent, found again by anybody, gone when expired."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from searchr1.engine.checkpoints import PARTIAL_SECONDS, Checkpoint, CheckpointStore, Kind
from searchr1.engine.errors import Code, EngineError
from searchr1.engine.model import LoraSettings

TENSORS = {"lora:a": torch.arange(6.0).reshape(2, 3), "adam:step:a": torch.tensor(3.0)}


def checkpoint(name: str = "step-1", **changes: object) -> Checkpoint:
    """A header."""
    plain = Checkpoint(
        cuid=f"ckpt_{name}",
        run="run_1",
        kind=Kind.STATE,
        name=name,
        model_alias="tiny",
        model_id="/models/tiny",
        lora=LoraSettings(8, 5, True, True, False),
        step=3,
        created=time.time(),
        expires=None,
        visibility="WORKSPACE",
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def code_of(call: object, *arguments: object, **named: object) -> Code:
    """Code of the EngineError that a call raises."""
    with pytest.raises(EngineError) as error:
        call(*arguments, **named)  # type: ignore[operator]
    return error.value.code


def test_another_store_on_the_same_home_reads_what_was_saved(tmp_path: Path) -> None:
    saved = checkpoint()
    size = CheckpointStore(tmp_path).save(saved, TENSORS, overwrite=False)
    other = CheckpointStore(tmp_path)
    assert saved.uri == "trio://run_1/training_states/step-1"
    found, tensors = other.load(saved.uri)
    assert found == saved
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert other.path(found).stat().st_size == size
    assert other.by_cuid(saved.cuid) == saved


def test_a_taken_name_is_kept_unless_overwritten(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    first, second = checkpoint(step=1), checkpoint(step=2, cuid="ckpt_other")
    store.save(first, TENSORS, overwrite=False)
    assert code_of(store.save, second, TENSORS, overwrite=False) is Code.CHECKPOINT_EXISTS
    assert store.find(first.uri) == first
    store.save(second, TENSORS, overwrite=True)
    assert store.find(first.uri) == second
    assert not list((tmp_path / "partial").iterdir())


def test_two_engines_saving_one_name_at_once_cannot_both_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = CheckpointStore(tmp_path), CheckpointStore(tmp_path)
    winner, loser = checkpoint(cuid="ckpt_winner"), checkpoint(cuid="ckpt_loser")
    look = store._alive

    def look_then_be_overtaken(path: Path) -> Checkpoint | None:
        found = look(path)
        other.save(winner, TENSORS, overwrite=False)
        return found

    monkeypatch.setattr(store, "_alive", look_then_be_overtaken)
    assert code_of(store.save, loser, TENSORS, overwrite=False) is Code.CHECKPOINT_EXISTS
    assert other.find(winner.uri) == winner


def test_an_expired_checkpoint_is_gone_and_its_name_free(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    old = checkpoint(expires=time.time() - 1)
    store.save(old, TENSORS, overwrite=False)
    assert store.list() == []
    assert not store.path(old).exists()
    store.save(old, TENSORS, overwrite=False)
    assert code_of(store.find, old.uri) is Code.CHECKPOINT_NOT_FOUND
    store.save(checkpoint(expires=time.time() + 60), TENSORS, overwrite=False)
    assert len(store.list()) == 1


def test_a_half_written_file_is_never_seen_and_is_removed_when_old(tmp_path: Path) -> None:
    CheckpointStore(tmp_path)
    old, young = tmp_path / "partial/old.safetensors", tmp_path / "partial/young.safetensors"
    for path in (old, young):
        path.write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{half")
    past = time.time() - PARTIAL_SECONDS - 1
    os.utime(old, (past, past))
    store = CheckpointStore(tmp_path)
    assert store.list() == []
    assert not old.exists()
    assert young.exists(), "it may be another engine's, which is writing it"


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff" * 64, (2).to_bytes(8, "little") + b"{}"],
    ids=["empty", "noise", "no metadata"],
)
def test_a_foreign_file_is_ignored(tmp_path: Path, content: bytes) -> None:
    store = CheckpointStore(tmp_path)
    saved = checkpoint()
    store.save(saved, TENSORS, overwrite=False)
    store.path(saved).with_name("broken.safetensors").write_bytes(content)
    assert store.list() == [saved]


def test_checkpoints_are_listed_oldest_first_and_by_run(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    late = checkpoint("a", created=200.0)
    early = checkpoint("b", created=100.0, kind=Kind.WEIGHTS)
    other = checkpoint("c", created=150.0, run="run_2")
    for one in (late, early, other):
        store.save(one, TENSORS, overwrite=False)
    assert store.list() == [early, other, late]
    assert store.list("run_1") == [early, late]
    assert store.list("../run_1") == store.list("*") == []
    store.delete(other)
    store.delete(other)
    assert store.list("run_2") == []


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "trio://",
        "trio://run_1/training_states/none",
        "trio://run_1/other/step-1",
        "trio://run_1/training_states/../../secret",
        "trio://../training_states/step-1",
        "trio://run_1/training_states/.hidden",
        "run_1/training_states/step-1",
        "trio://run_1/training_states/step-1/more",
    ],
)
def test_a_uri_that_leads_nowhere_is_not_found(tmp_path: Path, uri: str) -> None:
    store = CheckpointStore(tmp_path)
    store.save(checkpoint(), TENSORS, overwrite=False)
    assert code_of(store.find, uri) is Code.CHECKPOINT_NOT_FOUND
