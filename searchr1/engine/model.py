"""A base model in memory, and any number of LoRA variants of it that share its weights.

Every training run and every set of sampler weights is a module tree of its own, copied from the
base without copying a tensor; only what LoRA adds (or changes, when merged) takes memory. So runs
cannot disturb each other, and dropping the last reference to a tree frees it.
"""

import copy
import inspect
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.pytorch_utils import Conv1D

from searchr1.engine.config import EngineConfig, Limits
from searchr1.engine.errors import Code, EngineError

ADAPTER = "default"
"""Name of the one adapter in each tree."""


class LoraSettings(NamedTuple):
    """What a client chooses when it creates a training run."""

    rank: int
    seed: int | None
    train_attn: bool
    train_mlp: bool
    train_unembed: bool

    def same_shape(self, other: "LoraSettings") -> bool:
        """Whether weights of one fit the other; the seed only matters at the start."""
        return self._replace(seed=None) == other._replace(seed=None)


class ServedModel:
    """One served model. Configuration and tokenizer are read at once, weights on first use.

    Used from the torch thread only, except for the public attributes.
    """

    def __init__(self, alias: str, folder: Path, config: EngineConfig) -> None:
        """Raises OSError or ValueError when the folder does not hold a usable model."""
        self.alias = alias
        self.model_id = str(folder.resolve())
        settings = AutoConfig.from_pretrained(self.model_id, local_files_only=True)
        settings = settings.get_text_config()
        self.tokenizer = AutoTokenizer.from_pretrained(self.model_id, local_files_only=True)
        self.vocab_size = min(len(self.tokenizer), settings.vocab_size)
        """Ids from here on do not exist for the tokenizer; they are cut off all logits."""
        self.eos_ids = _eos_ids(self.model_id, settings.eos_token_id, self.tokenizer.eos_token_id)
        max_seq_len = int(getattr(settings, "max_position_embeddings", 0) or 2048)
        self.limits = Limits(
            config.max_batch_size,
            max(config.max_tokens_per_request, max_seq_len),
            max_seq_len,
        )
        automatic = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(automatic if config.device == "auto" else config.device)
        on_gpu = self.device.type == "cuda"
        self.dtype = torch.bfloat16 if on_gpu else torch.float32
        self.micro_batch_tokens = config.micro_batch_tokens or (8192 if on_gpu else 1024)
        self.layers = int(settings.num_hidden_layers)
        types = getattr(settings, "layer_types", None) or []
        window = getattr(settings, "sliding_window", None)
        windowed = bool(window) and getattr(settings, "use_sliding_window", True) and not types
        self.full_attention_only = set(types) <= {"full_attention"} and not windowed
        """Whether the configuration shows nothing but plain attention."""
        self.slot_bytes: int | None = None
        """Key/value cache of one token in a `SlotDecoder`; 0 if the model cannot use one; None
        before this was tried (see `decoder.make_decoder`)."""
        self._cache_bytes = config.cache_bytes
        self._merge_bytes = config.merge_bytes
        self._base: nn.Module | None = None

    @property
    def base(self) -> nn.Module:
        """The base model itself; loaded on first use. Nobody may change it."""
        if self._base is not None:
            return self._base
        model: Any = AutoModelForCausalLM.from_pretrained(
            self.model_id, dtype=self.dtype, local_files_only=True
        )
        self._base = base = model.to(self.device).eval().requires_grad_(False)
        return base

    @property
    def cache_bytes(self) -> int:
        """Memory that the key/value cache of one set of weights may take."""
        if self._cache_bytes or self.device.type != "cuda":
            return self._cache_bytes or 1 << 30
        free, _ = torch.cuda.mem_get_info(self.device)
        return int(0.3 * free)

    def copy(self) -> nn.Module:
        """A module tree of its own that shares every tensor with the base."""
        base = self.base
        shared = [*base.parameters(), *base.buffers()]
        return copy.deepcopy(base, {id(tensor): tensor for tensor in shared})

    def trainable(self, settings: LoraSettings) -> PeftModel:
        """A LoRA variant that starts out equal to the base (B = 0); A is drawn from the seed."""
        tree = self.copy()
        targets = lora_targets(tree, settings)
        with torch.random.fork_rng():
            if settings.seed is None:
                torch.seed()
            else:
                torch.manual_seed(settings.seed)
            return _with_lora(tree, settings, targets).eval()

    def for_sampling(self, settings: LoraSettings, weights: dict[str, Tensor]) -> nn.Module:
        """A variant with these LoRA weights that gives the same logits as the trained one.

        Small float32 models get the LoRA product added to a copy of the changed matrices, which
        makes a forward pass cheaper; the others keep the LoRA layers (in bfloat16 the sum would
        lose the small changes).
        """
        tree = self.copy()
        targets = lora_targets(tree, settings)
        size = sum(p.numel() * p.element_size() for p in tree.parameters())
        merge = self.dtype == torch.float32 and size <= self._merge_bytes
        if merge:
            for name in targets:
                module: Any = tree.get_submodule(name)
                module.weight = nn.Parameter(module.weight.detach().clone(), requires_grad=False)
        model: Any = _with_lora(tree, settings, targets)
        load_lora(model, weights)
        if merge:
            with warnings.catch_warnings():  # about tied weights, as above
                warnings.simplefilter("ignore")
                model = model.merge_and_unload()
        return model.eval().requires_grad_(False)


