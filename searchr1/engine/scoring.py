"""Logprobs of given tokens: the forward pass that training and prompt logprobs share.

Sequences are right-padded, so a causal model needs no attention mask: no position sees what
comes after it. Micro-batches hold sequences of similar length.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from searchr1.engine.model import logits_at

CHUNK = 512
"""Prompt places whose logprobs over the whole vocabulary are held at once."""


def micro_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Indices grouped by length so that each group, padded, stays within `max_tokens`.

    A sequence longer than `max_tokens` is a group of its own.
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if groups and (len(groups[-1]) + 1) * lengths[index] <= max_tokens:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def pad(rows: Sequence[Sequence[float]], fill: float, dtype: torch.dtype) -> Tensor:
    """Rows of any lengths as one [B, T] tensor, filled on the right."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], dtype=dtype)


def target_logprobs(
    model: nn.Module, vocab_size: int, tokens: Tensor, targets: Tensor, grad: Tensor, plain: Tensor
) -> tuple[Tensor, Tensor]:
    """Logprobs of `targets` at the places marked by the masks `grad` and `plain`.

    All [B, T]; position t of `targets` is the token predicted after position t of `tokens`. The
    first result [G] carries the gradient, the second [P] does not: no gradient flows back from
    those places at all.
    """

    def select(hidden: Tensor) -> Tensor:
        return torch.cat([hidden[grad], hidden[plain].detach()])

    logits = logits_at(model, select, input_ids=tokens, use_cache=False)[:, :vocab_size].float()
    count = int(grad.sum())
    with torch.no_grad():
        rest = -F.cross_entropy(logits[count:].detach(), targets[plain], reduction="none")
    return -F.cross_entropy(logits[:count], targets[grad], reduction="none"), rest


@torch.no_grad()
def prompt_logprobs(
    model: nn.Module, vocab_size: int, tokens: Sequence[int], top_k: int, device: torch.device
) -> tuple[list[float | None], list[list[tuple[int, float]] | None]]:
    """Logprob of each token of one prompt given those before it (temperature 1), None for the
    first; and the `top_k` likeliest ids with their logprobs at each place (empty for 0)."""
    if len(tokens) == 1:
        return [None], [None] if top_k else []
    ids = torch.tensor([tokens], device=device)
    logits = logits_at(model, lambda hidden: hidden[0, :-1], input_ids=ids, use_cache=False)
    chosen: list[float | None] = [None]
    best: list[list[tuple[int, float]] | None] = [None] if top_k else []
    chunks = zip(logits[:, :vocab_size].split(CHUNK), ids[0, 1:].split(CHUNK), strict=True)
    for part, targets in chunks:
        logprobs = torch.log_softmax(part.float(), dim=-1)
        chosen += logprobs.gather(1, targets[:, None])[:, 0].tolist()
        if top_k:
            values, places = logprobs.topk(min(top_k, vocab_size), dim=-1)
            for row, value in zip(places.tolist(), values.tolist(), strict=True):
                best.append(list(zip(row, value, strict=True)))
    return chosen, best
