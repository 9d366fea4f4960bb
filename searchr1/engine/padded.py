"""The general decoder: works with any cache that transformers has."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from searchr1.engine.model import cache_argument, takes
from searchr1.engine.scoring import pad


class PaddedDecoder:
    """Rows padded on the left to one length, in the cache that the model itself makes."""

    def __init__(self, model: nn.Module, max_rows: int) -> None:
        self.rows = 0
        self.computed_tokens = 0
        self.reused_tokens = 0
        self._model = model
        self._max_rows = max_rows
        self._argument = cache_argument(model)
        self._takes_positions = takes(model, "position_ids")
        self._device = next(model.parameters()).device
        self._cache: Any = None
        self._mask = torch.zeros(0, 0, dtype=torch.long)

    def room(self, active: Sequence[int], waiting: Sequence[int]) -> int:
        return 0 if self.rows else min(self._max_rows, len(waiting))

    def join(self, prompts: Sequence[list[int]]) -> tuple[list[int], Tensor]:
        if self.rows:
            raise RuntimeError("a padded batch takes new rows only when it is empty")
        self.rows = len(prompts)
        self.computed_tokens += sum(map(len, prompts))
        ids = pad([prompt[::-1] for prompt in prompts], 0, torch.long).flip(1)
        mask = pad([[1] * len(prompt) for prompt in prompts], 0, torch.long).flip(1)
        self._cache, self._mask = None, mask.to(self._device)
        return list(range(self.rows)), self._forward(ids.to(self._device))

    def step(self, tokens: Sequence[int]) -> Tensor:
        self._mask = torch.cat([self._mask, self._mask.new_ones(self.rows, 1)], dim=1)
        return self._forward(torch.tensor(tokens, device=self._device)[:, None])

    def remove(self, row: int) -> None:
        keep = list(range(self.rows))
        keep[row] = keep[-1]
        self.rows -= 1
        chosen = torch.tensor(keep[:-1], dtype=torch.long, device=self._device)
        self._mask = self._mask[chosen]
        if self.rows:
            for layer in self._cache.layers:
                layer.reorder_cache(chosen)
        else:
            self._cache = None

    def _forward(self, ids: Tensor) -> Tensor:
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": self._mask}
        if self._takes_positions:
            positions = (self._mask.cumsum(1) - 1).clamp(min=0)
            inputs["position_ids"] = positions[:, -ids.shape[1] :]
        if self._cache is not None:
            inputs[self._argument] = self._cache
        head = self._model.get_output_embeddings()  # pyright: ignore
        handle = head.register_forward_pre_hook(lambda _, arguments: (arguments[0][:, -1],))
        try:
            output = self._model(**inputs, use_cache=True)
        finally:
            handle.remove()
        self._cache = output[self._argument]
        return output.logits
