"""One training run in memory: LoRA weights, accumulated gradients, Adam state.

Used from the torch thread only. The long operation is a generator that yields between
micro-batches, so that sampling gets its turn.
"""

import math
from collections.abc import Generator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from searchr1.engine import losses
from searchr1.engine.checkpoints import Checkpoint, CheckpointStore, Kind
from searchr1.engine.errors import Code, EngineError
from searchr1.engine.model import LoraSettings, ServedModel, load_lora, lora_parameters
from searchr1.engine.scoring import micro_batches, pad, target_logprobs
from searchr1.engine.wire import AdamParams, Datum, Forward

IGNORED = -100
"""Target id of a place that has no target."""
WEIGHTS_PREFIX = "lora:"
ADAM_PREFIX = "adam:"


class Sample(NamedTuple):
    """One datum, checked and shifted. Lists have T items; place t predicts the token after t."""

    tokens: list[int]
    targets: list[int]
    coefficient: list[float]
    """Weight (cross_entropy) or advantage; zero where there is no target."""
    old_logprobs: list[float]


class ForwardResult(NamedTuple):
    """Outcome of a forward event."""

    logprobs: list[list[float]]
    """For each datum, T logprobs aligned with its `target_ids`; 0 where there is no target."""
    loss_sum: float
    token_count: int
    """Places with a target (for cross_entropy: with a target and a weight)."""
    input_tokens: int


