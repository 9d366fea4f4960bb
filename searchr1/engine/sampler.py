"""Sampling with continuous batching.

Rows (one sequence each) that use the same weights are decoded together; new rows join and
finished ones leave between two steps. Different weights are different batches, served in turn.
Everything here runs in the torch thread but `Sampler.submit`, which only puts a job in a queue.
"""

import logging
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from searchr1.engine.config import WEIGHTS_IDLE_SECONDS, EngineConfig
from searchr1.engine.decoder import Decoder, make_decoder
from searchr1.engine.draw import draw
from searchr1.engine.errors import Code, EngineError
from searchr1.engine.model import ServedModel
from searchr1.engine.scoring import prompt_logprobs
from searchr1.engine.wire import SampleRequest

logger = logging.getLogger(__name__)

COUNTERS = (
    "requests",
    "sequences",
    "decode_steps",  # forward passes that added one token to each row of a batch
    "decoded_rows",  # rows in all of them
    "largest_batch",  # most rows in one of them
    "prompt_tokens_computed",
    "prompt_tokens_reused",
)


class WeightsKey(NamedTuple):
    """Which weights: a base model, and a checkpoint of it (empty URI = the base itself)."""

    alias: str
    uri: str
    cuid: str


@dataclass(slots=True)
class Row:
    """One sequence being sampled."""

    job: "SampleJob"
    random: random.Random
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop_reason: str = ""
    """Empty while the sequence is growing."""
    text_end: int | None = None
    """Tokens that `text` is made of, when a stop token ended the sequence."""


@dataclass(slots=True)
class SampleJob:
    """One sample request and where its outcome goes."""

    key: WeightsKey
    request: SampleRequest
    prompt: list[int]
    base: ServedModel
    done: Callable[[dict[str, object] | EngineError], None]
    """Called once, in the torch thread, with the response body or an error."""
    cancelled: bool = False
    rows: list[Row] = field(default_factory=list)
    max_new: int = 0
    stop_ids: frozenset[int] = frozenset()
    stop_window: int = 0
    """Tokens at the end within which a just completed stop string lies; 0 = no stop strings."""

    def __post_init__(self) -> None:
        params = self.request.sampling_params
        for index in range(self.request.num_samples):
            seed = None if params.seed is None else f"{params.seed}:{index}"
            self.rows.append(Row(self, random.Random(seed)))
        # The last new token is never fed, so one more than fits may be drawn.
        room = self.base.limits.max_seq_len - len(self.prompt) + 1
        self.max_new = min(params.max_tokens, room)
        self.stop_ids = self.base.eos_ids | frozenset(params.stop_token_ids)
        longest = max((len(text.encode()) for text in params.stop), default=0)
        self.stop_window = longest + 4 if longest else 0

    @property
    def full_length(self) -> int:
        """Tokens that a sequence of this request may reach, with its prompt."""
        return len(self.prompt) + self.max_new

    @property
    def scores_prompt(self) -> bool:
        """Whether logprobs of the prompt are wanted."""
        return self.request.return_prompt_logprobs or self.request.topk_prompt_logprobs > 0

    def response(self) -> dict[str, object]:
        """The protocol's answer, without prompt logprobs."""
        sequences = []
        for row in self.rows:
            sequences.append(
                {
                    "tokens": row.tokens,
                    "logprobs": row.logprobs if self.request.return_token_logprobs else [],
                    "text": self._text(row) if self.request.return_text else None,
                    "stop_reason": row.stop_reason,
                }
            )
        return {
            "request_id": self.request.request_id,
            "sequences": sequences,
            "usage": {
                "input_tokens": len(self.prompt),
                "output_tokens": sum(len(row.tokens) for row in self.rows),
            },
        }

    def _text(self, row: Row) -> str:
        """Decoded tokens up to the stop token or stop string."""
        text = self.base.tokenizer.decode(row.tokens[: row.text_end], skip_special_tokens=False)
        ends = [text.find(stop) for stop in self.request.sampling_params.stop if stop in text]
        return text[: min(ends)] if ends else text


