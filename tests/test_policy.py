"""Policy sessions: the real SDK against the real embedded engine."""

import dataclasses
import os
import signal

import numpy as np
import pytest

from searchr1.datum import Datum
from searchr1.embedded import EmbeddedEngine
from searchr1.policy import (
    AdamSettings,
    LoraSettings,
    PolicyService,
    SamplingOptions,
    ServiceAddress,
)
from searchr1.policy_errors import PolicyRefused, PolicyUnavailable
from searchr1.sampler import SamplingError
from searchr1.tiny_policy import MODEL_NAME

LORA = LoraSettings(MODEL_NAME, rank=8, seed=7, train_unembed=False)
ADAM = AdamSettings(3e-3, 0.9, 0.95, 1e-8, 0.0, 0.0)
GREEDY = SamplingOptions(temperature=0.0, top_p=1.0, timeout=60.0)
SAMPLED = SamplingOptions(temperature=1.0, top_p=1.0, timeout=60.0)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    engine = EmbeddedEngine(tmp_path_factory.mktemp("engine"), MODEL_NAME)
    yield engine
    engine.stop()


@pytest.fixture
def policies(engine) -> PolicyService:
    return PolicyService(engine.address)


async def drawn_datum(sampler, advantage: float) -> Datum:
    """A datum from one sample: a prompt of three tokens, then what was drawn."""
    prompt = [300, 301, 302]
    (sample,) = await sampler.sample(prompt, 1, 12, [], seed=3)
    tokens = np.array([*prompt, *sample.tokens])
    logprobs = np.array([0.0, 0.0, *sample.logprobs])
    advantages = np.array([0.0, 0.0, *[advantage] * len(sample.tokens)])
    return Datum(tokens[:-1], tokens[1:], logprobs, advantages)


async def logprobs_at(policies: PolicyService, uri: str | None) -> list[float]:
    """Of a greedy continuation, filled up to eight with zeros."""
    sampler = await policies.sampler(MODEL_NAME, uri, GREEDY)
    (sample,) = await sampler.sample([300, 301, 302], 1, 8, [], None)
    return [*sample.logprobs, *[0.0] * (8 - len(sample.logprobs))]


async def test_an_update_moves_the_policy_and_a_saved_state_brings_it_back(policies):
    session = policies.session(LORA)
    await session.open(None)
    sampler = await session.sampler(SAMPLED)
    datum = await drawn_datum(sampler, 1.0)
    metrics = await session.update([datum], ADAM)
    assert metrics["logprob_drift"] < 1e-4, "sampler and trainer disagree on the same policy"
    assert session.dirty
    saved = await session.save("after-one", None)
    assert not session.dirty and session.policy_ref == saved.uri
    moved = await logprobs_at(policies, saved.uri)
    assert not np.allclose(moved, await logprobs_at(policies, None), atol=1e-3)

    again = policies.session(LORA)
    await again.open(saved.uri)
    copy = await again.save("copy", None)
    assert await logprobs_at(policies, copy.uri) == pytest.approx(moved, abs=1e-5)


async def test_a_clean_session_keeps_its_client_and_a_dirty_one_goes_back(policies):
    session = policies.session(LORA)
    await session.open(None)
    saved = await session.save("start", None)
    start = await logprobs_at(policies, saved.uri)
    await session.open(saved.uri)  # clean and there: the same client, nothing lost

    datum = await drawn_datum(await session.sampler(SAMPLED), 1.0)
    await session.update([datum], ADAM)  # not saved: the answer might as well have been lost
    await session.open(saved.uri)
    back = await session.save("back", None)
    assert await logprobs_at(policies, back.uri) == pytest.approx(start, abs=1e-6)


async def test_an_interrupted_run_of_updates_keeps_adams_state(policies):
    straight = policies.session(LORA)
    await straight.open(None)
    begin = await straight.save("begin", None)
    data = [await drawn_datum(await straight.sampler(SAMPLED), a) for a in (1.0, -0.5)]
    for datum in data:
        await straight.update([datum], ADAM)
    end = await straight.save("end", None)

    parts = policies.session(LORA)
    await parts.open(begin.uri)
    await parts.update([data[0]], ADAM)
    middle = await parts.save("middle", None)
    resumed = policies.session(LORA)
    await resumed.open(middle.uri)
    await resumed.update([data[1]], ADAM)
    resumed_end = await resumed.save("resumed-end", None)
    expected = await logprobs_at(policies, end.uri)
    assert await logprobs_at(policies, resumed_end.uri) == pytest.approx(expected, abs=1e-5)


async def test_a_deleted_state_is_gone_and_deleting_twice_is_no_error(policies):
    session = policies.session(LORA)
    await session.open(None)
    saved = await session.save("short-lived", 3600)
    await policies.delete(saved.training_run, saved.uri)
    await policies.delete(saved.training_run, saved.uri)
    with pytest.raises(PolicyRefused, match="gone"):
        await policies.session(LORA).open(saved.uri)


async def test_a_wrong_key_and_an_unknown_model_say_what_to_do(engine, policies):
    address = dataclasses.replace(engine.address(), api_key="wrong")
    with pytest.raises(PolicyRefused, match="PYTRIO_API_KEY") as caught:
        await PolicyService(lambda: address).client()
    assert "wrong" not in str(caught.value)
    with pytest.raises(PolicyRefused, match="--base-model"):
        await policies.sampler("no/such-model", None, GREEDY)


async def test_a_service_that_is_away_is_passing_trouble(engine):
    address = ServiceAddress("http://127.0.0.1:9", "k", engine.address().home, retry_seconds=0.1)
    with pytest.raises(PolicyUnavailable):
        await PolicyService(lambda: address).client()


async def test_an_engine_that_dies_is_started_anew_and_the_run_goes_on(tmp_path):
    engine = EmbeddedEngine(tmp_path, MODEL_NAME)
    policies = PolicyService(lambda: dataclasses.replace(engine.address(), retry_seconds=0.5))
    try:
        session = policies.session(LORA)
        await session.open(None)
        saved = await session.save("kept", None)
        before = await logprobs_at(policies, saved.uri)
        sampler = await session.sampler(SAMPLED)
        assert engine._process is not None
        os.kill(engine._process.pid, signal.SIGKILL)
        engine._process.wait()
        with pytest.raises(SamplingError):
            await sampler.sample([300, 301], 1, 4, [], None)
        session.discard()
        await session.open(saved.uri)
        assert await logprobs_at(policies, saved.uri) == pytest.approx(before, abs=1e-6)
    finally:
        engine.stop()
