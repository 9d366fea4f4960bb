"""The packaged weights: complete, small, loadable, telling nothing of the machine that made
them; a policy with the skills and without the habits."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from searchr1.tiny_policy import WEIGHTS
from searchr1.tiny_policy.measure import measure
from searchr1.tiny_policy.model import load_model
from searchr1.tiny_policy.tokenizer import TEMPLATE


def test_the_folder_is_complete_and_small() -> None:
    files = {file.name: file.stat().st_size for file in WEIGHTS.iterdir()}
    assert set(files) == {
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert sum(files.values()) < 2_300_000


@pytest.mark.parametrize("file", sorted(WEIGHTS.glob("*.json")), ids=lambda file: file.name)
def test_settings_hold_no_path_and_no_trace_of_loading(file: Path) -> None:
    def strings(value: object) -> list[str]:
        if isinstance(value, dict):
            return [text for pair in value.items() for part in pair for text in strings(part)]
        if isinstance(value, list):
            return [text for part in value for text in strings(part)]
        return [value] if isinstance(value, str) else []

    settings = json.loads(file.read_text(encoding="utf-8"))
    if file.name == "tokenizer.json":
        settings.pop("model")  # the vocabulary is text, not settings
    found = strings(settings)
    assert not [text for text in found if text.startswith(("/", "~", "\\")) or ":\\" in text]
    assert not {"name_or_path", "_name_or_path", "is_local", "local_files_only"} & set(found)


def test_the_weights_are_stored_in_half_precision() -> None:
    with safe_open(WEIGHTS / "model.safetensors", framework="pt") as file:
        tensors = [file.get_tensor(name) for name in file.keys()]  # noqa: SIM118
    assert {tensor.dtype for tensor in tensors} == {torch.float16}
    assert all(tensor.isfinite().all() for tensor in tensors)


def test_model_and_tokenizer_fit_together(tokenizer: PreTrainedTokenizerFast) -> None:
    model = AutoModelForCausalLM.from_pretrained(WEIGHTS)
    assert model.config.vocab_size == len(tokenizer)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token_id != tokenizer.eos_token_id


def test_the_packaged_chat_template_is_the_one_of_the_script() -> None:
    packaged = (WEIGHTS / "chat_template.jinja").read_text(encoding="utf-8")
    assert packaged == TEMPLATE.read_text(encoding="utf-8")


def test_the_policy_has_the_skills_but_poor_habits(tokenizer: PreTrainedTokenizerFast) -> None:
    behaviour = measure(load_model(WEIGHTS), tokenizer)
    assert behaviour.searches > 0.8
    assert 0.2 < behaviour.in_form < 0.75
    assert behaviour.goes_on < 0.6
    assert 0.1 < behaviour.two_hop + behaviour.one_hop < 1.0
