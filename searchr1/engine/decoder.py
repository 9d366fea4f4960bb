"""Batched decoding where rows come and go between steps: the interface, and which one to take.

`SlotDecoder` is the fast one, for models whose layers are all plain attention; `PaddedDecoder`
works with any cache that transformers has (sliding windows, linear attention) but takes new rows
only when it is empty. Both give the same logits.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from searchr1.engine.model import ServedModel
from searchr1.engine.padded import PaddedDecoder
from searchr1.engine.slots import SlotDecoder


class Decoder(Protocol):
    """Batched next-token logits over a changing set of rows."""

    rows: int
    computed_tokens: int
    """Prompt tokens that went through the model."""
    reused_tokens: int
    """Prompt tokens whose keys and values were there already."""

    def room(self, lengths: Sequence[int]) -> int:
        """How many of the waiting prompts (by their lengths, in order) may join now."""
        ...

    def join(self, prompts: Sequence[list[int]]) -> tuple[list[int], Tensor]:
        """Add rows at the end. Returns which prompt each new row has, and the logits
        [new rows, V] after it."""
        ...

    def step(self, tokens: Sequence[int]) -> Tensor:
        """Feed one token to each row; returns the next logits [rows, V]."""
        ...

    def remove(self, row: int) -> None:
        """Drop a row; the last row takes its number."""
        ...


def make_decoder(base: ServedModel, model: nn.Module, max_rows: int, cache_bytes: int) -> Decoder:
    """The best decoder for a variant of `base`; what works is found out once, on the base."""
    if base.plain_attention is None:
        base.plain_attention = _slots_agree(base)
    if base.plain_attention:
        return SlotDecoder(model, max_rows, cache_bytes, base.layers)
    return PaddedDecoder(model, max_rows)


def _slots_agree(base: ServedModel) -> bool:
    """Try `SlotDecoder` on two short prompts and compare with the model's own cache."""
    if not base.full_attention_only:
        return False
    fast = SlotDecoder(base.base, 2, 1 << 30, base.layers)
    reference = PaddedDecoder(base.base, 2)
    prompts = [[0, 1, 2, 3, 4], [1, 2, 3]]
    try:
        order, first = fast.join(prompts)
        _, expected = reference.join([prompts[i] for i in order])
        pairs = [(first, expected), (fast.step([1, 2]), reference.step([1, 2]))]
    except Exception:  # boundary: foreign model code; whatever it raises, the other decoder works
        return False
    tolerance = 1e-3 if base.dtype == torch.float32 else 0.5
    return all(float((a.float() - b.float()).abs().max()) < tolerance for a, b in pairs)
