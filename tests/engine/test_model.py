"""LoRA variants: what is trained, what is shared, and that merged and unmerged agree."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from searchr1.engine.config import EngineConfig
from searchr1.engine.errors import Code, EngineError
from searchr1.engine.model import (
    LoraSettings,
    ServedModel,
    load_lora,
    lora_parameters,
    lora_targets,
)
from tests.engine.conftest import make_tokenizer

ALL = LoraSettings(4, 1, train_attn=True, train_mlp=True, train_unembed=True)
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


def served(folder: Path, tmp_path: Path, **settings: int) -> ServedModel:
    """A model as the engine holds it."""
    return ServedModel("tiny", folder, EngineConfig(home=tmp_path, models={}, **settings))


def random_weights(base: ServedModel, settings: LoraSettings) -> dict[str, torch.Tensor]:
    """LoRA weights that change the logits a lot."""
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(parameter.shape, generator=generator) * 0.3
        for name, parameter in lora_parameters(base.trainable(settings)).items()
    }


def test_layers_are_chosen_by_kind(model_folder: Path, tmp_path: Path) -> None:
    base = served(model_folder, tmp_path).base

    def kinds(attn: bool, mlp: bool, unembed: bool) -> set[str]:
        names = lora_targets(base, LoraSettings(4, None, attn, mlp, unembed))
        assert len(names) == len(set(names))
        return {name.rsplit(".", 1)[-1] for name in names}

    assert kinds(True, False, False) == {"q_proj", "k_proj", "v_proj", "o_proj"}
    assert kinds(False, True, False) == {"gate_proj", "up_proj", "down_proj"}
    assert kinds(False, False, True) == {"lm_head"}
    assert len(kinds(True, True, True)) == 8
    with pytest.raises(EngineError) as error:
        kinds(False, False, False)
    assert error.value.code is Code.VALIDATION_FAILED


def test_a_new_variant_equals_the_base_and_its_seed_decides_the_rest(
    model_folder: Path, tmp_path: Path
) -> None:
    base = served(model_folder, tmp_path)
    one, same, other = (base.trainable(ALL._replace(seed=seed)) for seed in (1, 1, 2))
    with torch.no_grad():
        assert torch.equal(one(input_ids=IDS).logits, base.base(input_ids=IDS).logits)
    name = next(name for name in lora_parameters(one) if "lora_A" in name)
    assert torch.equal(lora_parameters(one)[name], lora_parameters(same)[name])
    assert not torch.equal(lora_parameters(one)[name], lora_parameters(other)[name])


@torch.no_grad()
def test_merged_and_unmerged_weights_agree_and_leave_the_base_alone(
    model_folder: Path, tmp_path: Path
) -> None:
    merging, layered = served(model_folder, tmp_path), served(model_folder, tmp_path, merge_bytes=0)
    weights = random_weights(merging, ALL)
    trained = merging.trainable(ALL)
    load_lora(trained, weights)
    expected = trained(input_ids=IDS).logits
    merged, unmerged = (b.for_sampling(ALL, weights) for b in (merging, layered))
    assert not lora_parameters(merged)
    assert lora_parameters(unmerged)
    torch.testing.assert_close(merged(input_ids=IDS).logits, expected, atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(unmerged(input_ids=IDS).logits, expected, atol=1e-5, rtol=1e-5)
    untouched = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    plain = untouched(input_ids=IDS).logits
    assert torch.equal(merging.base(input_ids=IDS).logits, plain)
    assert float((expected - plain).abs().max()) > 0.1


def test_variants_share_the_base_tensors(model_folder: Path, tmp_path: Path) -> None:
    base = served(model_folder, tmp_path)
    shared = {parameter.data_ptr() for parameter in base.base.parameters()}
    variant = base.trainable(ALL)
    own = [p for p in variant.parameters() if p.data_ptr() not in shared]
    assert {id(p) for p in own} == {id(p) for p in lora_parameters(variant).values()}


def test_weights_of_another_shape_are_refused(model_folder: Path, tmp_path: Path) -> None:
    base = served(model_folder, tmp_path)
    weights = random_weights(base, ALL._replace(rank=8))
    with pytest.raises(EngineError) as error:
        load_lora(base.trainable(ALL), weights)
    assert error.value.code is Code.CHECKPOINT_INCOMPATIBLE


@torch.no_grad()
def test_conv1d_models_train_and_merge(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=259, n_embd=32, n_layer=2, n_head=2, eos_token_id=256)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    make_tokenizer(tmp_path / "gpt2")
    base = served(tmp_path / "gpt2", tmp_path)
    settings = ALL._replace(train_unembed=False)
    weights = random_weights(base, settings)
    trained = base.trainable(settings)
    load_lora(trained, weights)
    merged = base.for_sampling(settings, weights)
    torch.testing.assert_close(
        merged(input_ids=IDS).logits, trained(input_ids=IDS).logits, atol=1e-4, rtol=1e-4
    )
