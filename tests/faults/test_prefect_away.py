"""A training outlives a Prefect server that goes away."""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import Flows
from tests.faults.outcome import Outcome, outcome
from tests.faults.relay import Relay
from tests.faults.stage import RUN_SECONDS, Stage

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]
LONGER_THAN_ITS_CLIENT = 80
"""Prefect's client repeats a request for about a minute."""


@pytest.fixture
def relay(stage: Stage) -> Iterator[Relay]:
    """In front of the Prefect server of the tests."""
    relay = Relay(stage.flows.environment["PREFECT_API_URL"])
    relay.start()
    yield relay
    relay.away()


@pytest.mark.parametrize(
    ("how", "seconds"),
    [("refuses", 25), ("refuses", LONGER_THAN_ITS_CLIENT), ("is silent", 25)],
)
def test_a_training_outlives_it(
    stage: Stage, undisturbed: Callable[..., Outcome], relay: Relay, how: str, seconds: int
) -> None:
    expected, name = undisturbed(), f"away-{how[0]}{seconds}"
    stage.engine.meet(None)
    url = f"http://127.0.0.1:{relay.port}/api"
    away = Flows({**stage.flows.environment, "PREFECT_API_URL": url}, stage.runs_dir.parent)
    process = Stage(away, stage.engine, stage.search).start(name)
    deadline = time.monotonic() + RUN_SECONDS
    while not (stage.runs_dir / name / "ledger.jsonl").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    if how == "refuses":
        relay.away()
    else:
        relay.silent(True)
    time.sleep(seconds)
    assert process.poll() is None, "it ended before the server was back"
    if how == "refuses":
        relay.listen()
    else:
        relay.silent(False)
    stage.end(process, 0)
    outcome(stage, name).assert_equal(expected)
