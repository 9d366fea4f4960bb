"""The fast decoder: a preallocated key/value cache with one slot a row.

For models whose layers are all plain attention.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, CacheLayerMixin

from searchr1.engine.model import cache_argument, logits_at
from searchr1.engine.scoring import pad

PREFILL_TOKENS = 4096
"""Padded tokens of one prefill pass."""
CAPACITY_STEP = 128
"""Cache lengths are multiples of this."""


@dataclass(slots=True)
class _Plan:
    """What the next forward pass does, for all layers.

    An object of its own, so that nothing points back to the decoder: a cycle would keep its cache
    in memory until the garbage collector comes round.
    """

    slots: int = 0
    capacity: int = CAPACITY_STEP
    first: int = 0
    """Slots [first, last) take part ..."""
    last: int = 0
    length: int = 0
    """... with this many places, and write at these [rows, 1] and [rows, new tokens]."""
    rows: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    positions: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))


class _SlotLayer(CacheLayerMixin):
    """Keys and values [slots, heads, capacity, size] of one layer; writes go where `plan` says."""

    def __init__(self, plan: _Plan) -> None:
        super().__init__()
        self._plan = plan

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        # Zeros, not garbage: a masked place still enters the sum with weight 0, and 0 * NaN = NaN.
        plan = self._plan
        for name, new in (("keys", key_states), ("values", value_states)):
            shape = (plan.slots, new.shape[1], plan.capacity, new.shape[3])
            setattr(self, name, torch.zeros(shape, dtype=new.dtype, device=new.device))
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        plan = self._plan
        self.keys[plan.rows, :, plan.positions] = key_states.transpose(1, 2)
        self.values[plan.rows, :, plan.positions] = value_states.transpose(1, 2)
        return (
            self.keys[plan.first : plan.last, :, : plan.length],
            self.values[plan.first : plan.last, :, : plan.length],
        )

    def resize(self, slots: int, capacity: int) -> None:
        """Make room; what is stored stays."""
        if not self.is_initialized:
            return
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_zeros(slots, old.shape[1], capacity, old.shape[3])
            kept, length = min(slots, old.shape[0]), min(capacity, old.shape[2])
            new[:kept, :, :length] = old[:kept, :, :length]
            setattr(self, name, new)

    def copy(self, source: int, targets: list[int], length: int) -> None:
        """Copy the first `length` places of a slot to other slots."""
        assert self.keys is not None and self.values is not None
        for tensor in (self.keys, self.values):
            tensor[targets, :, :length] = tensor[source, :, :length].clone()

    def swap(self, one: int, other: int, length: int) -> None:
        """Exchange the first `length` places of two slots."""
        assert self.keys is not None and self.values is not None
        for tensor in (self.keys, self.values):
            tensor[[one, other], :, :length] = tensor[[other, one], :, :length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._plan.length, 0

    def get_seq_length(self) -> int:
        return self._plan.length

    def get_max_length(self) -> int:
        return -1


class SlotDecoder:
    """Each row owns a slot of a preallocated cache; rows 0..n-1 sit in slots 0..n-1.

    A removed row's slot keeps its keys and values, with the tokens they belong to. A prompt that
    starts with exactly those tokens (the next turn of a conversation) takes the slot over and only
    its new tokens go through the model. Equal prompts that join together are computed once.
    """

    def __init__(self, model: nn.Module, layers: int, max_rows: int, cache_tokens: int) -> None:
        """`cache_tokens` is what all slots together may hold (see `room`)."""
        self.rows = 0
        self.stored: list[list[int]] = []
        """For each slot, the tokens whose keys and values it holds."""
        self.computed_tokens = 0
        self.reused_tokens = 0
        self._model = model
        self._max_rows = max_rows
        self._cache_tokens = cache_tokens
        self._plan = _Plan()
        self._layers = [_SlotLayer(self._plan) for _ in range(layers)]
        self._cache = Cache(layers=list(self._layers))
        self._argument = cache_argument(model)
        parameter = next(model.parameters())
        self._device, self._dtype = parameter.device, parameter.dtype
        self._used: list[int] = []
        self._clock = 0

    def room(self, active: Sequence[int], waiting: Sequence[int]) -> int:
        count, longest = 0, max(active, default=0)
        for length in waiting:
            longest = max(longest, length)
            rows = self.rows + count + 1
            if rows > min(self._max_rows, max(1, self._cache_tokens // _rounded(longest))):
                break
            count += 1
        return count

    def join(self, prompts: Sequence[list[int]]) -> tuple[list[int], Tensor]:
        same: dict[tuple[int, ...], list[int]] = {}
        for index, prompt in enumerate(prompts):
            same.setdefault(tuple(prompt), []).append(index)
        # Neighbours of similar length waste little padding.
        distinct = sorted(same, key=lambda tokens: len(tokens) - self._reusable(list(tokens)))
        start = self.rows
        for tokens in distinct:
            self._take_slot(list(tokens))
        heads = self._prefill([list(tokens) for tokens in distinct], start)
        order, sources = [same[tokens][0] for tokens in distinct], list(range(len(distinct)))
        for leader, tokens in enumerate(distinct):
            copies = same[tokens][1:]
            targets = [self._take_slot([]) for _ in copies]
            if targets:
                for layer in self._layers:
                    layer.copy(start + leader, targets, len(tokens))
            for target in targets:
                self.stored[target] = list(tokens)
            order += copies
            sources += [leader] * len(copies)
        return order, heads[sources]

    def step(self, tokens: Sequence[int]) -> Tensor:
        lengths = [len(self.stored[row]) for row in range(self.rows)]
        self._lengthen(max(lengths) + 1)
        ids = torch.tensor(tokens, device=self._device)[:, None]
        logits = self._forward(ids, 0, lengths, [1] * len(lengths))
        for row, token in enumerate(tokens):
            self.stored[row].append(token)
        return logits

    def remove(self, row: int) -> None:
        self._clock += 1
        self._used[row] = self._clock
        self._swap(row, self.rows - 1)
        self.rows -= 1

    def _prefill(self, prompts: list[list[int]], start: int) -> Tensor:
        """Compute what the slots from `start` on do not hold yet; logits after each prompt."""
        known = [len(self.stored[start + i]) for i in range(len(prompts))]
        new = [prompt[k:] for prompt, k in zip(prompts, known, strict=True)]
        groups = [range(1)]
        for index in range(1, len(new)):
            longer = range(groups[-1].start, index + 1)
            if len(longer) * max(len(new[i]) for i in longer) <= PREFILL_TOKENS:
                groups[-1] = longer
            else:
                groups.append(range(index, index + 1))
        parts: list[Tensor] = []
        for group in groups:
            lengths = [len(new[i]) for i in group]
            self._lengthen(max(known[i] for i in group) + max(lengths))
            ids = pad([new[i] for i in group], 0, torch.long).to(self._device)
            parts.append(self._forward(ids, start + group[0], [known[i] for i in group], lengths))
        for index, prompt in enumerate(prompts):
            self.stored[start + index] = list(prompt)
            self.computed_tokens += len(new[index])
            self.reused_tokens += known[index]
        return torch.cat(parts)

    def _forward(self, ids: Tensor, first: int, known: list[int], new: list[int]) -> Tensor:
        """Logits after the last new token of each of len(known) rows in slots from `first` on.

        `ids` [b, m] is right-padded: `new` real tokens a row, at positions `known` onwards. What
        padding writes into the cache lies beyond the row's end: masked now, overwritten later.
        """
        rows, width = ids.shape
        begins = torch.tensor(known, device=self._device)
        positions = begins[:, None] + torch.arange(width, device=self._device)
        length = max(k + n for k, n in zip(known, new, strict=True))
        plan = self._plan
        plan.first, plan.last, plan.length = first, first + rows, length
        plan.rows = torch.arange(first, first + rows, device=self._device)[:, None]
        plan.positions = positions
        places = torch.arange(length, device=self._device)
        hidden = places > positions[:, None, :, None]
        mask = torch.zeros(hidden.shape, dtype=self._dtype, device=self._device)
        mask.masked_fill_(hidden, torch.finfo(self._dtype).min)
        ends = torch.tensor(new, device=self._device) - 1
        picked = torch.arange(rows, device=self._device)
        return logits_at(
            self._model,
            lambda states: states[picked, ends],
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions.clamp(max=length - 1),
            use_cache=True,
            **{self._argument: self._cache},
        )

    def _reusable(self, prompt: list[int]) -> int:
        """Tokens of the prompt that some free slot holds already."""
        slot = self._best_slot(prompt)
        return 0 if slot is None else len(self.stored[slot])

    def _best_slot(self, prompt: list[int]) -> int | None:
        """The free slot with the most tokens that are a proper prefix of the prompt."""
        best, most = None, 0
        for slot in range(self.rows, len(self.stored)):
            length = len(self.stored[slot])
            if most < length < len(prompt) and self.stored[slot] == prompt[:length]:
                best, most = slot, length
        return best

    def _take_slot(self, prompt: list[int]) -> int:
        """Make row `rows` of a fitting free slot (its stored tokens start the prompt)."""
        slot = self._best_slot(prompt)
        if slot is None:
            if self.rows == len(self.stored):
                self._grow()
            free = range(self.rows, len(self.stored))
            slot = min(free, key=lambda i: (bool(self.stored[i]), self._used[i]))
            if self.stored[slot] and self._may_grow():
                slot = len(self.stored)
                self._grow()
            self.stored[slot] = []
        self._swap(slot, self.rows)
        self.rows += 1
        return self.rows - 1

    def _may_grow(self) -> bool:
        slots = 2 * len(self.stored)
        return slots <= min(self._max_rows, self._cache_tokens // self._plan.capacity)

    def _grow(self) -> None:
        """Twice as many slots."""
        self._resize(max(8, 2 * len(self.stored)), self._plan.capacity)

    def _lengthen(self, length: int) -> None:
        """Make every slot hold `length` tokens; unused slots go where memory would not do."""
        capacity = _rounded(length)
        if capacity > self._plan.capacity:
            slots = min(len(self.stored), max(self.rows, self._cache_tokens // capacity))
            self._resize(slots, capacity)

    def _resize(self, slots: int, capacity: int) -> None:
        for layer in self._layers:
            layer.resize(slots, capacity)
        self.stored = self.stored[:slots] + [[] for _ in range(slots - len(self.stored))]
        self._used = self._used[:slots] + [0] * (slots - len(self._used))
        self._plan.slots, self._plan.capacity = slots, capacity

    def _swap(self, one: int, other: int) -> None:
        if one == other:
            return
        length = max(len(self.stored[one]), len(self.stored[other]))
        for layer in self._layers:
            if layer.is_initialized:
                layer.swap(one, other, length)
        stored, used = self.stored, self._used
        stored[one], stored[other] = stored[other], stored[one]
        used[one], used[other] = used[other], used[one]

    def bytes_per_token(self) -> int:
        """Keys and values of one token in all layers; 0 before the first pass."""
        return sum(
            2 * layer.keys.shape[1] * layer.keys.shape[3] * layer.keys.element_size()
            for layer in self._layers
            if layer.keys is not None
        )


def _rounded(length: int) -> int:
    return -(-length // CAPACITY_STEP) * CAPACITY_STEP
