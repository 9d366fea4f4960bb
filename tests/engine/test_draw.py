"""Drawing tokens: greedy, truncation, and the distribution itself."""

import math

import pytest
import torch
from torch import Tensor

from searchr1.engine.draw import draw

PROBABILITIES = torch.tensor([0.1, 0.4, 0.2, 0.3])


def drawn(
    uniform: list[float], temperature: float = 1.0, top_k: int = 4, top_p: float = 1.0
) -> tuple[list[int], list[float]]:
    """Tokens and logprobs for rows that share one distribution and its settings."""
    rows = len(uniform)
    logits = PROBABILITIES.log().expand(rows, -1) + 5.0
    settings = (
        torch.full((rows,), temperature),
        torch.full((rows,), top_k),
        torch.full((rows,), top_p),
    )
    tokens, logprobs = draw(logits, *settings, torch.tensor(uniform))
    return tokens.tolist(), logprobs.exp().tolist()


def test_uniform_numbers_select_by_cumulative_probability() -> None:
    tokens, probabilities = drawn([0.0, 0.09, 0.11, 0.49, 0.51, 0.69, 0.71, 0.9999])
    assert tokens == [0, 0, 1, 1, 2, 2, 3, 3]
    assert probabilities == pytest.approx([0.1, 0.1, 0.4, 0.4, 0.2, 0.2, 0.3, 0.3])


def test_temperature_zero_takes_the_likeliest_with_its_logprob_at_temperature_one() -> None:
    tokens, probabilities = drawn([0.99], temperature=0.0, top_k=2, top_p=0.1)
    assert tokens == [1]
    assert probabilities == pytest.approx([0.4])


def test_temperature_sharpens_the_distribution_that_is_reported() -> None:
    tokens, probabilities = drawn([0.2], temperature=0.5)
    assert tokens == [1]
    assert probabilities == pytest.approx([0.16 / (0.01 + 0.16 + 0.04 + 0.09)])


def test_top_k_keeps_the_likeliest_and_renormalises() -> None:
    tokens, probabilities = drawn([0.0, 0.56, 0.58, 0.9999], top_k=2)
    assert tokens == [1, 1, 3, 3]
    assert probabilities == pytest.approx([4 / 7, 4 / 7, 3 / 7, 3 / 7])


def test_top_p_keeps_the_fewest_that_reach_it() -> None:
    assert set(drawn([0.0, 0.3, 0.6, 0.9999], top_p=0.39)[0]) == {1}
    assert set(drawn([0.0, 0.3, 0.6, 0.9999], top_p=0.41)[0]) == {1, 3}
    assert set(drawn([0.0, 0.3, 0.6, 0.9999], top_p=0.95)[0]) == {0, 1, 2, 3}


def test_the_largest_uniform_number_never_falls_on_an_impossible_token() -> None:
    logits = torch.tensor([[0.0, 0.0, -math.inf, -math.inf]])
    one = torch.ones(1)
    tokens, _ = draw(logits, one, torch.tensor([4]), one, torch.tensor([1.0]))
    assert tokens.tolist() == [1]


def test_rows_keep_their_own_settings() -> None:
    logits = PROBABILITIES.log().expand(3, -1)
    tokens, logprobs = draw(
        logits,
        torch.tensor([0.0, 1.0, 1.0]),
        torch.tensor([4, 1, 4]),
        torch.tensor([1.0, 1.0, 1.0]),
        torch.tensor([0.95, 0.95, 0.95]),
    )
    assert tokens.tolist() == [1, 1, 3]
    assert logprobs.exp().tolist() == pytest.approx([0.4, 1.0, 0.3])


def test_draws_follow_the_distribution() -> None:
    count = 20_000
    uniform: Tensor = torch.rand(count, generator=torch.Generator().manual_seed(0))
    tokens, _ = drawn(uniform.tolist())
    shares = torch.bincount(torch.tensor(tokens), minlength=4) / count
    # Four standard errors of a share near 0.4 are 0.014.
    assert torch.allclose(shares, PROBABILITIES, atol=0.014)
