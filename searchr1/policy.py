"""Policies on a PyTRIO service: sessions, sampling, updates, checkpoints.

With `policy_errors` the only file that imports pytrio. A `PolicySession` holds the live training
client of one run. The client is stateful and remote, so the session keeps one promise: it is
*clean* only while the weights behind the client are exactly those named `policy_ref`. It is marked
dirty before the first event of an update is submitted and clean again once the new state is saved.
Whoever finds it dirty, or at another state, opens a new client from a saved state with its
optimiser; the broken or doubtful one is dropped.

Errors of the SDK become errors of this package (`searchr1.policy_errors`).
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytrio as trio
from pydantic import ValidationError
from pytrio.config.config import auth_state
from pytrio.types.forward.tensor_data import TensorData
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from searchr1.chat import ChatTokenizer
from searchr1.datum import Datum
from searchr1.errors import RetryableError
from searchr1.policy_errors import (
    FATAL_CODES,
    NOT_THE_PROTOCOL,
    AnswerLost,
    ClientLost,
    PolicyRefused,
    translate,
)
from searchr1.sampler import Sample, SamplingError

T = TypeVar("T")

SAMPLING_IN_FLIGHT = 64
"""Requests of one sampler at the service at once: a step's trajectories, all together."""
SAMPLING_QUEUE = 4096
"""Requests that may wait behind them in the SDK."""
SAMPLING_ATTEMPTS = 3
"""How often a sample is asked for when its answer is lost. The SDK repeats what fails before an
answer begins, and nothing after that."""


def require_key() -> None:
    """Raise PolicyRefused unless there is a key in the environment or the SDK's profile."""
    if not (os.environ.get("PYTRIO_API_KEY") or auth_state.api_key):
        raise PolicyRefused(f"PyTRIO cannot be used: {FATAL_CODES['auth.missing_api_key']}")


