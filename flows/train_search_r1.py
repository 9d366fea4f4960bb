"""The whole chain: prepare the data, train, evaluate base and checkpoints, analyse.

    python flows/train_search_r1.py --profile local

Each stage is the flow of its own file, with the settings that it knows.
"""

from typing import Any

from prefect import get_run_logger
from pydantic import BaseModel

from flows.analyse_flow import analyse
from flows.eval_flow import evaluate_checkpoints
from flows.prepare_flow import prepare_data
from flows.settings_flow import main, settings_flow
from flows.train_flow import default_run_name, train
from searchr1.config import (
    AnalyseSettings,
    EvalSettings,
    PipelineSettings,
    PrepareSettings,
    TrainSettings,
)
from searchr1.workbench import preflight


@settings_flow(PipelineSettings, name="train-search-r1")
async def train_search_r1(settings: PipelineSettings) -> str:
    """Teach a policy to search, and show what it learned: prepare, train, evaluate, analyse.

    Returns the name of the run.
    """
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
    await preflight(settings, None)


def _known(values: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """The values that `model` has fields for."""
    return {name: value for name, value in values.items() if name in model.model_fields}


if __name__ == "__main__":
    main(train_search_r1, PipelineSettings, check)