class Batch:
    """The rows that use one set of weights."""

    def __init__(self, model: nn.Module, decoder: Decoder) -> None:
        self.model = model
        self.decoder = decoder
        self.waiting: deque[Row] = deque()
        self.rows: list[Row] = []
        """Row i is row i of the decoder."""
        self.used = time.monotonic()

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.rows)

    def step(self) -> int:
        """Add one token to every row, then let waiting rows join; how many were decoded."""
        self.used = time.monotonic()
        self._drop_cancelled()
        decoded = len(self.rows)
        if self.rows:
            logits = self.decoder.step([row.tokens[-1] for row in self.rows])
            self._extend(self.rows, logits)
        self._admit()
        for index in reversed(range(len(self.rows))):
            if self.rows[index].stop_reason:
                self._remove(index)
        return decoded

    def _admit(self) -> None:
        if not self.waiting:
            return
        active, waiting = (
            [row.job.full_length for row in rows] for rows in (self.rows, self.waiting)
        )
        count = self.decoder.room(active, waiting)
        if count:
            new = [self.waiting.popleft() for _ in range(count)]
            order, logits = self.decoder.join([row.job.prompt for row in new])
            joined = [new[i] for i in order]
            self._extend(joined, logits)
            self.rows += joined

    def _extend(self, rows: list[Row], logits: Tensor) -> None:
        """Draw the next token of each row from logits [len(rows), V]."""
        base = rows[0].job.base
        logits = logits[:, : base.vocab_size].float()
        params = [row.job.request.sampling_params for row in rows]
        floats = torch.tensor(
            [
                (p.temperature, p.top_p, row.random.random())
                for p, row in zip(params, rows, strict=True)
            ]
        ).to(logits.device)
        top_k = torch.tensor([p.top_k if p.top_k > 0 else base.vocab_size for p in params])
        tokens, logprobs = draw(
            logits, floats[:, 0], top_k.to(logits.device), floats[:, 1], floats[:, 2]
        )
        if not bool(logprobs.isfinite().all()):
            raise EngineError(Code.NON_FINITE_LOSS, "The model gave a logprob that is not finite.")
        for row, token, logprob in zip(rows, tokens.tolist(), logprobs.tolist(), strict=True):
            row.tokens.append(token)
            row.logprobs.append(logprob)
            if token in row.job.stop_ids:
                row.stop_reason, row.text_end = "stop", len(row.tokens) - 1
            elif row.job.stop_window and _hits_stop(row):
                row.stop_reason = "stop"
            elif len(row.tokens) >= row.job.max_new:
                row.stop_reason = "length"

    def _remove(self, index: int) -> None:
        row = self.rows[index]
        self.decoder.remove(index)
        last = self.rows.pop()
        if last is not row:
            self.rows[index] = last
        if all(other.stop_reason for other in row.job.rows) and not row.job.cancelled:
            row.job.done(row.job.response())

    def _drop_cancelled(self) -> None:
        for index in reversed(range(len(self.rows))):
            if self.rows[index].job.cancelled:
                self._remove(index)
        if any(row.job.cancelled for row in self.waiting):
            self.waiting = deque(row for row in self.waiting if not row.job.cancelled)


