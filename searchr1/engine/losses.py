"""The loss functions, as pure functions of per-token tensors.

Every function takes N tokens and returns N losses; the objective that is differentiated is

    sum over all tokens of all samples / total_samples

where `total_samples` counts the whole call (`gradient_accumulation.total_samples`), so that the
gradient is the same however the SDK splits the call. With r = exp(logprobs - old_logprobs) and
the advantage A of each token:

    cross_entropy        -w * logprob
    importance_sampling  -r * A
    ppo                  -min(r * A, clip(r, low, high) * A)       Schulman et al. 2017, eq. 7
    cispo                -stop_gradient(clip(r, low, high)) * A * logprob
                                                        MiniMax-M1 (arXiv 2506.13585), eq. 4
    dro                  -(A * logprob - beta / 2 * (logprob - old_logprob)^2)
                         a token-level form of Richemond et al. 2024 (arXiv 2405.19107)

The forms, setting names and defaults are those of Tinker's documented losses of the same names.
`low` and `high` bound the ratio itself: `clip_low_threshold` and `clip_high_threshold` in the
loss configuration, 0.8 and 1.2 for ppo, 0 and 4 for cispo (whose paper sets no lower bound);
`beta` is 0.05. Tokens with advantage (or weight) zero are left
out before these functions are called, in every loss: they change nothing, exactly.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from searchr1.engine.errors import Code, EngineError

DEFAULTS: dict[str, dict[str, float]] = {
    "cross_entropy": {},
    "importance_sampling": {},
    "ppo": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
    "cispo": {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0},
    "dro": {"beta": 0.05},
}
"""Known losses with the settings that each takes."""


def check_config(name: str, config: Mapping[str, object]) -> dict[str, float]:
    """Settings of a loss, defaults filled in.

    Raises EngineError (`validation_failed`) for an unknown loss or setting, or a value that is
    not a finite number of the right sign.
    """
    if name not in DEFAULTS:
        known = ", ".join(DEFAULTS)
        raise EngineError(Code.VALIDATION_FAILED, f"Unknown loss {name!r}. Known: {known}.")
    settings = dict(DEFAULTS[name])
    for key, value in config.items():
        if key not in settings:
            known = ", ".join(settings) or "none"
            message = f"Loss {name} has no setting {key!r}. Its settings: {known}."
            raise EngineError(Code.VALIDATION_FAILED, message)
        number = value if isinstance(value, (int, float)) else math.nan
        if isinstance(value, bool) or not math.isfinite(number) or number < 0:
            message = f"Setting {key} of loss {name} must be a finite number of at least 0."
            raise EngineError(Code.VALIDATION_FAILED, message)
        settings[key] = float(number)
    low, high = settings.get("clip_low_threshold", 0.0), settings.get("clip_high_threshold", 1.0)
    if low > high:
        message = f"clip_low_threshold {low} is above clip_high_threshold {high}."
        raise EngineError(Code.VALIDATION_FAILED, message)
    return settings


def cross_entropy(logprobs: Tensor, weights: Tensor) -> Tensor:
    """Weighted negative log-likelihood; all [N]."""
    return -weights * logprobs


def policy_loss(
    name: str, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, config: dict[str, float]
) -> Tensor:
    """Loss of each token for one of the policy losses; all tensors [N], `config` complete."""
    difference = logprobs - old_logprobs
    if name == "dro":
        return -(advantages * logprobs - 0.5 * config["beta"] * difference.square())
    ratio = difference.exp()
    if name == "importance_sampling":
        return -ratio * advantages
    clipped = ratio.clamp(config["clip_low_threshold"], config["clip_high_threshold"])
    if name == "ppo":
        return -torch.minimum(ratio * advantages, clipped * advantages)
    if name == "cispo":
        return -clipped.detach() * advantages * logprobs
    raise ValueError(f"not a policy loss: {name}")