def lora_targets(model: nn.Module, settings: LoraSettings) -> list[str]:
    """Full names of the linear layers that get LoRA.

    `train_attn`: those below a module whose name contains "attn" or "attention" (q, k, v, o and,
    in hybrid models, the projections of linear attention); `train_mlp`: those below one whose
    name contains "mlp" or "feed_forward" (gate, up, down); `train_unembed`: the output head.
    Where a model's names match neither of the first two, all linear layers but the head.
    Raises EngineError (`validation_failed`) when nothing is to be trained.
    """
    head = model.get_output_embeddings()  # pyright: ignore
    layers = [
        name
        for name, module in model.named_modules()
        if isinstance(module, (nn.Linear, Conv1D)) and module is not head
    ]
    attention = [name for name in layers if _below(name, "attn", "attention")]
    mlp = [name for name in layers if _below(name, "mlp", "feed_forward")]
    chosen = (attention if settings.train_attn else []) + (mlp if settings.train_mlp else [])
    if not attention and not mlp and (settings.train_attn or settings.train_mlp):
        chosen = layers
    if settings.train_unembed:
        chosen = chosen + [name for name, module in model.named_modules() if module is head]
    if not chosen:
        message = "Nothing to train: this model has no layer of the chosen kinds."
        raise EngineError(Code.VALIDATION_FAILED, message)
    return chosen


def _below(name: str, *words: str) -> bool:
    """Whether a parent in a dotted module name has one of the words in it."""
    return any(word in part for part in name.lower().split(".")[:-1] for word in words)


def lora_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """LoRA matrices of a tree, by the names that peft uses in its files."""
    return {
        name.replace(f".{ADAPTER}.", "."): parameter
        for name, parameter in model.named_parameters()
        if ".lora_" in name
    }


@torch.no_grad()
def load_lora(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Overwrite the LoRA matrices. Raises EngineError (`checkpoint_incompatible`)."""
    parameters = lora_parameters(model)
    for name, parameter in parameters.items():
        if name not in weights or weights[name].shape != parameter.shape:
            break
        parameter.copy_(weights[name])
    else:
        if len(weights) == len(parameters):
            return
    message = "The checkpoint's weights do not fit this base model. Was the model changed?"
    raise EngineError(Code.CHECKPOINT_INCOMPATIBLE, message)


def logits_at(model: nn.Module, select: Any, **inputs: Any) -> Tensor:
    """Logits [N, V] of a forward pass where the output head only sees what `select` returns.

    `select` maps hidden states [B, T, H] to [N, H]. Going through the model's own forward keeps
    whatever it does after the head (scaling, soft caps).
    """
    head = model.get_output_embeddings()  # pyright: ignore
    handle = head.register_forward_pre_hook(lambda _, arguments: (select(arguments[0]),))
    try:
        return model(**inputs).logits
    finally:
        handle.remove()


def takes(model: nn.Module, argument: str) -> bool:
    """Whether the model's forward has an argument of that name."""
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    return argument in inspect.signature(base.forward).parameters


def cache_argument(model: nn.Module) -> str:
    """What this version of transformers calls the key/value cache."""
    return "cache" if takes(model, "cache") else "past_key_values"


def _with_lora(tree: nn.Module, settings: LoraSettings, targets: Sequence[str]) -> PeftModel:
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=2 * settings.rank,
        lora_dropout=0.0,
        target_modules=list(targets),
        fan_in_fan_out=any(isinstance(tree.get_submodule(name), Conv1D) for name in targets),
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():  # about tied weights: only the head's copy is changed
        warnings.simplefilter("ignore")
        return get_peft_model(tree, config, adapter_name=ADAPTER)  # pyright: ignore


def _eos_ids(folder: str, *more: int | list[int] | None) -> frozenset[int]:
    """All ids that end a sequence, from generation config, model config and tokenizer."""
    found: set[int] = set()
    try:
        sources = [GenerationConfig.from_pretrained(folder).eos_token_id, *more]
    except OSError:  # the folder has no generation config
        sources = list(more)
    for ids in sources:
        found.update([ids] if isinstance(ids, int) else ids or [])
    return frozenset(i for i in found if i is not None and not math.isnan(i))
