"""A training that its deployment started and that failed goes on by `prefect flow-run retry`, or
by another run of the deployment."""

import sys
from collections.abc import Callable, Iterator

import pytest

from tests.deployments.conftest import ROOT, Ended, running, wait_for
from tests.faults.fault import Action, Fault
from tests.faults.outcome import Outcome, outcome
from tests.faults.stage import RUN_SECONDS, SETTINGS, Stage

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def served(stage: Stage, client, no_deployments, tmp_path_factory) -> Iterator[None]:
    """`python deployments/serve.py` with the harness's engine as the service."""
    folder = tmp_path_factory.mktemp("served")
    command = [sys.executable, str(ROOT / "deployments" / "serve.py")]
    for _ in running(command, stage.flows.environment, folder):
        wait_for(lambda: len(client.read_deployments()) == 5, "five deployments")
        yield


def parameters(stage: Stage, run: str) -> list[str]:
    """The settings of the harness's trainings, as the Prefect command line takes them."""
    flags = (*stage.flows.folders, *SETTINGS, "--retriever-url", stage.search.url)
    flags = (*flags, "--run-name", run)
    pairs = zip(flags[::2], flags[1::2], strict=True)
    typed = [f"{flag.removeprefix('--').replace('-', '_')}={value}" for flag, value in pairs]
    return [word for one in typed for word in ("-p", one)]


@pytest.mark.parametrize("how", ["flow-run retry", "deployment run"])
def test_a_failed_run_goes_on(
    stage: Stage,
    undisturbed: Callable[..., Outcome],
    served: None,
    client,
    prefect: Callable[..., Ended],
    how: str,
) -> None:
    expected, name = undisturbed(), how.replace(" ", "-")
    broke = Fault(Action.STATUS, "submit:optimize_step", 2, count=10_000, status=402)
    stage.engine.meet(broke)
    command = ("deployment", "run", "train", *parameters(stage, name), "--watch")
    failed = prefect(*command, seconds=RUN_SECONDS)
    assert failed.status != 0, failed.output
    (run,) = [r for r in client.read_flow_runs() if r.parameters.get("run_name") == name]
    assert run.state.is_failed() and "Add credits" in run.state.message

    stage.engine.meet(None)
    if how == "flow-run retry":
        asked = prefect("--no-prompt", "flow-run", "retry", str(run.id))
    else:
        asked = prefect(*command, seconds=RUN_SECONDS)
        (run,) = [
            r
            for r in client.read_flow_runs()
            if r.parameters.get("run_name") == name and r.id != run.id
        ]
    assert asked.status == 0, asked.output
    wait_for(lambda: client.read_flow_run(run.id).state.is_completed(), "end", RUN_SECONDS)
    outcome(stage, name).assert_equal(expected)
