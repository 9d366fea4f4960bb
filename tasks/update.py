"""The update task: one optimiser step on stored trajectories, saved and written to the ledger.

The ledger decides: a step that stands in it is returned as it stands, so a retry, or a kill just
after the line was written, never applies an update twice. Before that line is written nothing
counts: whatever half-way state an attempt left behind, the next one opens a new client at the last
saved state.
"""

import asyncio
import time

from tasks.position import apply, last_saved, stand_at, unsaved_ref
from tasks.retries import PATIENT_RETRIES
from tasks.rollout import Rollout
from tasks.workbench import Training, current_training, reopening

from prefect import get_run_logger, task

from searchr1.budget import Usage, price, spent
from searchr1.errors import SearchR1Error
from searchr1.metrics import batch_metrics
from searchr1.policy import SavedWeights
from searchr1.runs import StepRecord, now
from searchr1.watchdog import finite, warnings, watchdog_metrics

ROLLING_STATE_SECONDS = 14 * 24 * 3600
"""How long a state that is no checkpoint lives on the service: a run that rests longer has to go
on from its last checkpoint."""


@task(name="initial-state", task_run_name="initial state {run_name}", **PATIENT_RETRIES)
async def initial_state(run_name: str, resume_state: str | None) -> StepRecord:
    """Save the policy before any update, so that every step starts from a saved state."""
    training = current_training()
    recorded = (await asyncio.to_thread(training.run.ledger)).get(0)
    if recorded:
        return recorded
    with reopening(training):
        await training.session.open(resume_state)
        saved = await training.session.save(_name(training, 0), None)
    record = StepRecord(
        step=0,
        policy_ref=resume_state,
        state=saved.uri,
        saved=True,
        state_size=saved.size,
        training_run=saved.training_run,
        sampler_weights=None,
        time=now(),
        digest=training.digest,
    )
    await asyncio.to_thread(training.run.append, record)
    return record


@task(name="update", task_run_name="update {run_name} step {step}", **PATIENT_RETRIES)
async def update(run_name: str, step: int, policy_ref: str, rollout: Rollout) -> StepRecord:
    """Apply the step's trajectories to the policy at `policy_ref`, save it, record it."""
    training = current_training()
    ledger = await asyncio.to_thread(training.run.ledger)
    if step in ledger:
        get_run_logger().info("step %d is in the ledger; it is not applied again", step)
        return ledger[step]
    with reopening(training):
        record = await _apply_and_save(training, ledger, rollout)
    await asyncio.to_thread(training.run.append, record)
    if record.saved:
        await _forget_rolling(training, ledger, step)
    return record


async def _apply_and_save(
    training: Training, ledger: dict[int, StepRecord], rollout: Rollout
) -> StepRecord:
    settings, session, step = training.settings, training.session, rollout.step
    started = time.monotonic()
    await stand_at(training, step - 1)
    batch, service_metrics = await apply(training, step, rollout.policy_ref)
    updated = time.monotonic()

    keep = step % settings.save_every == 0 or step == settings.max_steps
    weights: SavedWeights | None = None
    if keep or step % settings.resume_every == 0:
        seconds = None if keep else ROLLING_STATE_SECONDS
        saved = await session.save(_name(training, step), seconds)
        if keep:
            weights = await session.save_sampler_weights(f"{_name(training, step)}-sampler")
        state, size, training_run = saved.uri, saved.size, saved.training_run
    else:
        before = last_saved(ledger, step - 1)
        state, size, training_run = unsaved_ref(before.state, step - before.step), 0, ""
        session.mark(state)
    finished = time.monotonic()
    billed = Usage(
        search_usd=rollout.metrics.get("search/cost_usd", 0.0),
        prompt_tokens=int(rollout.metrics["cost/prompt_tokens"]),
        sampled_tokens=int(rollout.metrics["cost/sampled_tokens"]),
        train_tokens=batch.tokens,
    )
    spoiled = await asyncio.to_thread(training.run.spoiled, step)
    cost = spent([price(billed, settings).metrics(), *spoiled]).cost
    metrics = rollout.metrics | batch_metrics(batch) | cost.metrics()
    metrics |= {f"trainer/{name}": float(value) for name, value in service_metrics.items()}
    metrics |= {
        "time/update_seconds": updated - started,
        "time/save_seconds": finished - updated,
        "time/step_seconds": rollout.metrics["time/rollout_seconds"] + finished - started,
    }
    return StepRecord(
        step=step,
        policy_ref=rollout.policy_ref,
        state=state,
        saved=bool(training_run),
        state_size=size,
        training_run=training_run,
        sampler_weights=weights.uri if weights else None,
        time=now(),
        digest=training.digest,
        question_ids=tuple(rollout.question_ids),
        epochs=training.schedule.cursor(step).epochs,
        datums=len(batch.datums),
        updated=bool(batch.datums),
        metrics=_watched(training, ledger, step, metrics),
    )


def _watched(
    training: Training, ledger: dict[int, StepRecord], step: int, metrics: dict[str, float]
) -> dict[str, float]:
    """The step's metrics as its record keeps them: with what the run has cost so far and the
    watchdog's marks, and finite."""
    history = {record.step: record.metrics for record in ledger.values() if record.step}
    metrics["cost/spent_usd"] = spent([*history.values(), metrics]).total
    found = warnings({**history, step: metrics})
    for warning in found:
        if warning.kind.metric not in history.get(step - 1, {}):  # said once, while it lasts
            get_run_logger().warning("step %d: %s", step, warning.message)
    return finite(metrics) | watchdog_metrics(found)


async def _forget_rolling(training: Training, ledger: dict[int, StepRecord], step: int) -> None:
    """Delete the rolling states before the last one: one state back is enough to start from, and
    the time to live covers what is missed here."""
    rolling = [r for r in ledger.values() if r.saved and r.step and not r.checkpoint]
    last = last_saved(ledger, step - 1).step
    for old in sorted(rolling, key=lambda r: r.step)[-2:]:
        if old.step < last:
            try:
                await training.bench.policies.delete(old.training_run, old.state)
            except SearchR1Error as error:
                get_run_logger().warning("the old state of step %d stays: %s", old.step, error)


def _name(training: Training, step: int) -> str:
    return f"{training.run.name}-{training.run.run_id}-step-{step:05d}"