async def _translated(call: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
    """Await an SDK call, at most `timeout` seconds; its errors are raised as ours. Theirs are left
    out of the traceback: they hold the server's text, which may repeat a key."""
    try:
        return await asyncio.wait_for(call, timeout)
    except (trio.PyTrioError, TimeoutError, ValidationError) as error:
        translated = translate(error)
        if translated is error:
            raise
        raise translated from None


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Where the policy service is. `base_url` and `api_key` None mean: what the SDK finds in its
    environment variables or profile."""

    base_url: str | None = None
    api_key: str | None = None
    home: Path | None = None
    """Folder for the SDK's own files; None = the user's."""
    retry_seconds: float = 900.0
    """How long the SDK itself retries a request that fails for passing reasons."""


@dataclass(frozen=True, slots=True)
class AdamSettings:
    """The optimiser of one update."""

    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    grad_clip_norm: float
    """0 = no clipping."""


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """A fresh adapter on a base model."""

    base_model: str
    rank: int
    seed: int
    train_unembed: bool


@dataclass(frozen=True, slots=True)
class SavedWeights:
    """Weights that the service keeps."""

    uri: str
    size: int
    """Bytes; 0 when the service does not tell."""
    training_run: str
    """The service's id of the training run that saved them; deleting asks for it."""


class PolicyService:
    """The connection of this process to the service: makes sessions and samplers.

    `address` is asked whenever a connection is made, so an engine that was started anew is found
    at its new address. `timeout` bounds each operation but samples, in seconds: the SDK itself asks
    for ever how an event stands.
    """

    def __init__(self, address: Callable[[], ServiceAddress], timeout: float | None = None) -> None:
        self._address = address
        self.timeout = timeout
        self._connected_to: ServiceAddress | None = None
        self._client: trio.ServiceClient | None = None

    async def client(self) -> trio.ServiceClient:
        """A live connection; a new one after `drop`, or when the service moved. Checks the key.
        Raises PolicyRefused or PolicyUnavailable."""
        address = await asyncio.to_thread(self._address)
        if self._client is None or address != self._connected_to:
            _configure(address)
            self._client = await _translated(asyncio.to_thread(trio.ServiceClient))
            self._connected_to = address
        return self._client

    def drop(self) -> None:
        """Forget a connection that is in doubt."""
        self._client = None

    async def models(self) -> list[str]:
        """Names of the models on offer."""
        client = await self.client()
        capabilities = await _translated(client.get_server_capabilities_async())
        return [model.model_name for model in capabilities.supported_models]

    def session(self, lora: LoraSettings) -> "PolicySession":
        """A session with no client yet: call `open` first."""
        return PolicySession(self, lora)

    async def sampler(
        self, base_model: str, model_path: str | None, options: "SamplingOptions"
    ) -> "ServiceSampler":
        """A sampler of the base model, or of saved weights."""
        client = await self.client()
        sampling = await _translated(
            client.create_sampling_client_async(base_model=base_model, model_path=model_path),
            self.timeout,
        )
        return ServiceSampler(sampling, options)

    async def delete(self, training_run: str, uri: str) -> None:
        """Delete the saved weights at `uri`; nothing happens when they are gone already."""
        rest = (await self.client()).create_rest_client()
        listed = await _translated(rest.list_checkpoints_async(training_run))
        for checkpoint in listed.checkpoints:
            if checkpoint.path == uri:
                await _translated(
                    rest.delete_checkpoint_async(training_run, checkpoint.checkpoint_id)
                )


def _configure(address: ServiceAddress) -> None:
    """Tell the SDK where the service is and how long to retry; it is asked for when a client is
    made."""
    options: dict[str, Any] = {
        "control_retry_timeout_seconds": address.retry_seconds,
        "training_retry_timeout_seconds": address.retry_seconds,
        "sampling_retry_timeout_seconds": address.retry_seconds,
        "sampling_request_max_in_flight": SAMPLING_IN_FLIGHT,
        "sampling_request_queue_capacity": SAMPLING_QUEUE,
        "log_level": "ERROR",
    }
    # The SDK reads its variables once, when it is imported; a key may have come since.
    key, url = os.environ.get("PYTRIO_API_KEY"), os.environ.get("PYTRIO_BASE_URL")
    options |= {"api_key": key} if key else {}
    options |= {"base_url": url} if url else {}
    if address.home:
        options["home"] = str(address.home)
    if address.base_url:
        options |= {"base_url": address.base_url, "api_key": address.api_key}
        if "127.0.0.1" in address.base_url:  # a proxy of the environment cannot reach it
            direct = {*os.environ.get("NO_PROXY", "").split(","), "127.0.0.1"}
            os.environ["NO_PROXY"] = ",".join(filter(None, sorted(direct)))
    trio.configure_observability(enabled=False)
    trio.configure(**options)


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How to draw tokens, and how long to wait for one request."""

    temperature: float
    top_p: float
    timeout: float
    """Seconds."""


class ServiceSampler:
    """`searchr1.sampler.Sampler` on a PyTRIO sampling client."""

    def __init__(self, client: trio.SamplingClient, options: SamplingOptions) -> None:
        self._client = client
        self._options = options

    def tokenizer(self) -> ChatTokenizer:
        """The model's tokenizer; loading it may take seconds, so call it off the event loop."""
        return self._client.get_tokenizer()  # type: ignore[return-value]

    async def sample(
        self,
        prompt: Sequence[int],
        count: int,
        max_tokens: int,
        stop: Sequence[int],
        seed: int | None,
    ) -> list[Sample]:
        """See `searchr1.sampler.Sampler`. Asks again when the answer is lost."""
        parameters = trio.SamplingParams(
            max_tokens=max_tokens,
            temperature=self._options.temperature,
            top_p=self._options.top_p,
            seed=seed,
            stop=list(stop),
        )
        retrying = AsyncRetrying(
            stop=stop_after_attempt(SAMPLING_ATTEMPTS),
            wait=wait_random_exponential(max=10),  # seconds: up to 1, 2, …
            retry=retry_if_exception_type(AnswerLost),
            reraise=True,
        )
        try:
            return await retrying(self._ask, prompt, count, parameters)
        except ClientLost:  # not this request alone: the task is retried with a new client
            raise
        except RetryableError as error:
            raise SamplingError(str(error)) from error

    async def _ask(
        self, prompt: Sequence[int], count: int, parameters: trio.SamplingParams
    ) -> list[Sample]:
        response = await _translated(
            self._client.sample_async(
                trio.ModelInput.from_ints(list(prompt)), count, parameters, return_text=False
            ),
            self._options.timeout,
        )
        if len(response.sequences) != count:  # the SDK makes an empty answer of any other body
            raise AnswerLost(NOT_THE_PROTOCOL)
        return [
            Sample(tuple(sequence.tokens), tuple(sequence.logprobs))
            for sequence in response.sequences
        ]


class PolicySession:
    """The live training client of one run, and the saved state it stands at."""

    def __init__(self, policies: PolicyService, lora: LoraSettings) -> None:
        self._policies = policies
        self._lora = lora
        self._training: trio.TrainingClient | None = None
        self.policy_ref: str | None = None
        self.dirty = True

    async def open(self, policy_ref: str | None) -> None:
        """Stand at the saved state `policy_ref` (None: a fresh adapter). Keeps the live client
        when it is clean and already there; otherwise opens a new one, optimiser included."""
        if self._training is not None and not self.dirty and self.policy_ref == policy_ref:
            return
        self._training, self.dirty = None, True
        service = await self._policies.client()
        if policy_ref is None:
            self._training = await self._done(
                service.create_lora_training_client_async(
                    base_model=self._lora.base_model,
                    rank=self._lora.rank,
                    seed=self._lora.seed,
                    train_unembed=self._lora.train_unembed,
                )
            )
        else:
            self._training = await self._done(
                service.create_training_client_from_state_with_optimizer_async(policy_ref)
            )
        self.policy_ref, self.dirty = policy_ref, False

    async def _done(self, call: Coroutine[Any, Any, T]) -> T:
        return await _translated(call, self._policies.timeout)

    def _live(self) -> trio.TrainingClient:
        if self._training is None:
            raise RuntimeError("open() the session before using it")
        return self._training

    def discard(self) -> None:
        """Drop the live client and its connection; the next `open` makes new ones."""
        self._training, self.dirty = None, True
        self._policies.drop()

    def mark(self, policy_ref: str) -> None:
        """Call the present weights `policy_ref`: an update is complete and known, though its
        state is not saved. The session is clean there."""
        self.policy_ref, self.dirty = policy_ref, False

    async def sampler(self, options: SamplingOptions) -> ServiceSampler:
        """A sampler at the present weights."""
        client = await self._done(self._live().save_weights_and_get_sampling_client_async())
        return ServiceSampler(client, options)

    async def update(self, datums: Sequence[Datum], adam: AdamSettings) -> dict[str, float]:
        """One `importance_sampling` pass over all datums and one optimiser step, both submitted
        before either is awaited. Returns the service's metrics, and `logprob_drift`: the mean
        absolute difference between the sampler's and the trainer's logprob of a trained token.
        The session is dirty afterwards, until `save`."""
        self.dirty = True
        training = self._live()
        passes = await self._done(
            training.forward_backward_async(
                [_to_service(datum) for datum in datums], "importance_sampling"
            )
        )
        step = await self._done(training.optim_step_async(_adam(adam)))
        output = await self._done(_resolved(passes))
        stepped = await self._done(_resolved(step))
        metrics = {**output.metrics, **stepped.metrics}
        drift = _logprob_drift(datums, output.loss_fn_outputs)
        return metrics if drift is None else {**metrics, "logprob_drift": drift}

    async def save(self, name: str, ttl_seconds: int | None) -> SavedWeights:
        """Save weights and optimiser under `name`; the session is clean at the new state."""
        future = await self._done(
            self._live().save_state_async(name, ttl_seconds=ttl_seconds, overwrite=True)
        )
        saved = await self._done(_resolved(future))
        self.policy_ref, self.dirty = saved.path, False
        return SavedWeights(saved.path, saved.size or 0, self._live().training_run_cuid)

    async def save_sampler_weights(self, name: str) -> SavedWeights:
        """Save the present weights for inference, kept for good."""
        future = await self._done(self._live().save_weights_for_sampler_async(name))
        saved = await self._done(_resolved(future))
        return SavedWeights(saved.path, saved.size or 0, self._live().training_run_cuid)


async def _resolved(future: Any) -> Any:
    """The result of an SDK future, as a coroutine."""
    return await future


def _adam(adam: AdamSettings) -> trio.AdamParams:
    return trio.AdamParams(
        learning_rate=adam.learning_rate,
        beta1=adam.beta1,
        beta2=adam.beta2,
        eps=adam.eps,
        weight_decay=adam.weight_decay,
        grad_clip_norm=adam.grad_clip_norm,
    )


def _to_service(datum: Datum) -> trio.Datum:
    return trio.Datum(
        model_input=trio.ModelInput.from_ints(datum.input_tokens.tolist()),
        loss_fn_inputs={
            "target_tokens": TensorData.from_numpy(datum.target_tokens.astype(np.int64)),
            "logprobs": TensorData.from_numpy(datum.logprobs.astype(np.float32)),
            "advantages": TensorData.from_numpy(datum.advantages.astype(np.float32)),
        },
    )


def _logprob_drift(datums: Sequence[Datum], outputs: Sequence[Any]) -> float | None:
    """Mean |new - old| over trained tokens; None when the service returns no logprobs."""
    differences = []
    for datum, output in zip(datums, outputs, strict=False):
        returned = output.get("logprobs")
        if returned is None:
            return None
        new = np.asarray(returned.to_numpy(), np.float64)
        trained = datum.advantages != 0
        differences.append(np.abs(new - datum.logprobs)[trained])
    joined = np.concatenate(differences) if differences else np.zeros(0)
    return float(joined.mean()) if joined.size else None