class TrainedModel:
    """The trainable state of a run."""

    def __init__(self, base: ServedModel, settings: LoraSettings) -> None:
        self.base = base
        self.settings = settings
        self.step = 0
        self._model = base.trainable(settings)
        self._named = lora_parameters(self._model)
        self._parameters = list(self._named.values())
        self._gradients: list[Tensor] | None = None
        self._adam = torch.optim.AdamW(self._parameters, lr=0.0)

    @classmethod
    def restore(
        cls, base: ServedModel, settings: LoraSettings,
        checkpoint: Checkpoint, tensors: dict[str, Tensor], *, optimizer: bool,
    ) -> "TrainedModel":  # fmt: skip
        """From a saved state; without `optimizer`, Adam and the step count start afresh.

        Raises EngineError (`checkpoint_incompatible`).
        """
        if not checkpoint.lora.same_shape(settings):
            message = "The checkpoint's LoRA rank or trained layers differ from those of the run."
            raise EngineError(Code.CHECKPOINT_INCOMPATIBLE, message)
        run = cls(base, settings)
        load_lora(run._model, lora_weights(tensors))
        if optimizer:
            run.step = checkpoint.step
            for name, parameter in run._named.items():
                moments = {
                    key: tensors[f"{ADAM_PREFIX}{key}:{name}"].to(parameter)
                    for key in ("exp_avg", "exp_avg_sq")
                    if f"{ADAM_PREFIX}{key}:{name}" in tensors
                }
                if moments:
                    step = tensors[f"{ADAM_PREFIX}step:{name}"].clone()
                    run._adam.state[parameter] = {"step": step, **moments}
        return run

    def forward(self, payload: Forward, *, backward: bool) -> Generator[None, None, ForwardResult]:
        """Loss and logprobs; with `backward`, the gradient is added to the accumulated one.

        All or nothing: on any error the accumulated gradient is as before. Raises EngineError
        (`validation_failed`, `non_finite_loss`, `non_finite_gradient`).
        """
        name = payload.loss.type
        config = losses.check_config(name, payload.loss.config)
        samples = [self._check(datum, i, payload) for i, datum in enumerate(payload.data)]
        logprobs: list[list[float]] = [[]] * len(samples)
        gradients: list[Tensor] | None = None
        loss_sum = torch.zeros((), dtype=torch.float64)
        lengths = [len(sample.tokens) for sample in samples]
        for group in micro_batches(lengths, self.base.micro_batch_tokens):
            batch = _Batch([samples[i] for i in group], self.base.device)
            loss, values = self._batch_loss(batch, name, config, backward)
            loss_sum += loss.detach().double().cpu()
            for i, row in zip(group, values.tolist(), strict=True):
                logprobs[i] = row[: lengths[i]]
            if loss.requires_grad:
                scaled = loss / payload.gradient_accumulation.total_samples
                new = torch.autograd.grad(scaled, self._parameters, materialize_grads=True)
                gradients = _add(gradients, new)
            yield
        if not bool(torch.isfinite(loss_sum)):
            message = "The loss is not finite. Are the logprobs of the data those of this policy?"
            raise EngineError(Code.NON_FINITE_LOSS, message)
        if gradients is not None:
            if not all(bool(gradient.isfinite().all()) for gradient in gradients):
                message = "A gradient is not finite; the gradients of this event were dropped."
                raise EngineError(Code.NON_FINITE_GRADIENT, message)
            self._gradients = _add(self._gradients, gradients)
        entropy = name == "cross_entropy"
        counted = sum(
            target != IGNORED and (not entropy or coefficient != 0)
            for sample in samples
            for target, coefficient in zip(sample.targets, sample.coefficient, strict=True)
        )
        return ForwardResult(logprobs, float(loss_sum), counted, sum(lengths))

    def optimize(self, params: AdamParams) -> dict[str, float]:
        """One AdamW step with the accumulated gradients, which are then cleared.

        Without any gradient the step changes nothing and is not counted. Returns `grad_norm`
        (before clipping), `learning_rate`, `step`.
        """
        norm = 0.0
        if self._gradients is not None:
            gradients, self._gradients = self._gradients, None
            total = torch.nn.utils.get_total_norm(gradients)
            norm = float(total)
            if not math.isfinite(norm):
                message = "The gradient norm is not finite; the gradients were dropped."
                raise EngineError(Code.NON_FINITE_GRADIENT, message)
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.grad = gradient
            if params.grad_clip_norm:
                torch.nn.utils.clip_grads_with_norm_(self._parameters, params.grad_clip_norm, total)
            self._adam.param_groups[0].update(
                lr=params.learning_rate,
                betas=(params.beta1, params.beta2),
                eps=params.eps,
                weight_decay=params.weight_decay,
            )
            self._adam.step()
            self._adam.zero_grad()
            self.step += 1
        return {"grad_norm": norm, "learning_rate": params.learning_rate, "step": float(self.step)}

    def save(self, store: CheckpointStore, checkpoint: Checkpoint, *, overwrite: bool) -> int:
        """Write weights (and, for a state, Adam's moments); returns the size in bytes."""
        tensors = {f"{WEIGHTS_PREFIX}{name}": p for name, p in self._named.items()}
        if checkpoint.kind is Kind.STATE:
            for name, parameter in self._named.items():
                for key, value in self._adam.state.get(parameter, {}).items():
                    tensors[f"{ADAM_PREFIX}{key}:{name}"] = value
        return store.save(checkpoint, tensors, overwrite=overwrite)

    def _check(self, datum: Datum, index: int, payload: Forward) -> Sample:
        """Raises EngineError (`validation_failed`) naming the sample."""
        tokens, limits, vocab = datum.model_input.tokens, self.base.limits, self.base.vocab_size
        length = len(tokens)
        entropy = payload.loss.type == "cross_entropy"
        coefficient = datum.weights if entropy else datum.advantages
        old = [0.0] * length if entropy else datum.logprobs
        problem = ""
        if coefficient is None or old is None:
            problem = "lacks weights" if entropy else "lacks logprobs or advantages"
        elif not len(datum.target_ids) == len(coefficient) == len(old) == length:
            problem = "has lists of different lengths"
        elif length > limits.max_seq_len:
            problem = f"has {length} tokens, more than the {limits.max_seq_len} of the model"
        elif not all(0 <= token < vocab for token in tokens):
            problem = f"has a token id outside of [0, {vocab})"
        elif not all(0 <= token < vocab or token == IGNORED for token in datum.target_ids):
            problem = f"has a target id outside of [0, {vocab})"
        if problem or coefficient is None or old is None:
            raise EngineError(Code.VALIDATION_FAILED, f"data[{index}] {problem}.")
        targets = datum.target_ids
        if payload.auto_shift:  # item t speaks of token t itself: predicted at place t - 1
            targets, coefficient, old = [*targets[1:], IGNORED], coefficient[1:], old[1:]
            coefficient, old = [*coefficient, 0.0], [*old, 0.0]
        live = [c if t != IGNORED else 0.0 for c, t in zip(coefficient, targets, strict=True)]
        return Sample(tokens, targets, live, old)

    def _batch_loss(
        self, batch: "_Batch", name: str, config: dict[str, float], backward: bool
    ) -> tuple[Tensor, Tensor]:
        """Sum of the token losses, and logprobs [B, T] of all targets."""
        live = batch.coefficient != 0
        plain = (batch.targets != IGNORED) & ~live
        with torch.set_grad_enabled(backward and bool(live.any())):
            of_live, of_plain = target_logprobs(
                self._model, self.base.vocab_size, batch.tokens, batch.targets, live, plain
            )
            weights, old = batch.coefficient[live], batch.old_logprobs[live]
            if name == "cross_entropy":
                loss = losses.cross_entropy(of_live, weights).sum()
            else:
                loss = losses.policy_loss(name, of_live, old, weights, config).sum()
        values = torch.zeros_like(batch.coefficient)
        values[live], values[plain] = of_live.detach(), of_plain
        if not bool(values.isfinite().all()):
            message = "A logprob is not finite; the model's weights have diverged."
            raise EngineError(Code.NON_FINITE_LOSS, message)
        return loss, values


class _Batch:
    """Samples padded to [B, T] on the device."""

    def __init__(self, samples: list[Sample], device: torch.device) -> None:
        def stack(rows: Any, fill: float, dtype: torch.dtype) -> Tensor:
            return pad(rows, fill, dtype).to(device)

        self.tokens = stack([s.tokens for s in samples], 0, torch.long)
        self.targets = stack([s.targets for s in samples], IGNORED, torch.long)
        self.coefficient = stack([s.coefficient for s in samples], 0.0, torch.float32)
        self.old_logprobs = stack([s.old_logprobs for s in samples], 0.0, torch.float32)


def lora_weights(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The LoRA matrices of a checkpoint, by peft's names."""
    return {
        name.removeprefix(WEIGHTS_PREFIX): tensor
        for name, tensor in tensors.items()
        if name.startswith(WEIGHTS_PREFIX)
    }


def shifted_back(logprobs: list[float]) -> list[float]:
    """Logprobs of an auto-shifted datum, aligned with its `target_ids` again."""
    return [0.0, *logprobs[:-1]]


def _add(total: list[Tensor] | None, new: Any) -> list[Tensor]:
    return list(new) if total is None else [a + b for a, b in zip(total, new, strict=True)]
