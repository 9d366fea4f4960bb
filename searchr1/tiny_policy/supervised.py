"""Supervised training of the tiny policy, one stage at a time.

A stage starts from the weights of the stage before, with fresh optimiser state. With two
processes, each works on its half of every batch and gradients are averaged, so the weights stay
equal. The same stage, start and number of processes give the same weights on the same machine.
"""

import itertools
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen3ForCausalLM

from searchr1.tiny_policy.examples import WRITE_WEIGHT, Example, Mixture, examples
from searchr1.tiny_policy.model import load_model, new_model
from searchr1.tiny_policy.muon import Muon

WARM_UP_STEPS = 20
_MICRO_BATCH = 12
_REPORT_EVERY = 25


@dataclass(frozen=True)
class Stage:
    """One stretch of training with one mixture of examples.

    Rates go linearly from the first to the last step by `rate_end`, a factor; the first
    `WARM_UP_STEPS` steps are lower.
    """

    name: str
    number: int
    """Chooses the stage's practice worlds and random draws, none shared with another stage."""
    steps: int
    batch_size: int
    mixture: Mixture
    matrix_rate: float
    """Muon's, for matrices inside the layers."""
    other_rate: float
    """AdamW's, for embedding and norms."""
    rate_end: float = 1.0

    def rate_factor(self, step: int) -> float:
        """What both rates are multiplied by at `step`, 0-based."""
        warm_up = min(1.0, (step + 1) / WARM_UP_STEPS)
        return warm_up * (1 - (1 - self.rate_end) * step / max(1, self.steps - 1))


class StepStats(NamedTuple):
    """Over the tokens that the policy has to write, in one batch of one process."""

    loss: float
    """Mean cross-entropy, nats."""
    accuracy: float
    tokens: int
    """All tokens of the batch."""


class Learner:
    """A model and its two optimisers; `processes` > 1 needs an initialised process group."""

    def __init__(self, model: Qwen3ForCausalLM, stage: Stage, processes: int = 1) -> None:
        self._model = model
        self._stage = stage
        self._processes = processes
        self._parameters = list(model.parameters())
        matrices = [
            parameter
            for name, parameter in model.named_parameters()
            if parameter.ndim == 2 and "embed" not in name
        ]
        inside = set(map(id, matrices))
        others = [parameter for parameter in self._parameters if id(parameter) not in inside]
        self._optimisers: list[tuple[torch.optim.Optimizer, float]] = [
            (Muon(matrices, lr=stage.matrix_rate), stage.matrix_rate),
            (
                torch.optim.AdamW(others, lr=stage.other_rate, betas=(0.9, 0.98), weight_decay=0.0),
                stage.other_rate,
            ),
        ]

    def step(self, step: int, batch: Sequence[Example]) -> StepStats:
        """One update on `batch`, at the rates of `step`."""
        stats = accumulate_gradients(self._model, batch)
        if self._processes > 1:
            self._average_gradients()
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        for optimiser, rate in self._optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate * self._stage.rate_factor(step)
            optimiser.step()
            optimiser.zero_grad()
        return stats

    def _average_gradients(self) -> None:
        gradients = [each.grad for each in self._parameters if each.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        flat /= self._processes
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, averaged in zip(gradients, flat.split(sizes), strict=True):
            gradient.copy_(averaged.view_as(gradient))


def accumulate_gradients(model: Qwen3ForCausalLM, batch: Sequence[Example]) -> StepStats:
    """Add the gradient of the weighted mean cross-entropy over `batch` to the parameters."""
    total_weight = sum(sum(example.weights[1:]) for example in batch)
    loss, correct, written = 0.0, 0, 0
    for start in range(0, len(batch), _MICRO_BATCH):
        tokens, weights = pad(batch[start : start + _MICRO_BATCH])
        # Right padding needs no mask: attention is causal and padding has no weight.
        hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state[:, :-1]
        targets, weights = tokens[:, 1:], weights[:, 1:]
        counted = weights > 0
        logits = model.lm_head(hidden[counted])
        losses = cross_entropy(logits, targets[counted], reduction="none")
        ((losses * weights[counted]).sum() / total_weight).backward()
        with torch.no_grad():
            write = weights[counted] == WRITE_WEIGHT
            loss += losses[write].sum().item()
            correct += int((logits[write].argmax(-1) == targets[counted][write]).sum())
            written += int(write.sum())
    return StepStats(
        loss=loss / written,
        accuracy=correct / written,
        tokens=sum(len(example.tokens) for example in batch),
    )


def pad(batch: Sequence[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and weights of B examples, both [B, T], padded on the right with zeros."""
    length = max(len(example.tokens) for example in batch)
    tokens = torch.zeros(len(batch), length, dtype=torch.long)
    weights = torch.zeros(len(batch), length)
    for row, example in enumerate(batch):
        tokens[row, : len(example.tokens)] = torch.tensor(example.tokens)
        weights[row, : len(example.weights)] = torch.tensor(example.weights)
    return tokens, weights


def run_stage(
    stage: Stage,
    tokenizer_folder: Path,
    start: Path | None,
    output: Path,
    processes: int,
    report: Callable[[str], None] = print,
) -> None:
    """Train `stage` from the model in `start` (None: from nothing) and save it to `output`.

    `output` appears whole at the end or not at all. `report` receives lines on the progress; with
    more than one process it has to be picklable.
    """
    with tempfile.TemporaryDirectory() as meeting_place:
        arguments = (stage, tokenizer_folder, start, output, processes, meeting_place, report)
        if processes == 1:
            _work(0, *arguments)
        else:
            multiprocessing.spawn(_work, arguments, nprocs=processes)  # type: ignore[attr-defined]


def _work(
    rank: int,
    stage: Stage,
    tokenizer_folder: Path,
    start: Path | None,
    output: Path,
    processes: int,
    meeting_place: str,
    report: Callable[[str], None],
) -> None:
    """One process's part of `run_stage`."""
    torch.set_num_threads(1)  # contended threads are slower than one
    if processes > 1:
        distributed.init_process_group(
            "gloo",
            init_method=f"file://{meeting_place}/group",
            rank=rank,
            world_size=processes,
        )
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    model = new_model(tokenizer, seed=0) if start is None else load_model(start)
    model.train()
    learner = Learner(model, stage, processes)
    batches = examples(
        tokenizer,
        stage.mixture,
        batch_size=stage.batch_size // processes,
        seeds=itertools.count(1_000_000 * stage.number + rank, processes),
        rng=random.Random(f"{stage.number}/{rank}"),
    )
    started, tokens, recent = time.monotonic(), 0, []
    for step, batch in enumerate(itertools.islice(batches, stage.steps)):
        recent.append(learner.step(step, batch))
        tokens += recent[-1].tokens * processes
        if rank == 0 and ((step + 1) % _REPORT_EVERY == 0 or step + 1 == stage.steps):
            elapsed = time.monotonic() - started
            report(
                f"{stage.name}: step {step + 1}/{stage.steps}, "
                f"loss {_mean([stats.loss for stats in recent]):.3f}, "
                f"accuracy {_mean([stats.accuracy for stats in recent]):.3f}, "
                f"{tokens / elapsed:.0f} tokens/s, {elapsed:.0f} s, "
                f"about {elapsed / (step + 1) * (stage.steps - step - 1):.0f} s left"
            )
            recent = []
    if rank == 0:
        model.save_pretrained(output.with_suffix(".part"))
        output.with_suffix(".part").rename(output)
    if processes > 1:
        distributed.destroy_process_group()


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
