"""The evaluation task: one policy on one question set, each finished question kept at once."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from tasks.progress import progress
from tasks.retries import PATIENT_RETRIES
from tasks.spoiled import refuse_spoiled
from tasks.workbench import current_evaluating

from prefect import get_run_logger, task
from pydantic import BaseModel

from searchr1.budget import price, usage
from searchr1.config import EvalSettings, digest
from searchr1.errors import RetryableError
from searchr1.evaluation import jsonl_lines
from searchr1.files import write_text
from searchr1.metrics import search_statistics
from searchr1.rollout import RolloutContext, rollout_groups
from searchr1.runs import now
from searchr1.search import SearchStatistics
from searchr1.trajectory import Group, Question
from searchr1.trajectory_store import TrajectoryStore, iterate_trajectories
from searchr1.workbench import Workbench, limits, sampling_options

BASE = "base"


class Policy(BaseModel):
    """What is evaluated."""

    label: str
    """"base", "step_10", or what a person sees for a given path."""
    model_path: str | None
    """Saved weights; None = the base model."""
    step: int
    """Of the checkpoint; 0 for the base model."""

    @property
    def ref(self) -> str:
        """Whose trajectories a store holds: the saved weights, or the base model."""
        return self.model_path or BASE


class Evaluated(BaseModel):
    """Where the evaluation of a policy lies."""

    policy: Policy
    evaluation: str
    """Its name: the file under the run's `evaluations`, without suffix."""
    questions: int


def evaluation_name(policy: Policy) -> str:
    """Name of the evaluation: equal for equal policy, questions, sampling and environment."""
    evaluating = current_evaluating()
    settings = evaluating.settings
    what = {
        "model_path": policy.model_path,
        "base_model": settings.base_model,
        "questions": evaluating.questions_digest,
        "samples": settings.samples,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed,
        "environment": evaluating.bench.environment,
    }
    return f"{policy.label}.{settings.question_set}.{digest(what)}"


@task(name="evaluate", task_run_name="evaluate {run_name} {policy.label}", **PATIENT_RETRIES)
async def evaluate(run_name: str, policy: Policy) -> Evaluated:
    """Let `policy` answer every question of the set. Finished questions are reused. Raises
    SearchOutage or PolicyUnavailable when too much failed, to be tried again later."""
    evaluating = current_evaluating()
    settings, bench = evaluating.settings, evaluating.bench
    name = evaluation_name(policy)
    store = evaluating.run.evaluation(name, policy.ref)
    description = store.path.with_suffix(".json")
    missing = await asyncio.to_thread(store.missing, bench.questions)
    started = now()
    if missing:
        if reused := len(bench.questions) - len(missing):
            get_run_logger().info("%s: %d answered questions are reused", policy.label, reused)
        await answer(settings, bench, policy, missing, store, policy.label)
    if not store.finished:  # a killed attempt may have left spoiled groups, and all of them
        await asyncio.to_thread(refuse_spoiled, store, settings.search_outage_share)
    await asyncio.to_thread(store.finish, [q.question_id for q in bench.questions])
    if not description.exists():
        search = await asyncio.to_thread(search_statistics_of, store.path)
        used = await asyncio.to_thread(lambda: usage(store.groups()))
        text = {
            "evaluation": name,
            "run": evaluating.run.name,
            "checkpoint": policy.label,
            "model_path": policy.model_path,
            "step": policy.step,
            "question_set": settings.question_set,
            "questions_digest": evaluating.questions_digest,
            "questions": len(bench.questions),
            "samples": settings.samples,
            "temperature": settings.temperature,
            "environment": bench.environment,
            "environment_fingerprint": bench.environment_fingerprint,
            "settings": settings.model_dump(mode="json"),
            "started_at": started,
            "finished_at": now(),
            "forced_mixed": settings.force_mixed,
            "search": search.metrics(),
            "cost": price(used, settings).metrics(),
        }
        write_text(description, json.dumps(text, indent=2) + "\n")
    get_run_logger().info("%s: %d questions answered", policy.label, len(bench.questions))
    return Evaluated(policy=policy, evaluation=name, questions=len(bench.questions))


def search_statistics_of(path: Path) -> SearchStatistics:
    """How the search environment did in the trajectories of one file."""
    return search_statistics(s for t in iterate_trajectories(path) for s in t.searches)


async def answer(
    settings: EvalSettings,
    bench: Workbench,
    policy: Policy,
    questions: Sequence[Question],
    store: TrajectoryStore,
    label: str,
) -> None:
    """Let `policy` answer these questions, each kept in `store` as it is finished; `label` is
    what the progress line begins with."""
    try:
        sampler = await bench.policies.sampler(
            settings.base_model, policy.model_path, sampling_options(settings)
        )
    except RetryableError:
        bench.policies.drop()  # the retry makes a new connection
        raise
    context = RolloutContext(
        sampler=sampler,
        backend=bench.backend,
        chat=await bench.chat(sampler),
        limits=limits(settings),
        seed=settings.seed,
    )
    right: list[bool] = []

    async def keep(group: Group) -> None:
        await asyncio.to_thread(store.write, group)
        right.extend(trajectory.em for trajectory in group.trajectories)

    total = len(questions) * settings.samples
    line = f"{label}: %d/{total} answers, %d right"
    async with progress(lambda: line % (len(right), sum(right))):
        await rollout_groups(
            questions,
            settings.samples,
            context,
            on_group=keep,
            max_in_flight=settings.batch_size,
        )


@task(name="write-jsonl", task_run_name="write {run_name} {evaluated.policy.label}")
async def write_jsonl(run_name: str, evaluated: Evaluated, folder: Path) -> Path:
    """Write an evaluation as the seed's JSONL: a line a question, a summary line last."""
    evaluating = current_evaluating()
    path = evaluating.run.evaluation(evaluated.evaluation, evaluated.policy.ref).path
    file = folder / f"{evaluated.policy.label}.jsonl"

    def write() -> None:
        lines = jsonl_lines(
            iterate_trajectories(path),
            base_model=evaluating.settings.base_model,
            model_path=evaluated.policy.model_path,
            search_backend=evaluating.settings.search_backend,
            search=search_statistics_of(path).metrics(),
        )
        write_text(file, "".join(f"{line}\n" for line in lines))

    await asyncio.to_thread(write)
    return file
