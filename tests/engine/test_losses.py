"""The loss functions against numbers worked out by hand."""

import math

import pytest
import torch

from searchr1.engine.errors import Code, EngineError
from searchr1.engine.losses import DEFAULTS, check_config, cross_entropy, policy_loss

HALF, SAME, TWICE = math.log(0.5), 0.0, math.log(2.0)


def loss_and_gradient(
    name: str, difference: float, advantage: float, **config: float
) -> tuple[float, float]:
    """Loss and its derivative by logprob, for old logprob -1 and logprob -1 + difference."""
    logprob = torch.tensor([-1.0 + difference], requires_grad=True)
    settings = check_config(name, config)
    loss = policy_loss(name, logprob, torch.tensor([-1.0]), torch.tensor([advantage]), settings)
    (gradient,) = torch.autograd.grad(loss.sum(), logprob)
    return loss.item(), gradient.item()


def test_cross_entropy_is_the_weighted_negative_logprob() -> None:
    loss = cross_entropy(torch.tensor([-0.5, -2.0]), torch.tensor([1.0, 0.25]))
    assert loss.tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(
    ("name", "difference", "advantage", "loss", "gradient"),
    [
        # ratio * advantage; the derivative of the ratio is the ratio
        ("importance_sampling", SAME, 1.0, -1.0, -1.0),
        ("importance_sampling", TWICE, 3.0, -6.0, -6.0),
        ("importance_sampling", HALF, -2.0, 1.0, 1.0),
        # within the bounds: as above
        ("ppo", math.log(1.1), 2.0, -2.2, -2.2),
        # good action, ratio above 1.2: clipped, no gradient
        ("ppo", TWICE, 1.0, -1.2, 0.0),
        # bad action, ratio above 1.2: the minimum is the unclipped one
        ("ppo", TWICE, -1.0, 2.0, 2.0),
        # bad action, ratio below 0.8: clipped, no gradient
        ("ppo", HALF, -1.0, 0.8, 0.0),
        # good action, ratio below 0.8: not clipped
        ("ppo", HALF, 1.0, -0.5, -0.5),
        # the ratio is a constant factor of the logprob, here -1 + log 2
        ("cispo", TWICE, 1.0, -2.0 * (-1.0 + TWICE), -2.0),
        ("cispo", HALF, 1.0, -0.5 * (-1.0 + HALF), -0.5),
        # ratio 8 is cut to 4, and the gradient goes on flowing
        ("cispo", math.log(8.0), 1.0, -4.0 * (-1.0 + math.log(8.0)), -4.0),
        # -(A * logprob - beta / 2 * difference^2) with beta 0.05
        ("dro", 0.0, 2.0, 2.0, -2.0),
        ("dro", 2.0, 1.0, -(1.0 - 0.05 / 2 * 4.0), -(1.0 - 0.05 * 2.0)),
    ],
)
def test_policy_losses_match_hand_worked_numbers(
    name: str, difference: float, advantage: float, loss: float, gradient: float
) -> None:
    assert loss_and_gradient(name, difference, advantage) == pytest.approx(
        (loss, gradient), abs=1e-5
    )


def test_settings_replace_the_defaults() -> None:
    assert loss_and_gradient("ppo", TWICE, 1.0, clip_high_threshold=1.5)[0] == pytest.approx(-1.5)
    assert loss_and_gradient("cispo", TWICE, 1.0, clip_high_threshold=1.5)[1] == pytest.approx(-1.5)
    assert loss_and_gradient("dro", 2.0, 1.0, beta=1.0)[1] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("reinforce", {}),
        ("ppo", {"clip": 0.2}),
        ("ppo", {"clip_low_threshold": 1.3}),
        ("ppo", {"clip_low_threshold": "0.8"}),
        ("dro", {"beta": -1.0}),
        ("dro", {"beta": math.nan}),
        ("dro", {"beta": True}),
        ("importance_sampling", {"beta": 0.1}),
    ],
)
def test_unknown_or_nonsensical_settings_are_refused(name: str, config: dict[str, object]) -> None:
    with pytest.raises(EngineError) as error:
        check_config(name, config)
    assert error.value.code is Code.VALIDATION_FAILED


def test_every_loss_has_a_formula() -> None:
    one = torch.ones(1)
    for name in DEFAULTS.keys() - {"cross_entropy"}:
        assert policy_loss(name, one, one, one, check_config(name, {})).shape == (1,)
