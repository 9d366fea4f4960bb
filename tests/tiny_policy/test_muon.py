"""Muon's update: orthogonal, whatever the scale of the gradient."""

import pytest
import torch

from searchr1.tiny_policy.muon import Muon, orthogonalise


@pytest.mark.parametrize("shape", [(16, 16), (8, 32), (32, 8)])
def test_singular_values_come_near_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    result = orthogonalise(torch.randn(3, *shape))
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.3
    assert values.max() < 1.3


def test_singular_directions_are_kept() -> None:
    torch.manual_seed(0)
    left, _, right = torch.linalg.svd(torch.randn(12, 12))
    scaled = left @ torch.diag(torch.linspace(0.5, 2, 12)) @ right
    result = left.mT @ orthogonalise(scaled[None])[0] @ right.mT
    assert (result - torch.diag(result.diagonal())).abs().max() < 1e-3


def test_the_step_does_not_depend_on_the_gradients_scale() -> None:
    torch.manual_seed(0)
    gradient = torch.randn(8, 4)
    moved = []
    for scale in (1.0, 1000.0):
        parameter = torch.nn.Parameter(torch.zeros(8, 4))
        optimiser = Muon([parameter], lr=0.1)
        parameter.grad = gradient * scale
        optimiser.step()
        moved.append(parameter.detach().clone())
    torch.testing.assert_close(moved[0], moved[1])
    assert (moved[0] * gradient).sum() < 0


def test_a_tall_matrix_moves_further_than_its_transpose_by_the_root_of_the_ratio() -> None:
    torch.manual_seed(0)
    gradient = torch.randn(8, 4)
    tall, wide = torch.nn.Parameter(torch.zeros(8, 4)), torch.nn.Parameter(torch.zeros(4, 8))
    tall.grad, wide.grad = gradient, gradient.mT.contiguous()
    Muon([tall, wide], lr=0.1).step()
    torch.testing.assert_close(tall.detach(), wide.detach().mT * 2**0.5)
