"""The rollout task: the trajectories of one step, each finished group kept at once.

A retry, or a new process, reuses the groups that are there. A step in which too much failed for
outside reasons is a failed task, not a bad step: the spoiled groups are dropped, the others kept.
"""

import asyncio
import time
from collections.abc import Sequence

from tasks.position import stand_at
from tasks.progress import progress
from tasks.retries import PATIENT_RETRIES
from tasks.spoiled import refuse_spoiled
from tasks.workbench import Training, current_training, reopening

from prefect import get_run_logger, task
from pydantic import BaseModel

from searchr1.budget import price, usage
from searchr1.metrics import rollout_metrics
from searchr1.rollout import RolloutContext, rollout_groups
from searchr1.trajectory import Group, Question
from searchr1.trajectory_store import TrajectoryStore
from searchr1.workbench import limits, sampling_options


class Rollout(BaseModel):
    """What the rollout of a step came to; its trajectories are in the run's store."""

    step: int
    policy_ref: str
    question_ids: list[str]
    trajectories: int
    metrics: dict[str, float]


@task(name="rollout", task_run_name="rollout {run_name} step {step}", **PATIENT_RETRIES)
async def rollout(run_name: str, step: int, policy_ref: str) -> Rollout:
    """Sample the groups of `step` from the policy saved at `policy_ref`. Raises SearchOutage or
    PolicyUnavailable when too much failed, to be tried again later."""
    training = current_training()
    started = time.monotonic()
    questions = training.schedule.batch(step)
    store = training.run.trajectories(step, policy_ref)
    missing = await asyncio.to_thread(store.missing, questions)
    with reopening(training):
        if missing:
            if reused := len(questions) - len(missing):
                get_run_logger().info("step %d: %d finished groups are reused", step, reused)
            await _sample(training, step, missing, store)
        if not store.finished:  # a killed attempt may have left spoiled groups, and all of them
            await asyncio.to_thread(
                refuse_spoiled,
                store,
                training.settings.search_outage_share,
                on_spoiled=lambda used: training.run.add_spoiled(
                    step, price(used, training.settings).metrics()
                ),
            )
    await asyncio.to_thread(store.finish, [q.question_id for q in questions])
    groups = await asyncio.to_thread(list, store.groups())
    used = usage(groups)
    metrics = rollout_metrics(groups) | used.metrics() | {"cost/search_usd": used.search_usd}
    metrics["time/rollout_seconds"] = time.monotonic() - started
    trajectories = sum(len(group.trajectories) for group in groups)
    return Rollout(
        step=step,
        policy_ref=policy_ref,
        question_ids=[question.question_id for question in questions],
        trajectories=trajectories,
        metrics=metrics,
    )


async def _sample(
    training: Training, step: int, questions: Sequence[Question], store: TrajectoryStore
) -> None:
    settings = training.settings
    await stand_at(training, step - 1)
    sampler = await training.session.sampler(sampling_options(settings))
    context = RolloutContext(
        sampler=sampler,
        backend=training.bench.backend,
        chat=await training.bench.chat(sampler),
        limits=limits(settings),
        seed=settings.seed * 1_000_003 + step,
    )
    rewards: list[float] = []

    async def keep(group: Group) -> None:
        await asyncio.to_thread(store.write, group)
        rewards.extend(t.reward for t in group.trajectories if t.valid)

    total = len(questions) * settings.group_size
    async with progress(lambda: _progress(step, rewards, total)):
        await rollout_groups(questions, settings.group_size, context, on_group=keep)


def _progress(step: int, rewards: Sequence[float], total: int) -> str:
    mean = sum(rewards) / max(1, len(rewards))
    return f"step {step}: {len(rewards)}/{total} trajectories, reward {mean:.2f}"
