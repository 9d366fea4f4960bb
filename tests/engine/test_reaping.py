"""What a client left behind is freed; what is in use stays."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import pytrio as trio
from pytrio.errors.base import PyTrioError
from starlette.applications import Starlette

from searchr1.engine.app import create_app
from searchr1.engine.config import (
    RECORD_SECONDS,
    SAMPLING_IDLE_SECONDS,
    TRAINING_IDLE_SECONDS,
    EngineConfig,
)
from searchr1.engine.engine import Engine
from searchr1.engine.runs import Status
from tests.engine.conftest import ALIAS, KEY
from tests.engine.helpers import new_training, prompt_of

Connect = Callable[[str], trio.ServiceClient]
Serve = Callable[[Starlette], str]


@pytest.fixture
def app(model_folder: Path, tmp_path: Path) -> Starlette:
    """An engine in this process."""
    return create_app(EngineConfig(tmp_path, {ALIAS: model_folder}, api_key=KEY, idle_weights=1))


def test_a_silent_training_run_is_ended_and_a_live_one_is_not(
    app: Starlette, serve: Serve, connect: Connect
) -> None:
    service = connect(serve(app))
    engine: Engine = app.state.engine
    silent, live = new_training(service), new_training(service)
    for client in (silent, live):
        client.save_state("first").result()
    later = time.time() + TRAINING_IDLE_SECONDS + 1
    engine.training_runs[live.training_run_cuid].touched = later
    engine.reap(later)
    record = engine.training_runs[silent.training_run_cuid]
    assert record.status is Status.ENDED
    assert record.model is None
    with pytest.raises(PyTrioError) as error:
        silent.save_state("second").result()
    assert (error.value.status_code, error.value.code) == (409, "run_ended")
    live.save_state("second").result()


def test_a_run_is_not_ended_while_an_event_is_waiting(
    app: Starlette, serve: Serve, connect: Connect
) -> None:
    service = connect(serve(app))
    engine: Engine = app.state.engine
    client = new_training(service)
    client.save_state("first").result()
    record = engine.training_runs[client.training_run_cuid]
    next(reversed(record.events.values())).finished.clear()
    engine.reap(time.time() + TRAINING_IDLE_SECONDS + 1)
    assert record.status is Status.RUNNING


def test_sessions_and_runs_are_forgotten_in_the_end(
    app: Starlette, serve: Serve, connect: Connect
) -> None:
    service = connect(serve(app))
    engine: Engine = app.state.engine
    new_training(service)
    service.create_sampling_client(base_model=ALIAS)
    now = time.time()
    engine.reap(now + SAMPLING_IDLE_SECONDS - 60)
    assert len(engine.sampling_runs) == len(engine.sessions) == 1
    assert all(run.status is Status.RUNNING for run in engine.sampling_runs.values())
    engine.reap(now + max(SAMPLING_IDLE_SECONDS, RECORD_SECONDS) + 60)
    engine.reap(now + max(SAMPLING_IDLE_SECONDS, RECORD_SECONDS) + 60)
    assert not engine.sessions
    assert not engine.training_runs
    assert not engine.sampling_runs


def test_weights_without_work_leave_memory_and_come_back(
    app: Starlette, serve: Serve, connect: Connect
) -> None:
    service = connect(serve(app))
    engine: Engine = app.state.engine
    client = new_training(service)
    samplers = [client.save_weights_and_get_sampling_client() for _ in range(3)]
    for _ in range(2):
        for sampler in samplers:
            sampler.compute_logprobs(prompt_of(1, 2)).result()
        assert engine.worker.sampler.metrics()["weights_in_memory"] <= 2


def test_the_key_is_not_in_what_is_printed(model_folder: Path, tmp_path: Path) -> None:
    config = EngineConfig(tmp_path, {ALIAS: model_folder}, api_key="very-secret")
    assert "very-secret" not in repr(config)
