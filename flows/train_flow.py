"""Train: a rollout task and an update task a step, each kept, retried and resumed.

    python flows/train_flow.py --profile deepseek --max-steps 20 --save-every 5

A run of the same name is taken up after its last finished step.
"""

import asyncio
from typing import Any

from flows.settings_flow import main, settings_flow
from tasks.artifacts import TrainingArtifacts, training_summary
from tasks.rollout import rollout
from tasks.update import initial_state, update
from tasks.workbench import Training, train_on

from prefect import get_run_logger
from prefect.context import FlowRunContext
from prefect.runtime import flow_run

from searchr1.budget import check_max_cost, spent, why_stopped, would_pass
from searchr1.config import OnCollapse, ServiceKind, TrainSettings, digest, identity
from searchr1.data import BatchSchedule, questions_checksum
from searchr1.errors import FatalError
from searchr1.estimate import Forecast, first_step_cost, text, training
from searchr1.policy import LoraSettings
from searchr1.runs import Run, StepRecord
from searchr1.tracking import Tracker
from searchr1.watchdog import collapse
from searchr1.workbench import open_workbench, preflight


@settings_flow(TrainSettings, name="train")
async def train(settings: TrainSettings) -> str:
    """Teach a policy to search, by reinforcement learning with group-relative advantages.

    Returns the name of the run.
    """
    check_settings(settings)
    if settings.dry_run:
        get_run_logger().info(dry_run(settings, []))
        return ""
    name = settings.run_name or default_run_name(settings)
    who = run_identity(settings)
    run = Run.start(settings.runs_dir, name, settings.model_dump(mode="json"), who)
    get_run_logger().info(_plan(settings, run))
    with run.lock():
        async with open_workbench(settings, "train") as bench:
            lora = LoraSettings(
                settings.base_model, settings.lora_rank, settings.seed, settings.train_unembed
            )
            schedule = BatchSchedule(
                bench.questions,
                settings.seed,
                settings.questions_per_batch,
                settings.source_weights or None,
            )
            session = bench.policies.session(lora)
            train_on(Training(run, settings, digest(who), bench, session, schedule))
            await _steps(settings, run, first_state(settings))
        await training_summary(run, settings.max_steps)
    return run.name


async def _steps(settings: TrainSettings, run: Run, state: str | None) -> None:
    """The steps that are not in the ledger yet."""
    logger = get_run_logger()
    done = await asyncio.to_thread(run.ledger)
    tracker = Tracker(
        settings.swanlab_mode,
        settings.swanlab_project,
        run.name,
        run.run_id,
        run.directory / "swanlog",
        run.settings,
    )
    with tracker:
        record = done.get(0) or await initial_state(run.name, state)
        artifacts = TrainingArtifacts(run.name, settings.max_steps)
        await artifacts.show(done)
        for step in range(1, settings.max_steps + 1):
            if step in done:
                record = done[step]
                continue
            await asyncio.to_thread(refuse_to_go_on, settings, run)
            rolled = await rollout(run.name, step, record.state)
            record = await update(run.name, step, record.state, rolled)
            tracker.log(record.metrics, step)
            logger.info(_line(record, settings.max_steps))
            await artifacts.show(await asyncio.to_thread(run.ledger))


async def check(settings: TrainSettings) -> None:
    """What can be found wrong before anything is started; with `dry_run` nothing is."""
    check_settings(settings)
    if settings.dry_run:
        print(dry_run(settings, []))
        raise SystemExit(0)
    await preflight(settings, "train")


def check_settings(settings: TrainSettings) -> None:
    """Raise SettingsError for settings that contradict each other or what there is."""
    first_state(settings)
    if settings.policy_service is ServiceKind.PYTRIO:
        check_max_cost(settings, settings.max_cost)


class Stopped(FatalError):
    """The run stops here, as its settings ask; it can be started again."""


def refuse_to_go_on(settings: TrainSettings, run: Run) -> None:
    """Raise Stopped before a step that would cost too much, or after a collapse."""
    history = {r.step: r.metrics for r in run.ledger().values() if r.step}
    thrown_away = run.spoiled(max(history, default=0) + 1)
    so_far = spent([*(history[step] for step in sorted(history)), *thrown_away])
    prior = first_step_cost(settings)
    if settings.max_cost is not None and would_pass(so_far, settings.max_cost, prior):
        raise Stopped(why_stopped(so_far, settings.max_cost, prior))
    if settings.on_collapse is OnCollapse.STOP and (warning := collapse(history)):
        raise Stopped(
            f"{warning.message} The run stops after step {warning.step} (--on-collapse stop); "
            "start it again with --on-collapse warn to go on all the same."
        )


def dry_run(settings: TrainSettings, evaluations: list[Forecast]) -> str:
    """The resolved settings, and what the steps that are left will take."""
    history = []
    if settings.run_name and (settings.runs_dir / settings.run_name / "run.json").exists():
        ledger = Run.open(settings.runs_dir, settings.run_name).ledger()
        history = [ledger[step].metrics for step in sorted(ledger) if step]
    forecast = text([training(settings, history), *evaluations], settings)
    return f"{settings.model_dump_json(indent=2)}\n{forecast}\nNothing was started."


def first_state(settings: TrainSettings) -> str | None:
    """The saved state that a new run starts from; None = a fresh adapter. Raises SettingsError
    naming the checkpoints that there are."""
    if not settings.fork_from:
        return settings.resume_state
    name, checkpoint = settings.fork_from.split(":")
    return Run.open(settings.runs_dir, name).checkpoint(checkpoint).state


def run_identity(settings: TrainSettings) -> dict[str, Any]:
    """What makes two flow runs the same training: settings and questions. Raises DataError."""
    checksum = questions_checksum(settings.data_dir, "train")
    return identity(settings) | {"train_questions": checksum}


def default_run_name(settings: TrainSettings) -> str:
    """A new name for a new flow run; the same one when Prefect retries that flow run."""
    context = FlowRunContext.get()
    root = flow_run.root_flow_run_id or (context and context.flow_run and context.flow_run.id)
    return f"{settings.profile}-{str(root)[:8]}"


def _plan(settings: TrainSettings, run: Run) -> str:
    last = max(run.ledger(), default=0)
    begins = f"goes on after step {last}" if last else "begins"
    return (
        f"run '{run.name}' {begins}: {settings.max_steps} steps of "
        f"{settings.questions_per_batch} questions x {settings.group_size} trajectories, "
        f"{settings.base_model} on {settings.policy_service}, search by "
        f"{settings.search_backend}; kept in {run.directory}"
    )


def _line(record: StepRecord, max_steps: int) -> str:
    metrics = record.metrics
    kept = f", checkpoint {record.checkpoint}" if record.checkpoint else ""
    return (
        f"step {record.step}/{max_steps}: reward {metrics['reward/mean']:.2f}, "
        f"right {metrics['reward/correct']:.0%}, format {metrics['reward/format']:.0%}, "
        f"searches {metrics['rollout/search_calls']:.2f}, "
        f"{record.datums} datums, {metrics['time/step_seconds']:.1f} s{kept}"
    )


if __name__ == "__main__":
    main(train, TrainSettings, check)
