"""What the tests of the engine share: data, and arithmetic that does not use the engine."""

from pathlib import Path

import numpy as np
import pytrio as trio
import torch
from peft import LoraConfig, get_peft_model
from safetensors import safe_open
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests.engine.conftest import ALIAS, VOCAB


def prompt_of(*tokens: int) -> trio.ModelInput:
    """A prompt of token ids."""
    return trio.ModelInput.from_ints(list(tokens))


def datum(tokens: list[int], advantages: list[float], logprobs: list[float]) -> trio.Datum:
    """A policy-loss datum: T + 1 tokens, T advantages and sampler logprobs."""
    return trio.Datum(
        model_input=trio.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": np.asarray(tokens[1:], dtype=np.int64),
            "logprobs": np.asarray(logprobs, dtype=np.float32),
            "advantages": np.asarray(advantages, dtype=np.float32),
        },
    )


def text_datum(tokens: list[int], weights: list[float] | None = None) -> trio.Datum:
    """A cross-entropy datum: T + 1 tokens, T weights (default 1)."""
    inputs = {"target_tokens": np.asarray(tokens[1:], dtype=np.int64)}
    if weights is not None:
        inputs["weights"] = np.asarray(weights, dtype=np.float32)
    return trio.Datum(model_input=trio.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


def new_training(
    service: trio.ServiceClient, *, seed: int = 3, rank: int = 4
) -> trio.TrainingClient:
    """A fresh run on the test model."""
    return service.create_lora_training_client(ALIAS, rank=rank, seed=seed)


def random_batch(seed: int, count: int = 5) -> list[tuple[list[int], list[float], list[float]]]:
    """Ragged (tokens, advantages, logprobs) as for `datum`, with some zero advantages."""
    generator = np.random.default_rng(seed)
    batch = []
    for _ in range(count):
        length = int(generator.integers(3, 24))
        tokens = generator.integers(0, VOCAB, length + 1).tolist()
        advantages = generator.normal(size=length) * (generator.random(length) < 0.6)
        logprobs = generator.normal(-5.0, 1.0, length)
        batch.append(
            (tokens, advantages.astype(np.float32).tolist(), logprobs.astype(np.float32).tolist())
        )
    return batch


def checkpoint_tensors(home: Path, uri: str) -> dict[str, Tensor]:
    """Everything in a checkpoint's file."""
    path = home / "checkpoints" / f"{uri.removeprefix('trio://')}.safetensors"
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


class Reference:
    """The policy of a saved state, built with transformers and peft alone."""

    def __init__(self, model_folder: Path, weights: dict[str, Tensor], rank: int = 4) -> None:
        model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
        targets = r".*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)|lm_head"
        config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets)
        self.model = get_peft_model(model, config).eval()
        self.named = {
            name.replace(".default.", "."): parameter
            for name, parameter in self.model.named_parameters()
            if parameter.requires_grad
        }
        saved = {
            name.removeprefix("lora:"): tensor
            for name, tensor in weights.items()
            if name.startswith("lora:")
        }
        assert saved.keys() == self.named.keys()
        with torch.no_grad():
            for name, parameter in self.named.items():
                parameter.copy_(saved[name])

    def logprobs(self, tokens: list[int]) -> Tensor:
        """Logprob [T] of each of T + 1 tokens but the first, one unpadded forward pass."""
        ids = torch.tensor([tokens])
        logits = self.model(input_ids=ids[:, :-1]).logits[0, :, :VOCAB]
        return torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None])[:, 0]
