"""What is asked for again when its answer is lost, and when waiting for it ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from searchr1.policy import (
    SAMPLING_ATTEMPTS,
    LoraSettings,
    PolicyService,
    SamplingOptions,
    ServiceAddress,
)
from searchr1.policy_errors import PolicyRefused, PolicyUnavailable
from searchr1.sampler import Sample, SamplingError
from searchr1.tiny_policy import MODEL_NAME
from tests.faults.fault import Action, Fault, When
from tests.faults.stage import KEY, FaultyEngine

LOST = [
    Fault(Action.CUT, "sample"),
    Fault(Action.WRONG, "sample"),
    Fault(Action.HANG, "sample"),
    Fault(Action.HANG, "sample", when=When.HANDLED),
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyEngine]:
    with FaultyEngine(tmp_path_factory.mktemp("engine")) as running:
        yield running


async def sample(engine: FaultyEngine, home: Path) -> list[Sample]:
    address = ServiceAddress(engine.url, KEY, home, retry_seconds=2.0)
    options = SamplingOptions(temperature=1.0, top_p=1.0, timeout=5.0)
    sampler = await PolicyService(lambda: address).sampler(MODEL_NAME, None, options)
    return await sampler.sample([300, 301, 302], 2, 8, [], seed=3)


@pytest.mark.parametrize("fault", LOST, ids=lambda fault: f"{fault.action}-{fault.when}")
async def test_an_answer_that_is_lost_is_asked_for_again(engine, tmp_path, fault):
    engine.meet(None)
    expected = await sample(engine, tmp_path)
    engine.meet(fault)
    assert await sample(engine, tmp_path) == expected
    assert engine.hits() == 1


@pytest.mark.parametrize(
    ("action", "error", "requests"),
    [(Action.WRONG, SamplingError, SAMPLING_ATTEMPTS), (Action.STATUS, PolicyRefused, 1)],
)
async def test_it_is_not_asked_for_again_for_ever_and_not_when_it_is_refused(
    engine, tmp_path, action, error, requests
):
    engine.meet(Fault(action, "sample", count=1000, status=422, code="invalid_request"))
    with pytest.raises(error, match="PyTRIO"):
        await sample(engine, tmp_path)
    assert engine.hits() == requests


async def test_waiting_for_an_update_that_the_service_never_ends_has_an_end(engine, tmp_path):
    address = ServiceAddress(engine.url, KEY, tmp_path, retry_seconds=2.0)
    lora = LoraSettings(MODEL_NAME, rank=8, seed=7, train_unembed=False)
    session = PolicyService(lambda: address, timeout=3.0).session(lora)
    await session.open(None)
    engine.meet(Fault(Action.HANG, "poll:save_state", count=1000))
    with pytest.raises(PolicyUnavailable, match="in time"):
        await session.save("never", 3600)
    engine.meet(None)
    assert (await session.save("late", 3600)).uri
