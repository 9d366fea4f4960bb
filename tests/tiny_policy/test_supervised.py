"""Supervised training: it learns, its rates follow the stage, two processes are one."""

import random
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from searchr1.tiny_policy import WEIGHTS
from searchr1.tiny_policy.examples import Example, Mixture, PracticeWorld, fact_list_example
from searchr1.tiny_policy.model import load_model, new_model, temper
from searchr1.tiny_policy.supervised import Learner, Stage, accumulate_gradients, run_stage

STAGE = Stage(
    name="test",
    number=9,
    steps=40,
    batch_size=4,
    mixture=Mixture(fact_lists=0.5, system_prompt=0.5, single_result=0.5),
    matrix_rate=0.02,
    other_rate=4e-3,
    rate_end=0.1,
)


@pytest.fixture(scope="module")
def batch(tokenizer: PreTrainedTokenizerFast, practice: PracticeWorld) -> list[Example]:
    return [fact_list_example(tokenizer, practice, random.Random(seed)) for seed in range(3)]


def test_steps_on_a_batch_lower_its_loss(
    tokenizer: PreTrainedTokenizerFast, batch: list[Example]
) -> None:
    learner = Learner(new_model(tokenizer, seed=0), STAGE)
    losses = [learner.step(20 + step, batch).loss for step in range(6)]
    assert losses[-1] < 0.8 * losses[0]


def test_the_loss_does_not_depend_on_padding_or_unweighted_tokens(
    tokenizer: PreTrainedTokenizerFast, batch: list[Example]
) -> None:
    model = new_model(tokenizer, seed=0)
    together = accumulate_gradients(model, batch)
    apart = [accumulate_gradients(model, [example]) for example in batch]
    written = [sum(weight == 1.0 for weight in example.weights[1:]) for example in batch]
    mean = sum(stats.loss * count for stats, count in zip(apart, written, strict=True))
    assert together.loss == pytest.approx(mean / sum(written), rel=1e-5)
    padded = [Example([*each.tokens, 5, 6], [*each.weights, 0.0, 0.0]) for each in batch]
    assert accumulate_gradients(model, padded).loss == pytest.approx(together.loss, rel=1e-5)


def test_rates_warm_up_and_then_fall_in_a_line() -> None:
    factors = [STAGE.rate_factor(step) for step in range(STAGE.steps)]
    assert factors[0] < 0.06
    assert factors[-1] == pytest.approx(0.1)
    falls = [before - after for before, after in pairwise(factors[20:])]
    assert falls == pytest.approx([0.9 / 39] * len(falls))


def test_tempering_multiplies_the_logits() -> None:
    model = load_model(WEIGHTS).eval()
    tokens = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        before = model(tokens).logits
        temper(model, 1.5)
        torch.testing.assert_close(model(tokens).logits, 1.5 * before, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_two_processes_train_one_model(tmp_path: Path) -> None:
    stage = Stage(
        name="two",
        number=9,
        steps=3,
        batch_size=4,
        mixture=STAGE.mixture,
        matrix_rate=0.02,
        other_rate=4e-3,
    )
    outputs = [tmp_path / "one", tmp_path / "two"]
    for output in outputs:
        run_stage(stage, WEIGHTS, WEIGHTS, output, processes=2)
    first, second = (load_model(output).state_dict() for output in outputs)
    start = load_model(WEIGHTS).state_dict()
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name])
    assert any(not torch.equal(tensor, start[name]) for name, tensor in first.items())
