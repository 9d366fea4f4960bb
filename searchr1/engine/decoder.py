"""Batched decoding where rows come and go between steps: the interface, and which one to take.

`SlotDecoder` is the fast one, for models whose layers are all plain attention; `PaddedDecoder`
works with any cache that transformers has (sliding windows, linear attention) but takes new rows
only when it is empty. Both give the same logits.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from searchr1.engine.model import ServedModel
from searchr1.engine.padded import PaddedDecoder
from searchr1.engine.slots import SlotDecoder

logger = logging.getLogger(__name__)


class Decoder(Protocol):
    """Batched next-token logits over a changing set of rows."""

    rows: int
    computed_tokens: int
    """Prompt tokens that went through the model."""
    reused_tokens: int
    """Prompt tokens whose keys and values were there already."""

    def room(self, active: Sequence[int], waiting: Sequence[int]) -> int:
        """How many of the waiting sequences may join now, in order. Both lists give the lengths
        that sequences may reach."""
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


def make_decoder(base: ServedModel, model: nn.Module, max_rows: int) -> Decoder:
    """The best decoder for a variant of `base`; what works is found out once, on the base."""
    if base.slot_bytes is None:
        with torch.no_grad():
            base.slot_bytes = _try_slots(base)
    if base.slot_bytes:
        return SlotDecoder(model, base.layers, max_rows, base.cache_bytes // base.slot_bytes)
    return PaddedDecoder(model, max_rows)


def _try_slots(base: ServedModel) -> int:
    """Run `SlotDecoder` on two short prompts and compare with the model's own cache.

    Bytes that a token takes in it; 0 if it does not work with this model.
    """
    if not base.full_attention_only:
        return 0
    fast = SlotDecoder(base.base, base.layers, 2, 1 << 20)
    reference = PaddedDecoder(base.base, 2)
    prompts = [[0, 1, 2, 3, 4], [1, 2, 3]]
    try:
        order, first = fast.join(prompts)
        _, expected = reference.join([prompts[i] for i in order])
        pairs = [(first, expected), (fast.step([1, 2]), reference.step([1, 2]))]
    except Exception as error:  # boundary: foreign model code; the other decoder needs less of it
        logger.warning("%s is sampled with the general decoder: %r", base.alias, error)
        return 0
    tolerance = 1e-3 if base.dtype == torch.float32 else 0.5
    agree = all(float((a.float() - b.float()).abs().max()) < tolerance for a, b in pairs)
    return fast.bytes_per_token() if agree else 0
