"""Shards: an evaluation split into mapped tasks, for sets that outgrow one process.

A shard runs wherever the task runner starts it (a thread, a Dask or Ray worker), so it gets typed
data only and opens its own connections. What it answers lies in the evaluation's store, a file a
question; the evaluation task finds it there and puts it together.
"""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from importlib import import_module
from math import ceil
from typing import Any

from tasks.evaluate import Policy, answer, evaluation_name
from tasks.retries import PATIENT_RETRIES
from tasks.secrets import load_secrets
from tasks.spoiled import refuse_spoiled
from tasks.workbench import Evaluating

from prefect import Task, task, unmapped
from prefect.futures import wait
from prefect.settings import get_current_settings
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner
from pydantic import BaseModel

from searchr1.config import EvalSettings, TaskRunnerKind
from searchr1.errors import SettingsError
from searchr1.runs import Run
from searchr1.workbench import open_workbench


class Shard(BaseModel):
    """Some of the questions that a policy has not answered yet."""

    policy: Policy
    evaluation: str
    """Its name: the file under the run's `evaluations`, without suffix."""
    number: int
    """1, 2, …"""
    question_ids: list[str]


@task(
    name="answer-shard",
    task_run_name="answer {run_name} {shard.policy.label} shard {shard.number}",
    **PATIENT_RETRIES,
)
async def answer_shard(run_name: str, shard: Shard, settings: EvalSettings) -> int:
    """Answer the questions of `shard` that are still open. Returns how many they are in all.
    Raises SearchOutage or PolicyUnavailable when too much failed, to be tried again later."""
    await load_secrets()
    run = Run.open(settings.runs_dir, run_name)
    store = run.evaluation(shard.evaluation, shard.policy.ref)
    wanted = set(shard.question_ids)
    async with open_workbench(settings, settings.question_set) as bench:
        its_own = [q for q in bench.questions if q.question_id in wanted]
        questions = await asyncio.to_thread(store.missing, its_own)
        label = f"{shard.policy.label}, shard {shard.number}"
        await _unless_stopped(answer(settings, bench, shard.policy, questions, store, label))
    await asyncio.to_thread(refuse_spoiled, store, settings.search_outage_share, wanted)
    return len(wanted)


_stopping = threading.Event()
"""Set when the flow of this process is cancelled: nothing else reaches the shards in its threads,
and they would go on asking."""


async def _unless_stopped(answering: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(answering)
    while not task.done():
        await asyncio.wait([task], timeout=0.5)
        if _stopping.is_set():
            task.cancel()
    await task


async def answer_in_shards(evaluating: Evaluating, policies: Sequence[Policy]) -> None:
    """Let all policies answer what they have not answered yet, in mapped tasks side by side.
    Raises the first error, when all are done."""
    _stopping.clear()
    try:
        await asyncio.to_thread(_map_shards, evaluating, policies)
    except asyncio.CancelledError:
        _stopping.set()
        raise


def _map_shards(evaluating: Evaluating, policies: Sequence[Policy]) -> None:
    settings = evaluating.settings
    shards = [shard for policy in policies for shard in shards_of(evaluating, policy)]
    if not shards:
        return
    with task_runner(settings.task_runner, settings.shards) as runner:
        parameters = {
            "run_name": evaluating.run.name,
            "shard": shards,
            "settings": unmapped(settings),
        }
        mapped: Task[..., Any] = answer_shard
        futures = runner.map(mapped, parameters)
        wait(list(futures))
        for future in futures:
            future.result()


def shards_of(evaluating: Evaluating, policy: Policy) -> list[Shard]:
    """The questions that `policy` has not answered yet, in `--shards` parts of equal size."""
    name = evaluation_name(policy)
    store = evaluating.run.evaluation(name, policy.ref)
    missing = [q.question_id for q in store.missing(evaluating.bench.questions)]
    size = max(1, ceil(len(missing) / evaluating.settings.shards))
    return [
        Shard(
            policy=policy,
            evaluation=name,
            number=start // size + 1,
            question_ids=missing[start : start + size],
        )
        for start in range(0, len(missing), size)
    ]


def task_runner(kind: TaskRunnerKind, workers: int) -> TaskRunner:
    """A task runner with so many workers. Raises SettingsError when its package is missing, or
    when there is no Prefect server that workers in other processes would report to."""
    if kind is TaskRunnerKind.THREADS:
        return ThreadPoolTaskRunner(max_workers=workers)
    try:
        module = import_module(f"prefect_{kind}")
    except ImportError as error:
        raise SettingsError(
            f"--task-runner {kind} needs prefect-{kind}: pip install prefect-{kind}"
        ) from error
    if not get_current_settings().api.url:
        raise SettingsError(
            f"--task-runner {kind} needs a Prefect server that its workers can reach. Start one "
            "with `make server`, then: prefect config set PREFECT_API_URL=http://127.0.0.1:4200/api"
        )
    if kind is TaskRunnerKind.DASK:
        workers_of: dict[str, int] = {"n_workers": workers, "threads_per_worker": 1}
        return module.DaskTaskRunner(cluster_kwargs=workers_of)
    return module.RayTaskRunner(init_kwargs={"num_cpus": workers})
