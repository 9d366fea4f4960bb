"""Muon: momentum whose update is orthogonalised, for the matrices inside the layers.

After Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024). It computes
in float32, because bfloat16 (which `torch.optim.Muon` uses) is emulated and slow on many
processors, and treats matrices of one shape together, because these are too small to fill a core.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch

_QUINTIC = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised; decoupled weight decay.

    Args:
        params: matrices, all with gradients at every step.
        lr: step size; the update of a tall matrix is scaled by sqrt(rows / columns).
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Apply one update from the gradients."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                by_shape[parameter.shape].append(parameter)
            for (rows, columns), parameters in by_shape.items():
                updates = orthogonalise(
                    torch.stack([self._momentum(each, group["momentum"]) for each in parameters])
                )
                rate = group["lr"] * max(1.0, rows / columns) ** 0.5
                for parameter, update in zip(parameters, updates, strict=True):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.add_(update, alpha=-rate)

    def _momentum(self, parameter: torch.nn.Parameter, momentum: float) -> torch.Tensor:
        gradient = parameter.grad
        assert gradient is not None
        state = self.state[parameter]
        average = state.setdefault("average", torch.zeros_like(parameter))
        average.lerp_(gradient, 1 - momentum)
        return gradient.lerp(average, momentum)


def orthogonalise(matrices: torch.Tensor) -> torch.Tensor:
    """Bring the singular values of `matrices` [N, rows, columns] near 1, each to its own.

    Newton-Schulz iteration with the published coefficients: quick rather than exact, singular
    values end between about 0.7 and 1.2.
    """
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = _QUINTIC
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x
