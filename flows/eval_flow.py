"""Evaluate: the base model and checkpoints on the same questions in the same environment.

    python flows/eval_flow.py --ckpts step_10,step_20

The base model is always evaluated with them, with the run's own model, search environment and
limits, unless --profile or other settings say otherwise. Questions that were answered before, by
the same policy in the same environment, are not asked again.
"""

import asyncio
from contextlib import ExitStack
from typing import Any

from flows.settings_flow import main, settings_flow
from tasks.evaluate import BASE, Evaluated, Policy, evaluate, evaluation_name, write_jsonl
from tasks.shards import answer_in_shards, task_runner
from tasks.workbench import Evaluating, evaluate_on

from prefect import get_run_logger

from searchr1.budget import Prices
from searchr1.config import EvalSettings, WorkSettings
from searchr1.errors import SettingsError
from searchr1.evaluation import Metric, items_from, summarise
from searchr1.runs import Run
from searchr1.trajectory_store import iterate_trajectories
from searchr1.workbench import open_workbench, preflight


def of_the_run(settings: EvalSettings) -> dict[str, Any]:
    """What an evaluation has in common with the training of its run; nothing when a profile was
    asked for. Raises SettingsError when there is no such run."""
    if "profile" in settings.model_fields_set:
        return {}
    run = Run.find(settings.runs_dir, settings.run)
    common = {*WorkSettings.model_fields, *Prices.model_fields} - {"runs_dir", "temperature"}
    return {name: value for name, value in run.settings.items() if name in common}


@settings_flow(EvalSettings, name="eval", inherited=of_the_run)
async def evaluate_checkpoints(settings: EvalSettings) -> list[Evaluated]:
    """Evaluate the base model and checkpoints of a run on one question set."""
    run = Run.find(settings.runs_dir, settings.run)
    policies = await asyncio.to_thread(chosen_policies, run, settings)
    get_run_logger().info(
        "run '%s': %s on %s, %s",
        run.name,
        ", ".join(policy.label for policy in policies),
        settings.question_set,
        "greedy" if settings.temperature == 0 else f"temperature {settings.temperature}",
    )
    async with open_workbench(settings, settings.question_set) as bench:
        bench.questions = bench.questions[: settings.limit]
        evaluating = Evaluating(run, settings, bench)
        evaluate_on(evaluating)
        with ExitStack() as held:
            for policy in policies:
                held.enter_context(run.lock(evaluation_name(policy)))
            if settings.shards > 1:
                await answer_in_shards(evaluating, policies)
            evaluated = [await evaluate(run.name, policy) for policy in policies]
    if settings.output:
        for one in evaluated:
            await write_jsonl(run.name, one, settings.output)
    return evaluated


async def check(settings: EvalSettings) -> None:
    """What can be found wrong before anything is started."""
    run = Run.find(settings.runs_dir, settings.run)
    await asyncio.to_thread(chosen_policies, run, settings)
    task_runner(settings.task_runner, settings.shards)  # its package is there
    await preflight(settings, settings.question_set)


def chosen_policies(run: Run, settings: EvalSettings) -> list[Policy]:
    """The base model and what a person asked for. Raises SettingsError for what is not there, or
    is of another model than the run's."""
    for name in ("base_model", "policy_service"):
        if (now := getattr(settings, name)) != run.settings[name]:
            flag = "--" + name.replace("_", "-")
            raise SettingsError(
                f"run '{run.name}' was trained with {flag} {run.settings[name]}, and this "
                f"evaluation asks for {now}: its checkpoints are of no use there. Leave out "
                f"--profile and {flag}, or choose another --run."
            )
    base = Policy(label=BASE, model_path=None, step=0)
    policies = [] if settings.force_mixed else [base]
    if settings.model_path:
        label = settings.model_path.rstrip("/").rsplit("/", 1)[-1]
        return [*policies, Policy(label=label, model_path=settings.model_path, step=0)]
    names = [name.strip() for name in settings.ckpts.split(",") if name.strip()]
    if names == ["all"]:
        names = list(run.checkpoints())
    names = [best_checkpoint(run) if name == "best" else name for name in names if name != BASE]
    records = [run.checkpoint(name) for name in names]
    chosen = {record.step: record for record in records}  # `latest` may name one twice
    return policies + [
        Policy(label=f"step_{step}", model_path=record.sampler_weights, step=step)
        for step, record in chosen.items()
    ]


def best_checkpoint(run: Run) -> str:
    """The checkpoint with the highest macro EM among those that were evaluated alike: on the same
    questions, with the same sampling and environment. When that was done in several ways, the one
    with the most checkpoints counts, of equals the latest. The best of several is partly the
    luckiest: confirm it on other questions. Raises SettingsError when none was evaluated."""
    kept = run.checkpoints()
    alike: dict[tuple[Any, ...], dict[str, str]] = {}
    for one in reversed(run.evaluations()):
        if one["checkpoint"] in kept:
            conditions = tuple(one.get(name) for name in _CONDITIONS)
            alike.setdefault(conditions, {}).setdefault(one["checkpoint"], one["evaluation"])
    if not alike:
        raise SettingsError(
            f"run '{run.name}' has no evaluated checkpoint to be the best. Evaluate first: "
            "python flows/eval_flow.py --ckpts all"
        )
    evaluations = max(alike.values(), key=len)

    def macro_em(label: str) -> float:
        file = run.evaluation(evaluations[label], label).path
        return summarise(items_from(iterate_trajectories(file))).macro[Metric.EM].value

    return max(evaluations, key=macro_em)


_CONDITIONS = ("questions_digest", "samples", "temperature", "environment_fingerprint")
"""Fields of an evaluation's description that are equal where scores can be compared."""


if __name__ == "__main__":
    main(evaluate_checkpoints, EvalSettings, check, of_the_run)
