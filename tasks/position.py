"""Where the live policy of a run stands, and how it gets there.

A run need not save its state after every step. The policy after a step that was not saved is
named by the last saved state and the number of updates since, and it is reached by opening that
state and applying the stored trajectories of those steps again: nothing is sampled or searched.
"""

import asyncio
from typing import Any

from tasks.workbench import Training

from prefect import get_run_logger

from searchr1.config import TrainSettings
from searchr1.datum import Batch, build_batch
from searchr1.errors import DataError
from searchr1.policy import AdamSettings
from searchr1.runs import StepRecord


def unsaved_ref(saved_state: str, updates: int) -> str:
    """Name of the policy that is `updates` steps past a saved state."""
    return f"{saved_state}+{updates}"


def last_saved(ledger: dict[int, StepRecord], step: int) -> StepRecord:
    """The last record at or before `step` whose state is saved."""
    return max((r for r in ledger.values() if r.saved and r.step <= step), key=lambda r: r.step)


async def stand_at(training: Training, step: int) -> None:
    """Bring the session to the policy after `step`, which stands in the ledger."""
    session = training.session
    ledger = await asyncio.to_thread(training.run.ledger)
    if not session.dirty and session.policy_ref == ledger[step].state:
        return
    saved = last_saved(ledger, step)
    await session.open(saved.state)
    for missing in range(saved.step + 1, step + 1):
        get_run_logger().info("step %d is applied again from its stored trajectories", missing)
        await apply(training, missing, ledger[missing].policy_ref or "")
        session.mark(ledger[missing].state)


async def apply(training: Training, step: int, policy_ref: str) -> tuple[Batch, dict[str, float]]:
    """Apply the stored trajectories of `step` to the live policy. Returns the batch and the
    service's metrics. The session is dirty afterwards, if there was anything to apply. Raises
    DataError when some of them are gone."""
    store = training.run.trajectories(step, policy_ref)
    lost = await asyncio.to_thread(store.missing, training.schedule.batch(step))
    if lost:
        raise DataError(
            f"trajectories of step {step} are missing in {store.path}, so the policy after it "
            "cannot be made again. Bring the file back, or start a new run from an earlier "
            "checkpoint with --fork-from."
        )
    groups = await asyncio.to_thread(list, store.groups())
    batch = build_batch(groups, training.settings.max_trajectory_tokens - 1)
    if not batch.datums:
        return batch, {}
    return batch, await training.session.update(batch.datums, adam(training.settings))


def adam(settings: TrainSettings) -> AdamSettings:
    """The optimiser of an update."""
    names: dict[str, Any] = {"eps": settings.adam_eps}
    names |= {
        name: getattr(settings, name)
        for name in ("learning_rate", "beta1", "beta2", "weight_decay", "grad_clip_norm")
    }
    return AdamSettings(**names)
