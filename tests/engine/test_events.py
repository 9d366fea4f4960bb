"""Training events on the wire: once each, in order, answered at once."""

import time
from typing import Any

import httpx
import msgpack
import pytest
import pytrio as trio

from tests.engine.conftest import ALIAS, EngineProcess

STEP = {
    "learning_rate": 0.1,
    "beta1": 0.9,
    "beta2": 0.95,
    "eps": 1e-8,
    "weight_decay": 0.0,
    "grad_clip_norm": 0.0,
}


class WireRun:
    """A training run driven by hand."""

    def __init__(self, engine: EngineProcess, session: str) -> None:
        body = {"base_model": ALIAS, "lora_rank": 4, "seed": 1}
        created = engine.call(
            "POST", f"/api/openapi/v1/service-sessions/{session}/training-runs", json=body
        ).json()
        self.cuid = created["training_run_cuid"]
        self.model_id = created["model_id"]
        self.url = f"{created['actor']['endpoint']}/v1/events"
        self.token = created["actor_jwt"]["token"]
        self.count = 0

    def envelope(self, kind: str, payload: dict[str, Any], name: str = "") -> dict[str, Any]:
        """An event; `name` is the end of its id."""
        self.count += 1
        digits = self.cuid.removeprefix("run_")[:6]
        return {
            "version": 1,
            "event_id": f"event_{digits}{name or f'{self.count:06d}'}",
            "type": f"trainer.{kind}",
            "metadata": {"index": self.count, "step": 0, "run_id": self.cuid},
            "payload": payload,
        }

    def post(self, envelope: object, token: str | None = None) -> httpx.Response:
        """Submit, as the SDK does."""
        return httpx.post(
            self.url,
            content=msgpack.packb(envelope),
            headers={"Authorization": f"Bearer {token or self.token}"},
            timeout=60,
        )

    def submit(self, kind: str, payload: dict[str, Any], name: str = "") -> str:
        """Submit an event that is accepted; its id."""
        envelope = self.envelope(kind, payload, name)
        answer = self.post(envelope)
        assert answer.status_code == 200, answer.text
        return envelope["event_id"]

    def get(self, event: str, wait: int = 0) -> dict[str, Any]:
        """Status of an event."""
        headers = {"Authorization": f"Bearer {self.token}", "Prefer": f"wait={wait}"}
        answer = httpx.get(f"{self.url}/{event}", headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        return msgpack.unpackb(answer.content)

    def result(self, event: str) -> dict[str, Any]:
        """Status of an event that has ended."""
        deadline = time.monotonic() + 120
        while (status := self.get(event, wait=25))["status"] not in ("succeeded", "failed"):
            assert time.monotonic() < deadline
        return status

    def init(self) -> str:
        """Submit the first event."""
        return self.submit("init_run", {"base_model": self.model_id, "load_optimizer": False})


def forward(samples: int = 1, length: int = 4, advantage: float = 1.0) -> dict[str, Any]:
    """Payload of a forward event."""
    one = {
        "model_input": {"chunks": [{"type": "encoded_text", "tokens": [1] * length}]},
        "target_ids": [2] * length,
        "logprobs": [-3.0] * length,
        "advantages": [advantage] * length,
    }
    return {
        "data": [one] * samples,
        "auto_shift": False,
        "loss": {"type": "importance_sampling", "config": {}},
        "gradient_accumulation": {
            "total_samples": samples,
            "total_active_tokens": samples * length,
            "total_advantage_tokens": samples * length,
        },
    }


@pytest.fixture
def run(engine: EngineProcess, service: trio.ServiceClient) -> WireRun:
    """A fresh run."""
    return WireRun(engine, service.service_session_cuid)


def test_an_event_that_comes_again_is_executed_once(run: WireRun) -> None:
    run.init()
    run.submit("forward_backward", forward())
    envelope = run.envelope("optimize_step", {"adam_params": STEP}, "twin00")
    answers = [run.post(envelope) for _ in range(3)]
    assert all(a.status_code == 200 for a in answers)
    first = run.result(envelope["event_id"])
    assert first["result"]["metrics"]["step"] == 1.0
    run.post(envelope)
    run.submit("forward_backward", forward())
    last = run.submit("optimize_step", {"adam_params": STEP})
    assert run.result(last)["result"]["metrics"]["step"] == 2.0
    assert run.result(envelope["event_id"]) == first


def test_events_are_accepted_at_once_and_executed_in_order(run: WireRun) -> None:
    began = time.monotonic()
    run.init()
    slow = run.submit("forward_backward", forward(samples=200, length=100))
    last = run.submit("optimize_step", {"adam_params": STEP})
    save = run.submit("save_weights", {"name": "after"})
    submitted = time.monotonic() - began
    early = run.get(save)
    assert early["status"] in ("accepted", "running")
    assert "result" not in early
    assert run.result(save)["status"] == "succeeded"
    # All of it took longer than accepting it, and what came before `save` is done.
    assert time.monotonic() - began > submitted
    assert run.get(slow)["status"] == "succeeded"
    assert run.get(last)["result"]["metrics"]["grad_norm"] > 0
    assert run.get(slow)["usage"] == {
        "input_tokens": 20_000,
        "output_tokens": 0,
        "train_tokens": 20_000,
    }


def test_a_long_poll_returns_as_soon_as_the_event_ends(run: WireRun) -> None:
    run.result(run.init())
    event = run.submit("forward", forward())
    began = time.monotonic()
    assert run.get(event, wait=65)["status"] == "succeeded"
    assert time.monotonic() - began < 20


def test_a_failed_event_does_not_stop_those_behind_it(run: WireRun) -> None:
    early = run.submit("optimize_step", {"adam_params": STEP})
    wrong = run.submit("init_run", {"base_model": "no/such"})
    run.init()
    payload = forward()
    payload["data"][0]["target_ids"] = [2, 2]
    ragged = run.submit("forward", payload)
    empty = run.submit("forward", {"data": []})
    unsafe = run.submit("save_state", {"name": "../escape"})
    good = run.submit("optimize_step", {"adam_params": STEP})
    assert run.result(early)["error"]["code"] == "run_not_initialized"
    assert run.result(wrong)["error"]["code"] == "model_not_found"
    assert run.result(ragged)["error"]["code"] == "validation_failed"
    assert "data[0]" in run.result(ragged)["error"]["message"]
    assert run.result(empty)["error"]["code"] == "validation_failed"
    assert run.result(unsafe)["error"]["code"] == "validation_failed"
    assert run.result(good)["status"] == "succeeded"
    assert run.result(wrong)["usage"]["input_tokens"] == 0


@pytest.mark.parametrize(
    "change",
    [
        {"target_ids": [300] * 4},
        {"model_input": {"chunks": [{"type": "encoded_text", "tokens": [259] * 4}]}},
        {"model_input": {"chunks": [{"type": "image", "data": b"x", "format": "png"}]}},
        {"advantages": [float("nan")] * 4},
        {"logprobs": None},
        {"advantages": [1.0] * 5},
    ],
)
def test_impossible_data_fails_the_event(run: WireRun, change: dict[str, Any]) -> None:
    run.init()
    payload = forward()
    payload["data"][0] = {**payload["data"][0], **change}
    status = run.result(run.submit("forward_backward", payload))
    assert status["error"]["code"] == "validation_failed"


def test_targets_of_minus_100_are_left_out(run: WireRun) -> None:
    run.init()
    payload = forward()
    payload["data"][0]["target_ids"] = [2, -100, 2, -100]
    metrics = run.result(run.submit("forward", payload))["result"]
    assert metrics["metrics"]["token_count"] == 2
    data = metrics["loss_fn_outputs"][0]["logprobs"]["data"]
    assert data[4:8] == data[12:16] == bytes(4)
    assert data[:4] != bytes(4)


def test_strangers_are_kept_out(
    run: WireRun, engine: EngineProcess, service: trio.ServiceClient
) -> None:
    event = run.init()
    other = WireRun(engine, service.service_session_cuid)
    stolen = run.post(run.envelope("optimize_step", {"adam_params": STEP}), token=other.token)
    assert (stolen.status_code, stolen.json()["code"]) == (401, "unauthorized")
    peek = httpx.get(f"{run.url}/{event}", headers={"Authorization": f"Bearer {other.token}"})
    assert (peek.status_code, peek.json()["code"]) == (401, "unauthorized")
    same = run.envelope("optimize_step", {"adam_params": STEP})
    same["event_id"] = event
    same["metadata"]["run_id"] = other.cuid
    clash = other.post(same)
    assert (clash.status_code, clash.json()["code"]) == (409, "event_exists")
    lost = run.envelope("optimize_step", {"adam_params": STEP})
    lost["metadata"]["run_id"] = "run_none"
    unknown = run.post(lost)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "run_not_found")


@pytest.mark.parametrize(
    "envelope", [b"\xc1", {"event_id": "event_1"}, {"event_id": "event_000000000000"}, 7]
)
def test_a_malformed_envelope_is_refused(run: WireRun, envelope: object) -> None:
    answer = run.post(envelope)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request_body")


def test_a_checkpoint_is_bound_only_before_the_first_event(
    run: WireRun, engine: EngineProcess, service: trio.ServiceClient
) -> None:
    run.init()
    saved = run.result(run.submit("save_state", {"name": "bound"}))
    uri = saved["result"]["checkpoint"]["uri"]
    session = f"/api/openapi/v1/service-sessions/{service.service_session_cuid}"
    late = engine.call(
        "PATCH", f"{session}/training-runs/{run.cuid}", json={"source_checkpoint_uri": uri}
    )
    assert (late.status_code, late.json()["code"]) == (409, "run_already_initialized")
    end = run.submit("end_run", {})
    assert run.result(end)["status"] == "succeeded"
    after = run.result(run.submit("optimize_step", {"adam_params": STEP}))
    assert after["error"]["code"] == "run_not_initialized"
