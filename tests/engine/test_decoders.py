"""Batched decoding gives the logits of plain forward passes, whatever rows come and go.

Tolerance 1e-4 on logits of order 10 in float32: sums are taken in another order.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GPT2Config,
    MistralConfig,
    PreTrainedConfig,
    Qwen3Config,
)

from searchr1.engine.config import EngineConfig
from searchr1.engine.decoder import Decoder, make_decoder
from searchr1.engine.model import ServedModel
from searchr1.engine.padded import PaddedDecoder
from searchr1.engine.slots import SlotDecoder
from tests.engine.conftest import VOCAB, make_tokenizer

CLOSE = {"atol": 1e-4, "rtol": 1e-4}


@pytest.fixture
def served(model_folder: Path, tmp_path: Path) -> ServedModel:
    """The test model, as the engine holds it."""
    return ServedModel("tiny", model_folder, EngineConfig(home=tmp_path, models={}))


class Checked:
    """Drives a decoder and compares every answer with an uncached forward pass of each row."""

    def __init__(self, model: torch.nn.Module, decoder: Decoder) -> None:
        self.model = model
        self.decoder = decoder
        self.rows: list[list[int]] = []

    def expect(self, logits: torch.Tensor, rows: Sequence[list[int]]) -> None:
        assert len(logits) == len(rows)
        for got, tokens in zip(logits, rows, strict=True):
            wanted = self.model(input_ids=torch.tensor([tokens])).logits[0, -1]
            torch.testing.assert_close(got, wanted, **CLOSE)

    def join(self, prompts: list[list[int]]) -> None:
        order, logits = self.decoder.join(prompts)
        assert sorted(order) == list(range(len(prompts)))
        new = [list(prompts[i]) for i in order]
        self.expect(logits, new)
        self.rows += new

    def step(self, tokens: list[int]) -> None:
        for row, token in zip(self.rows, tokens, strict=True):
            row.append(token)
        self.expect(self.decoder.step(tokens), self.rows)

    def remove(self, row: int) -> list[int]:
        """Remove a row; its tokens."""
        self.decoder.remove(row)
        removed, last = self.rows[row], self.rows.pop()
        if removed is not last:
            self.rows[row] = last
        return removed


@torch.no_grad()
@pytest.mark.parametrize("seed", range(3))
def test_slots_equal_plain_forward_passes_for_any_coming_and_going(
    served: ServedModel, seed: int
) -> None:
    rng = random.Random(seed)
    decoder = SlotDecoder(served.base, served.layers, 12, 1 << 20)
    checked = Checked(served.base, decoder)

    def prompt() -> list[int]:
        return [rng.randrange(VOCAB) for _ in range(rng.randint(1, 40))]

    gone: list[list[int]] = []
    for _ in range(40):
        action = rng.random()
        if action < 0.4 and decoder.rows < 8:
            first = prompt()
            again = [*rng.choice(gone), *prompt()] if gone and rng.random() < 0.7 else prompt()
            prompts = [first, again, first][: rng.randint(1, 3)]
            checked.join([p[:200] for p in prompts])
        elif action < 0.6 and checked.rows:
            gone.append(checked.remove(rng.randrange(len(checked.rows))))
        elif checked.rows:
            checked.step([rng.randrange(VOCAB) for _ in checked.rows])
    assert decoder.reused_tokens > 0


@torch.no_grad()
def test_the_next_turn_computes_only_its_new_tokens(served: ServedModel) -> None:
    decoder = SlotDecoder(served.base, served.layers, 8, 1 << 20)
    checked = Checked(served.base, decoder)
    checked.join([[1, 2, 3, 4], [9, 8, 7]])
    checked.step([5, 6])
    turn = checked.remove(0)
    assert decoder.computed_tokens == 7
    checked.join([[*turn, 50, 51]])
    assert decoder.computed_tokens == 7 + 2
    assert decoder.reused_tokens == len(turn)


@torch.no_grad()
def test_equal_prompts_are_computed_once(served: ServedModel) -> None:
    decoder = SlotDecoder(served.base, served.layers, 8, 1 << 20)
    checked = Checked(served.base, decoder)
    checked.join([[1, 2, 3]] * 4 + [[4, 5]])
    assert decoder.computed_tokens == 5
    checked.step([1, 2, 3, 4, 5])


@torch.no_grad()
def test_memory_bounds_the_rows_but_one_always_goes(served: ServedModel) -> None:
    decoder = SlotDecoder(served.base, served.layers, 8, 2 * 128)
    assert decoder.room([], [100, 100, 100]) == 2
    assert decoder.room([], [100, 200, 100]) == 1
    assert decoder.room([], [1000]) == 1
    checked = Checked(served.base, decoder)
    checked.join([[1, 2, 3]])
    assert decoder.room([100], [100, 100]) == 1
    assert decoder.room([200], [100]) == 0
    for _ in range(200):
        checked.step([1])
    checked.remove(0)
    checked.join([[3, 2, 1]])
    roomy = SlotDecoder(served.base, served.layers, 3, 1 << 20)
    assert roomy.room([], [5] * 10) == 3


def hybrid() -> PreTrainedConfig:
    """Linear attention in every layer but each fourth, as in Qwen3.5."""
    config = AutoConfig.for_model(
        "qwen3_5_text",
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        max_position_embeddings=128,
        eos_token_id=256,
    )
    assert "linear_attention" in config.layer_types
    return config


SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "eos_token_id": 256,
}
ARCHITECTURES = {
    "hybrid": (hybrid, PaddedDecoder),
    "sliding window": (
        lambda: MistralConfig(**SMALL, sliding_window=8, max_position_embeddings=128),
        PaddedDecoder,
    ),
    "learned positions, Conv1D": (
        lambda: GPT2Config(
            vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=2, n_positions=128, eos_token_id=256
        ),
        SlotDecoder,
    ),
    "plain": (lambda: Qwen3Config(**SMALL, head_dim=16), SlotDecoder),
}


@torch.no_grad()
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_gets_a_decoder_that_equals_plain_forward_passes(
    name: str, tmp_path: Path
) -> None:
    make_config, expected = ARCHITECTURES[name]
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(make_config()).save_pretrained(tmp_path / "model")
    make_tokenizer(tmp_path / "model")
    served = ServedModel(name, tmp_path / "model", EngineConfig(home=tmp_path, models={}))
    decoder = make_decoder(served, served.base, 8)
    assert isinstance(decoder, expected)
    checked = Checked(served.base, decoder)
    for _ in range(2):
        assert decoder.room([], [12, 3, 7]) == 3
        checked.join([list(range(12)), [5, 4, 3], [7] * 7])
        for turn in range(6):
            checked.step([turn, turn + 1, turn + 2])
        checked.remove(0)
        checked.step([1, 2])
        checked.remove(1)
        checked.step([3])
        checked.remove(0)
