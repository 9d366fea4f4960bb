"""The engine behind the HTTP routes: models, checkpoints, runs, and what events do.

All methods are called from the event loop; torch work goes to the worker thread, disk work that
may take a while to a thread of its own.
"""

import asyncio
import secrets
import time
from collections.abc import Generator

import numpy as np
import torch

from searchr1.engine import config as settings
from searchr1.engine import memory
from searchr1.engine.checkpoints import Checkpoint, CheckpointStore, Kind
from searchr1.engine.config import EngineConfig
from searchr1.engine.errors import Code, EngineError
from searchr1.engine.model import ServedModel
from searchr1.engine.runs import (
    Event,
    Outcome,
    Record,
    SamplingRun,
    Session,
    Status,
    TrainingRun,
)
from searchr1.engine.sampler import Sampler, WeightsKey
from searchr1.engine.trainer import (
    ForwardResult,
    TrainedModel,
    lora_weights,
    shifted_back,
)
from searchr1.engine.wire import Forward, InitRun, OptimizeStep, Save, parse
from searchr1.engine.worker import Worker


def new_cuid(prefix: str) -> str:
    """A fresh id."""
    return f"{prefix}_{secrets.token_hex(12)}"


class Engine:
    """State of one engine process."""

    def __init__(self, config: EngineConfig) -> None:
        """Raises OSError or ValueError when a model folder cannot be used."""
        self.config = config
        self.models = {
            alias: ServedModel(alias, folder, config) for alias, folder in config.models.items()
        }
        self.store = CheckpointStore(config.home)
        self.worker = Worker(Sampler(config, self._load_weights))
        self.sessions: dict[str, Session] = {}
        self.training_runs: dict[str, TrainingRun] = {}
        self.sampling_runs: dict[str, SamplingRun] = {}
        self.downloads: dict[str, tuple[Checkpoint, float]] = {}
        """Download token to checkpoint and expiry."""
        self._reaper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work; needs a running event loop."""
        self.worker.start()
        self._reaper = asyncio.create_task(self._reap_for_ever())

    async def stop(self) -> None:
        """End all runs and the worker thread."""
        if self._reaper is not None:
            self._reaper.cancel()
        for session in self.sessions.values():
            self.close_session(session, Status.ENDED)
        await asyncio.to_thread(self.worker.stop)

    def model(self, name: str) -> ServedModel:
        """A base model by alias or model id. Raises EngineError (`model_not_found`)."""
        for model in self.models.values():
            if name in (model.alias, model.model_id):
                return model
        known = ", ".join(self.models)
        message = f"This engine does not serve the model {name!r}. It serves: {known}."
        raise EngineError(Code.MODEL_NOT_FOUND, message)

    def model_of(self, checkpoint: Checkpoint) -> ServedModel:
        """The base model that a checkpoint was trained from."""
        if checkpoint.model_alias in self.models:
            return self.models[checkpoint.model_alias]
        return self.model(checkpoint.model_id)

    def session(self, cuid: str, *, running: bool = False) -> Session:
        """Raises EngineError (`service_session_not_found`, `service_session_ended`)."""
        session = self.sessions.get(cuid)
        if session is None:
            message = f"No session {cuid!r} here. Was the engine restarted? Open a new one."
            raise EngineError(Code.SESSION_NOT_FOUND, message)
        if running and session.status is not Status.RUNNING:
            message = f"Session {cuid!r} was closed. Open a new one."
            raise EngineError(Code.SESSION_ENDED, message)
        session.touch()
        return session

    def start_run(self, run: TrainingRun) -> None:
        """Register a training run and begin to execute its events."""
        self.training_runs[run.cuid] = run

        async def perform(event: Event) -> Outcome:
            return await self._perform(run, event)

        run.task = asyncio.create_task(run.execute(perform))

    def close_session(self, session: Session, status: Status) -> None:
        """End a session and its runs; again does nothing."""
        if session.status is not Status.RUNNING:
            return
        session.status = status
        for cuid in session.training_runs:
            if cuid in self.training_runs:
                self.training_runs[cuid].end(status)
        for cuid in session.sampling_runs:
            if cuid in self.sampling_runs:
                self.sampling_runs[cuid].status = status

    async def _perform(self, run: TrainingRun, event: Event) -> Outcome:
        """Execute one event. Raises EngineError."""
        kind, payload = event.envelope.type, event.envelope.payload
        if kind == "trainer.init_run":
            init = parse(InitRun, payload, Code.VALIDATION_FAILED)
            run.model = await self.worker.run(lambda: self._build(run, init))
            return Outcome({})
        if kind == "trainer.end_run":
            run.model = None
            return Outcome({})
        model = run.model
        if model is None:
            message = "The run has no weights yet: its trainer.init_run event did not succeed."
            raise EngineError(Code.RUN_NOT_INITIALIZED, message)
        if kind == "trainer.optimize_step":
            step = parse(OptimizeStep, payload, Code.VALIDATION_FAILED)
            metrics = await self.worker.run(lambda: model.optimize(step.adam_params))
            await self.worker.run(memory.release)  # once for every batch trained on
            return Outcome({"metrics": metrics})
        if kind in ("trainer.save_state", "trainer.save_weights"):
            save = parse(Save, payload, Code.VALIDATION_FAILED)
            which = Kind.STATE if kind == "trainer.save_state" else Kind.WEIGHTS
            return Outcome(await self.worker.run(lambda: self._save(run, model, which, save)))
        backward = kind == "trainer.forward_backward"
        return await self.worker.run(lambda: _forward(model, payload, backward))

    def _build(self, run: TrainingRun, init: InitRun) -> TrainedModel:
        if self.model(init.base_model) is not run.base or init.source != run.source_uri:
            message = "The run was created for another model or checkpoint than the event names."
            raise EngineError(Code.VALIDATION_FAILED, message)
        if not run.source_uri:
            return TrainedModel(run.base, run.lora)
        checkpoint, tensors = self.store.load(run.source_uri)
        if self.model_of(checkpoint) is not run.base:
            message = f"The checkpoint is of model {checkpoint.model_alias!r}, the run is not."
            raise EngineError(Code.CHECKPOINT_INCOMPATIBLE, message)
        return TrainedModel.restore(
            run.base, run.lora, checkpoint, tensors, optimizer=init.load_optimizer
        )

    def _save(
        self, run: TrainingRun, model: TrainedModel, kind: Kind, save: Save
    ) -> dict[str, object]:
        now = time.time()
        checkpoint = Checkpoint(
            cuid=new_cuid("ckpt"),
            run=run.cuid,
            kind=kind,
            name=save.name,
            model_alias=run.base.alias,
            model_id=run.base.model_id,
            lora=run.lora,
            step=model.step,
            created=now,
            expires=None if save.ttl_seconds is None else now + save.ttl_seconds,
            visibility=save.visibility,
        )
        size = model.save(self.store, checkpoint, overwrite=save.overwrite)
        return {
            "checkpoint": {
                "uri": checkpoint.uri,
                "size_bytes": size,
                "model_id": run.base.model_id,
                "checkpoint_cuid": checkpoint.cuid,
            }
        }

    def _load_weights(self, key: WeightsKey) -> tuple[ServedModel, torch.nn.Module]:
        """Bring weights into memory for sampling. In the torch thread."""
        base = self.models[key.alias]
        if not key.uri:
            return base, base.base
        checkpoint, tensors = self.store.load(key.uri)
        return base, base.for_sampling(checkpoint.lora, lora_weights(tensors))

    async def _reap_for_ever(self) -> None:
        while True:
            await asyncio.sleep(settings.REAP_SECONDS)
            self.reap(time.time())
            await asyncio.to_thread(self.store.sweep)
            await self.worker.run(self.worker.sampler.forget_idle)

    def reap(self, now: float) -> None:
        """End and forget what its client has left behind; see the times in `config`."""
        for run in self.training_runs.values():
            if run.status is Status.RUNNING and now - run.touched > settings.TRAINING_IDLE_SECONDS:
                busy = any(not event.finished.is_set() for event in run.events.values())
                if not busy:
                    run.end(Status.ENDED)
        for run in self.sampling_runs.values():
            if now - run.touched > settings.SAMPLING_IDLE_SECONDS:
                run.status = Status.ENDED
        for session in self.sessions.values():
            runs: list[Record] = [
                *(self.training_runs[c] for c in session.training_runs if c in self.training_runs),
                *(self.sampling_runs[c] for c in session.sampling_runs if c in self.sampling_runs),
            ]
            idle = now - session.touched > settings.SAMPLING_IDLE_SECONDS
            if idle and all(run.status is not Status.RUNNING for run in runs):
                self.close_session(session, Status.ENDED)
        for records in (self.sessions, self.training_runs, self.sampling_runs):
            for cuid, record in list(records.items()):
                old = now - record.touched > settings.RECORD_SECONDS
                if old and record.status is not Status.RUNNING:
                    del records[cuid]
        for token, (_, expires) in list(self.downloads.items()):
            if expires < now:
                del self.downloads[token]


def _forward(
    model: TrainedModel, payload: dict[str, object], backward: bool
) -> Generator[None, None, Outcome]:
    """A forward event, in slices."""
    request = parse(Forward, payload, Code.VALIDATION_FAILED)
    result = yield from model.forward(request, backward=backward)
    return Outcome(_forward_body(result, request.auto_shift), result.input_tokens)


def _forward_body(result: ForwardResult, auto_shift: bool) -> dict[str, object]:
    rows = map(shifted_back, result.logprobs) if auto_shift else result.logprobs
    return {
        "loss_fn_outputs": [
            {
                "logprobs": {
                    "dtype": "<f4",
                    "shape": [len(row)],
                    "encoding": "raw_le",
                    "data": np.asarray(row, dtype="<f4").tobytes(),
                }
            }
            for row in rows
        ],
        "metrics": {
            "loss_sum": result.loss_sum,
            "loss_mean": result.loss_sum / max(1, result.token_count),
            "token_count": result.token_count,
        },
    }