class Sampler:
    """All batches, and the queue in front of them."""

    def __init__(
        self, config: EngineConfig, load: Callable[[WeightsKey], tuple[ServedModel, nn.Module]]
    ) -> None:
        """`load` brings weights into memory; it may raise EngineError."""
        self._config = config
        self._load = load
        self._inbox: deque[SampleJob] = deque()
        self._batches: dict[WeightsKey, Batch] = {}
        """In the order of last use; the first is the next to be served or forgotten."""
        self.counters = dict.fromkeys(COUNTERS, 0)

    def submit(self, job: SampleJob) -> None:
        """Queue a request. From any thread."""
        self._inbox.append(job)

    @property
    def busy(self) -> bool:
        """Whether `step` has anything to do."""
        return bool(self._inbox) or any(batch.busy for batch in self._batches.values())

    def step(self) -> None:
        """Take in new requests, then advance the batch whose turn it is by one token."""
        while self._inbox:
            job = self._inbox.popleft()
            self._take(job)
            if job.scores_prompt:  # a whole forward pass: let the others go on first
                break
        key = next((key for key, batch in self._batches.items() if batch.busy), None)
        if key is None:
            return
        batch = self._batches[key] = self._batches.pop(key)
        try:
            with torch.inference_mode():
                decoded = batch.step()
        except Exception as error:  # boundary: one batch's failure must not stop the engine
            self._fail(key, error)
            return
        self.counters["decode_steps"] += decoded > 0
        self.counters["decoded_rows"] += decoded
        self.counters["largest_batch"] = max(self.counters["largest_batch"], decoded)

    def forget_idle(self) -> None:
        """Free weights and caches that nobody used for a while, or that are too many."""
        idle = [key for key, batch in self._batches.items() if not batch.busy]
        surplus = len(idle) - self._config.idle_weights
        oldest = time.monotonic() - WEIGHTS_IDLE_SECONDS
        for place, key in enumerate(idle):
            if place < surplus or self._batches[key].used < oldest:
                self._drop(key)

    def metrics(self) -> dict[str, int]:
        """Counters since the start, and what is in memory now."""
        metrics = {**self.counters, "weights_in_memory": len(self._batches), "rows_active": 0}
        for batch in list(self._batches.values()):
            metrics["rows_active"] += batch.decoder.rows
            metrics["prompt_tokens_computed"] += batch.decoder.computed_tokens
            metrics["prompt_tokens_reused"] += batch.decoder.reused_tokens
        return metrics

    def _drop(self, key: WeightsKey) -> Batch:
        """Take a batch out of memory; its counts stay."""
        batch = self._batches.pop(key)
        self.counters["prompt_tokens_computed"] += batch.decoder.computed_tokens
        self.counters["prompt_tokens_reused"] += batch.decoder.reused_tokens
        return batch

    def _take(self, job: SampleJob) -> None:
        try:
            if job.key not in self._batches:
                base, model = self._load(job.key)
                self._batches[job.key] = Batch(
                    model, make_decoder(base, model, self._config.max_rows)
                )
                self.forget_idle()
            batch = self._batches[job.key]
            if job.scores_prompt:
                self._score_prompt(job, batch.model)
            batch.waiting.extend(job.rows)
        except EngineError as error:
            job.done(error)
        except Exception:  # boundary: one request's failure must not stop the engine
            logger.exception("A sample request failed")
            job.done(EngineError(Code.INTERNAL_ERROR, "The engine failed; its log says why."))
        self.counters["requests"] += 1
        self.counters["sequences"] += len(job.rows)

    def _score_prompt(self, job: SampleJob, model: nn.Module) -> None:
        """Add prompt logprobs to the job's answer."""
        base, top_k = job.base, job.request.topk_prompt_logprobs
        chosen, best = prompt_logprobs(model, base.vocab_size, job.prompt, top_k, base.device)
        finish = job.done

        def with_prompt(outcome: dict[str, object] | EngineError) -> None:
            if not isinstance(outcome, EngineError):
                if job.request.return_prompt_logprobs:
                    outcome["prompt_logprobs"] = chosen
                if top_k:
                    outcome["topk_prompt_logprobs"] = best
            finish(outcome)

        job.done = with_prompt

    def _fail(self, key: WeightsKey, error: Exception) -> None:
        """Give up a batch: tell everybody in it, and free it."""
        if not isinstance(error, EngineError):
            logger.exception("A batch failed")
            error = EngineError(Code.INTERNAL_ERROR, "The engine failed; its log says why.")
        batch = self._drop(key)
        for job in {id(row.job): row.job for row in [*batch.rows, *batch.waiting]}.values():
            if not job.cancelled:
                job.done(error)


def _hits_stop(row: Row) -> bool:
    """Whether one of the stop strings is in the text of the last tokens."""
    tail = row.tokens[-row.job.stop_window :]
    text = row.job.base.tokenizer.decode(tail, skip_special_tokens=False)
    return any(stop in text for stop in row.job.request.sampling_params.stop)
