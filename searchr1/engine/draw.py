"""Drawing tokens from logits, batched, with settings of its own for each row.

B rows, V token ids. A row with temperature 0 is greedy.
"""

import torch
from torch import Tensor

LARGEST_UNIFORM = 1.0 - 2.0**-23
"""Keeps `uniform * total` below `total` in float32, so that the last id is never overrun."""


def draw(
    logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, uniform: Tensor
) -> tuple[Tensor, Tensor]:
    """One token a row, and its logprob under the distribution that it was drawn from.

    `logits` [B, V] float32; `temperature` [B], 0 = greedy (logprob of temperature 1); `top_k` [B]
    ids kept, V or more = all; `top_p` [B] in (0, 1], 1 = all; `uniform` [B] in [0, 1). Returns
    tokens [B] (int64) and logprobs [B]. The same `uniform` and row give the same token whatever
    the other rows are (inverse of the cumulative distribution).
    """
    greedy = temperature == 0
    logprobs = torch.log_softmax(logits / torch.where(greedy, 1.0, temperature)[:, None], dim=-1)
    if bool(((top_k < logits.shape[1]) | (top_p < 1)).logical_and(~greedy).any()):
        everything = torch.full_like(top_k, logits.shape[1])
        logprobs = _truncate(
            logprobs, torch.where(greedy, everything, top_k), torch.where(greedy, 1.0, top_p)
        )
    cumulative = logprobs.exp().cumsum(dim=-1)
    threshold = uniform.clamp(max=LARGEST_UNIFORM)[:, None] * cumulative[:, -1:]
    drawn = (cumulative <= threshold).sum(dim=-1)
    tokens = torch.where(greedy, logits.argmax(dim=-1), drawn)
    return tokens, logprobs.gather(1, tokens[:, None])[:, 0]


def _truncate(logprobs: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Keep the `top_k` likeliest ids and of them the fewest that reach `top_p`; renormalise."""
    ordered, ids = logprobs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logprobs.shape[1], device=logprobs.device)
    kept = rank[None] < top_k[:, None]
    ordered = torch.log_softmax(ordered.masked_fill(~kept, -torch.inf), dim=-1)
    before = ordered.exp().cumsum(dim=-1) - ordered.exp()
    kept &= (before < top_p[:, None]) | (top_p[:, None] >= 1)
    ordered = torch.log_softmax(ordered.masked_fill(~kept, -torch.inf), dim=-1)
    return torch.full_like(logprobs, -torch.inf).scatter(1, ids, ordered)
