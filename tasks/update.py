"""The update task: one optimiser step on stored trajectories, saved and written to the ledger.

The ledger decides: a step that stands in it is returned as it stands, so a retry, or a kill
between the ledger and Prefect's own record, never applies an update twice. Before that line is
written nothing counts: whatever half-way state an attempt left behind, the next one opens a new
client at the last saved state.
"""

import asyncio
import time
from typing import Any

from prefect import get_run_logger, task
from prefect.context import TaskRunContext

from searchr1.datum import build_batch
from searchr1.errors import SearchR1Error
from searchr1.policy import AdamSettings, SavedWeights
from searchr1.runs import StepRecord, now
from tasks.retries import RETRIES
from tasks.rollout import Rollout
from tasks.workbench import Training, current_training

ROLLING_STATE_SECONDS = 14 * 24 * 3600
"""How long a state that is no checkpoint lives on the service: a run that rests longer has to go
on from its last checkpoint."""


def update_key(_context: TaskRunContext, parameters: dict[str, Any]) -> str:
    """Prefect's cache key: the run, the settings that matter, and the step."""
    training = current_training.get()
    return f"update.{training.run.run_id}.{training.digest}.step-{parameters['step']:05d}"


OPTIONS: dict[str, Any] = {
    "persist_result": True,
    "result_serializer": "json",
    "cache_key_fn": update_key,
    **RETRIES,
}


@task(name="initial-state", task_run_name="initial state {run_name}", **OPTIONS)
async def initial_state(run_name: str, resume_state: str | None, step: int = 0) -> StepRecord:
    """Save the policy before any update, so that every step starts from a saved state."""
    training = current_training.get()
    recorded = (await asyncio.to_thread(training.run.ledger)).get(step)
    if recorded:
        return recorded
    await training.session.open(resume_state)
    training.session.dirty = True
    saved = await training.session.save(_name(training, step), None)
    record = StepRecord(
        step=step,
        policy_ref=resume_state,
        state=saved.uri,
        state_size=saved.size,
        training_run=saved.training_run,
        sampler_weights=None,
        time=now(),
        digest=training.digest,
    )
    await asyncio.to_thread(training.run.append, record)
    return record


@task(name="update", task_run_name="update {run_name} step {step}", **OPTIONS)
async def update(run_name: str, step: int, policy_ref: str, rollout: Rollout) -> StepRecord:
    """Apply the step's trajectories to the policy at `policy_ref`, save it, record it."""
    training = current_training.get()
    ledger = await asyncio.to_thread(training.run.ledger)
    if step in ledger:
        get_run_logger().info("step %d is in the ledger; it is not applied again", step)
        return ledger[step]
    settings, session = training.settings, training.session
    started = time.monotonic()
    groups = await asyncio.to_thread(training.run.trajectories(step, policy_ref).read)
    batch = build_batch(list(groups.values()), settings.max_trajectory_tokens - 1)
    metrics = dict(rollout.metrics)
    metrics |= {
        "train/datums_per_rollout_batch": float(len(batch.datums)),
        "train/tokens_per_rollout_batch": float(batch.tokens),
        "train/loss_tokens_per_rollout_batch": float(batch.loss_tokens),
        "train/update_skipped": float(not batch.datums),
    }
    metrics |= {f"train/trajectories_{fate}": float(n) for fate, n in batch.fates.items()}

    await session.open(policy_ref)
    if batch.datums:
        service_metrics = await session.update(batch.datums, _adam(settings))
        metrics |= {f"trainer/{name}": float(value) for name, value in service_metrics.items()}
    updated = time.monotonic()

    keep = step % settings.save_every == 0 or step == settings.max_steps
    saved = await session.save(_name(training, step), None if keep else ROLLING_STATE_SECONDS)
    weights: SavedWeights | None = None
    if keep:
        weights = await session.save_sampler_weights(f"{_name(training, step)}-sampler")
    finished = time.monotonic()
    metrics |= {
        "time/update_seconds": updated - started,
        "time/save_seconds": finished - updated,
        "time/step_seconds": metrics["time/rollout_seconds"] + finished - started,
    }
    record = StepRecord(
        step=step,
        policy_ref=policy_ref,
        state=saved.uri,
        state_size=saved.size,
        training_run=saved.training_run,
        sampler_weights=weights.uri if weights else None,
        time=now(),
        digest=training.digest,
        question_ids=tuple(groups),
        datums=len(batch.datums),
        updated=bool(batch.datums),
        metrics=metrics,
    )
    await asyncio.to_thread(training.run.append, record)
    await _forget_rolling(training, ledger, step)
    return record


async def _forget_rolling(training: Training, ledger: dict[int, StepRecord], step: int) -> None:
    """Delete the state of the step before last, unless it is kept: one state back is enough to
    start from, and the time to live covers what is missed here."""
    old = ledger.get(step - 2)
    if old and old.step and not old.checkpoint:
        try:
            await training.bench.policies.delete(old.training_run, old.state)
        except SearchR1Error as error:
            get_run_logger().warning("the old state of step %d stays: %s", old.step, error)


def _name(training: Training, step: int) -> str:
    return f"{training.run.name}-{training.run.run_id}-step-{step:05d}"


def _adam(settings: Any) -> AdamSettings:
    return AdamSettings(
        learning_rate=settings.learning_rate,
        beta1=settings.beta1,
        beta2=settings.beta2,
        eps=settings.adam_eps,
        weight_decay=settings.weight_decay,
        grad_clip_norm=settings.grad_clip_norm,
    )
