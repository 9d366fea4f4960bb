"""The whole chain: prepare the data, train, evaluate base and checkpoints, analyse.

    python flows/train_search_r1.py --profile local

Each stage is the flow of its own file, with the settings that it knows.
"""

from typing import Any

from flows.analyse_flow import analyse
from flows.eval_flow import evaluate_checkpoints
from flows.prepare_flow import prepare_data
from flows.settings_flow import main, settings_flow
from flows.train_flow import check_settings, default_run_name, dry_run, train

from prefect import get_run_logger
from pydantic import BaseModel

from searchr1.config import (
    AnalyseSettings,
    EvalSettings,
    PipelineSettings,
    PrepareSettings,
    TrainSettings,
)
from searchr1.estimate import evaluation, kept_checkpoints
from searchr1.workbench import preflight

QUESTIONS = {"dev70": 70, "dev500": 500, "full": 51_713}
"""Sizes of the evaluation sets, for the estimate before the data is prepared."""


@settings_flow(PipelineSettings, name="train-search-r1")
async def train_search_r1(settings: PipelineSettings) -> str:
    """Teach a policy to search, and show what it learned: prepare, train, evaluate, analyse.

    Returns the name of the run.
    """
    if settings.dry_run:
        get_run_logger().info(_dry_run(settings))
        return ""
    run_name = settings.run_name or default_run_name(settings)
    given = settings.model_dump(exclude_unset=True) | {"run_name": run_name, "run": run_name}
    get_run_logger().info("prepare -> train -> evaluate -> analyse, run '%s'", run_name)
    await prepare_data(**_known(given, PrepareSettings))
    await train(**_known(given, TrainSettings))
    evaluation = _known(given, EvalSettings) | {"temperature": settings.eval_temperature}
    await evaluate_checkpoints(**evaluation)
    await analyse(**_known(given, AnalyseSettings))
    return run_name


async def check(settings: PipelineSettings) -> None:
    """What can be found wrong before anything is started; the data is yet to be prepared."""
    check_settings(settings)
    if settings.dry_run:
        print(_dry_run(settings))
        raise SystemExit(0)
    await preflight(settings, None)


def _dry_run(settings: PipelineSettings) -> str:
    questions = QUESTIONS.get(settings.question_set, 70)
    policies = 1 + kept_checkpoints(settings)
    return dry_run(settings, [evaluation(settings, questions, policies)])


def _known(values: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """The values that `model` has fields for."""
    return {name: value for name, value in values.items() if name in model.model_fields}


if __name__ == "__main__":
    main(train_search_r1, PipelineSettings, check)
