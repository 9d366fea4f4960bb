"""What a rollout needs of a policy: token ids in, sampled token ids with their logprobs out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from searchr1.errors import RetryableError


class SamplingError(RetryableError):
    """The sampler failed or answered nonsense for one request. It ends the trajectory as
    `sampling_error`; it says nothing about the policy."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sampled sequence: `tokens` [N] exactly as drawn and their `logprobs` [N], of the
    distribution that was sampled from. Whether the stop token is included is up to the service."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


class Sampler(Protocol):
    """A policy at fixed weights, temperature and top-p."""

    async def sample(
        self,
        prompt: Sequence[int],
        count: int,
        max_tokens: int,
        stop: Sequence[int],
        seed: int | None,
    ) -> list[Sample]:
        """Draw `count` sequences of at most `max_tokens` tokens that continue `prompt` and end
        at a token of `stop`. Raises SamplingError when this request failed, and another error
        when no request can succeed."""
        ...


def check_samples(samples: Sequence[Sample], count: int) -> None:
    """Raise SamplingError unless there are `count` samples with a finite logprob for each token."""
    if len(samples) != count:
        raise SamplingError(f"the sampler returned {len(samples)} sequences instead of {count}")
    for sample in samples:
        if len(sample.tokens) != len(sample.logprobs):
            raise SamplingError(
                f"the sampler returned {len(sample.logprobs)} logprobs for "
                f"{len(sample.tokens)} tokens"
            )
        if not all(math.isfinite(value) for value in sample.logprobs):
            raise SamplingError("the sampler returned a logprob that is not finite")
