"""Evaluate: the base model and checkpoints on the same questions in the same environment.

    python flows/eval_flow.py --ckpts step_10,step_20

The base model is always evaluated with them. Questions that were answered before, by the same
policy in the same environment, are not asked again.
"""

from prefect import get_run_logger

from flows.settings_flow import main, settings_flow
from searchr1.config import EvalSettings
from searchr1.runs import Run
from searchr1.workbench import open_workbench, preflight
from tasks.evaluate import BASE, Evaluated, Policy, evaluate
from tasks.workbench import Evaluating, current_evaluating


@settings_flow(EvalSettings, name="eval")
async def evaluate_checkpoints(settings: EvalSettings) -> list[Evaluated]:
    """Evaluate the base model and checkpoints of a run on one question set."""
    run = Run.find(settings.runs_dir, settings.run)
    policies = chosen_policies(run, settings.ckpts, settings.model_path)
    get_run_logger().info(
        "run '%s': %s on %s, %s",
        run.name,
        ", ".join(policy.label for policy in policies),
        settings.question_set,
        "greedy" if settings.temperature == 0 else f"temperature {settings.temperature}",
    )
    async with open_workbench(settings, settings.question_set) as bench:
        bench.questions = bench.questions[: settings.limit]
        current_evaluating.set(Evaluating(run, settings, bench))
        return [await evaluate(run.name, policy) for policy in policies]


async def check(settings: EvalSettings) -> None:
    """What can be found wrong before anything is started."""
    run = Run.find(settings.runs_dir, settings.run)
    chosen_policies(run, settings.ckpts, settings.model_path)
    await preflight(settings, settings.question_set)


def chosen_policies(run: Run, ckpts: str, model_path: str | None) -> list[Policy]:
    """The base model and what a person asked for. Raises SettingsError for what is not there."""
    policies = [Policy(label=BASE, model_path=None, step=0)]
    if model_path:
        label = model_path.rstrip("/").rsplit("/", 1)[-1]
        return [*policies, Policy(label=label, model_path=model_path, step=0)]
    names = [name.strip() for name in ckpts.split(",") if name.strip()]
    if names == ["all"]:
        names = list(run.checkpoints())
    records = [run.checkpoint(name) for name in names if name != BASE]
    chosen = {record.step: record for record in records}  # `latest` may name one twice
    return policies + [
        Policy(label=f"step_{step}", model_path=record.sampler_weights, step=step)
        for step, record in chosen.items()
    ]


if __name__ == "__main__":
    main(evaluate_checkpoints, EvalSettings, check)
