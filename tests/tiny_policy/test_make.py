"""The script: from nothing to a folder that transformers loads, going on after finished stages."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from searchr1.tiny_policy import WEIGHTS, make

TINY = tuple(
    dataclasses.replace(stage, steps=1, batch_size=2) for stage in (make.STAGES[0], make.STAGES[-1])
)


def test_it_makes_a_model_like_the_packaged_one_and_resumes_by_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make, "TOKENIZER_WORLDS", 3)
    make.make(tmp_path, processes=1, stages=TINY[:1])
    reading = (tmp_path / "stages" / "reading" / "model.safetensors").stat().st_mtime_ns
    make.make(tmp_path, processes=1, stages=TINY)
    said = capsys.readouterr().out
    assert "reading: finished by an earlier run" in said
    assert "habits: step 1/1" in said
    assert (tmp_path / "stages" / "reading" / "model.safetensors").stat().st_mtime_ns == reading

    made = {file.name for file in tmp_path.iterdir() if file.is_file()}
    assert made == {file.name for file in WEIGHTS.iterdir()}
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert model.dtype == torch.float16
    assert model.config.vocab_size == len(AutoTokenizer.from_pretrained(tmp_path))
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        made_settings = json.loads((tmp_path / name).read_text())
        packaged = json.loads((WEIGHTS / name).read_text())
        assert set(made_settings) == set(packaged), name
        assert str(tmp_path) not in (tmp_path / name).read_text()


def test_the_command_line_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        make.main(["--help"])
    assert exited.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "--output" in said and "--processes" in said
    assert "half an hour on two idle cores" in said
