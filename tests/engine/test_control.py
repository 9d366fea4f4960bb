"""The Control plane through the real SDK: keys, models, sessions, checkpoints, errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytrio as trio
from pytrio.errors.base import PyTrioError
from pytrio.errors.control import ControlAPIError
from pytrio.errors.event import EventFailedError
from safetensors import safe_open

from tests.engine.conftest import ALIAS, KEY, EngineProcess
from tests.engine.helpers import new_training, prompt_of

NOWHERE = "trio://run_none/training_states/none"


def refused(call: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[int, str, bool]:
    """HTTP status, code and retryability of the SDK error that a call raises."""
    with pytest.raises(PyTrioError) as error:
        call(*arguments, **named)
    return error.value.status_code, error.value.code, error.value.retryable


def test_a_wrong_key_is_refused_on_every_route(engine: EngineProcess, tmp_path: Path) -> None:
    trio.configure(home=str(tmp_path), base_url=engine.url, api_key="wrong")
    assert refused(trio.ServiceClient) == (401, "unauthorized", False)
    for headers in ({}, {"X-API-Key": "wrong"}, {"X-API-Key": "schlüssel".encode()}):
        answer = httpx.get(f"{engine.url}/api/models", headers=headers)
        assert answer.status_code == 401
        assert KEY not in answer.text
    bearer = httpx.get(f"{engine.url}/api/models", headers={"Authorization": f"Bearer {KEY}"})
    assert bearer.status_code == 200


def test_the_session_knows_its_runs(service: trio.ServiceClient) -> None:
    client = new_training(service)
    sampler = service.create_sampling_client(base_model=ALIAS)
    rest = service.create_rest_client()
    session = rest.get_session(service.service_session_cuid).result()
    assert client.training_run_cuid in session.training_run_ids
    assert sampler.sampling_run_cuid in session.sampler_ids
    run = rest.get_training_run(client.training_run_cuid).result()
    assert run.base_model == ALIAS
    assert rest.get_sampler(sampler.sampling_run_cuid).result().base_model == ALIAS
    listed = rest.list_training_runs(limit=1000).result().training_runs
    assert client.training_run_cuid in {r.training_run_id for r in listed}
    assert rest.list_sessions().result().sessions


def test_models_are_found_by_alias_and_by_folder_and_others_are_unknown(
    service: trio.ServiceClient, model_folder: Path
) -> None:
    capabilities = service.get_server_capabilities().supported_models
    assert [model.max_context_length for model in capabilities] == [256]
    by_folder = service.create_lora_training_client(str(model_folder.resolve()), rank=4)
    assert by_folder.model_id == str(model_folder.resolve())
    missing = (404, "model_not_found", False)
    assert refused(service.create_lora_training_client, "no/such") == missing
    assert refused(service.create_sampling_client, base_model="no/such") == missing


def test_checkpoints_are_listed_downloaded_and_deleted(
    service: trio.ServiceClient, tmp_path: Path
) -> None:
    client = new_training(service)
    state = client.save_state("one", ttl_seconds=3600).result()
    weights = client.save_weights_for_sampler("two").result()
    rest = service.create_rest_client()
    run = client.training_run_cuid
    listed = rest.list_checkpoints(run).result().checkpoints
    assert [c.path for c in listed] == [state.path, weights.path]
    assert [c.checkpoint_type for c in listed] == ["training", "sampler"]
    everything = rest.list_user_checkpoints(limit=1000).result().checkpoints
    assert {state.path, weights.path} <= {c.path for c in everything}

    target = tmp_path / "state.safetensors"
    done = rest.download_checkpoint(listed[0].checkpoint_id, str(target)).result()
    assert done.file_size_bytes == state.size
    with safe_open(target, framework="pt") as file:
        assert any(name.startswith("lora:") for name in file.keys())  # noqa: SIM118
    whole = target.read_bytes()
    target.write_bytes(whole[:1000])
    rest.download_checkpoint(listed[0].checkpoint_id, str(target), resume=True).result()
    assert target.read_bytes() == whole
    rest.download_checkpoint(listed[0].checkpoint_id, str(target), resume=True).result()
    assert target.read_bytes() == whole

    rest.delete_checkpoint(run, listed[0].checkpoint_id).result()
    assert [c.path for c in rest.list_checkpoints(run).result().checkpoints] == [weights.path]
    gone = (404, "checkpoint_not_found", False)
    assert refused(rest.delete_checkpoint(run, listed[0].checkpoint_id).result) == gone
    assert refused(service.create_training_client_from_state, state.path) == gone


def test_checkpoints_of_the_wrong_kind_or_from_nowhere_are_refused(
    service: trio.ServiceClient,
) -> None:
    client = new_training(service)
    weights = client.save_weights_for_sampler("w").result().path
    resume = service.create_training_client_from_state
    assert refused(resume, NOWHERE) == (404, "checkpoint_not_found", False)
    assert refused(resume, weights) == (400, "checkpoint_invalid_type", False)
    sampler = service.create_sampling_client
    assert refused(sampler, base_model=ALIAS, model_path=NOWHERE)[:2] == (
        404,
        "checkpoint_not_found",
    )


def test_a_name_can_be_saved_twice_only_with_overwrite(service: trio.ServiceClient) -> None:
    client = new_training(service)
    first = client.save_state("same").result()
    with pytest.raises(EventFailedError) as error:
        client.save_state("same").result()
    assert (error.value.code, error.value.retryable) == ("checkpoint_exists", False)
    assert client.save_state("same", overwrite=True).result().path == first.path
    client.save_weights_for_sampler("same").result()
    with pytest.raises(EventFailedError) as error:
        client.save_weights_for_sampler("same").result()
    assert error.value.code == "checkpoint_exists"


def test_a_deleted_checkpoint_cannot_be_sampled_from_anew(service: trio.ServiceClient) -> None:
    client = new_training(service)
    path = client.save_weights_for_sampler("short-lived").result().path
    sampler = service.create_sampling_client(base_model=ALIAS, model_path=path)
    rest = service.create_rest_client()
    (listed,) = rest.list_checkpoints(client.training_run_cuid).result().checkpoints
    rest.delete_checkpoint(client.training_run_cuid, listed.checkpoint_id).result()
    params = trio.SamplingParams(max_tokens=1)
    request = sampler.sample(prompt=prompt_of(1), sampling_params=params)
    assert refused(request.result) == (404, "checkpoint_not_found", False)


def test_a_closed_session_ends_its_runs(
    engine: EngineProcess, connect: Callable[[str], trio.ServiceClient]
) -> None:
    service = connect(engine.url)
    session = service.service_session_cuid
    client = new_training(service)
    client.save_state("kept").result()
    sampler = service.create_sampling_client(base_model=ALIAS)
    path = f"/api/openapi/v1/service-sessions/{session}"
    assert engine.call("POST", f"{path}/close", json={"status": "PAUSED"}).status_code == 400
    assert engine.call("POST", f"{path}/close", json={"status": "CANCELLED"}).status_code == 200
    assert engine.get(path).json()["status"] == "CANCELLED"
    assert refused(sampler.compute_logprobs(prompt_of(1)).result)[:2] == (409, "run_ended")
    assert refused(client.optim_step(trio.AdamParams()).result)[:2] == (409, "run_ended")
    assert refused(service.create_lora_training_client, ALIAS)[:2] == (
        409,
        "service_session_ended",
    )
    again = connect(engine.url).create_training_client_from_state(
        f"trio://{client.training_run_cuid}/training_states/kept"
    )
    again.save_state("resumed").result()


def test_load_state_wants_the_same_lora(service: trio.ServiceClient) -> None:
    path = new_training(service, rank=4).save_state("rank-4").result().path
    other = new_training(service, rank=8)
    assert refused(other.load_state, path)[1] == "validation.checkpoint_config_mismatch"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/api/nothing", None, 404, "not_found"),
        ("PUT", "/api/models", None, 405, "not_found"),
        ("GET", "/api/models?limit=x", None, 400, "invalid_query_params"),
        ("GET", "/api/models?limit=0", None, 400, "invalid_query_params"),
        ("GET", "/api/openapi/v1/service-sessions/none", None, 404, "service_session_not_found"),
        (
            "POST",
            "/api/openapi/v1/service-sessions/none/training-runs",
            {},
            404,
            "service_session_not_found",
        ),
        ("GET", "/api/openapi/v1/training-runs/none", None, 404, "run_not_found"),
        ("POST", "/api/openapi/v1/training-runs/none/renew", None, 404, "run_not_found"),
        ("GET", "/api/openapi/v1/sampling-runs/none", None, 404, "run_not_found"),
        ("DELETE", "/api/openapi/v1/checkpoints/none", None, 404, "checkpoint_not_found"),
        ("GET", "/api/openapi/v1/checkpoints/none/download-url", None, 404, "checkpoint_not_found"),
        ("GET", "/download/none", None, 404, "checkpoint_not_found"),
        ("GET", "/actor/v1/events/event_000000000000", None, 404, "event_not_found"),
        ("POST", "/actor/v1/sampling-runs/none/sample", {}, 404, "run_not_found"),
        ("POST", "/actor/v1/client/heartbeat", {}, 401, "unauthorized"),
    ],
)
def test_errors_carry_their_status_and_code(
    engine: EngineProcess, method: str, path: str, body: object, status: int, code: str
) -> None:
    answer = engine.call(method, path, json=body)
    assert answer.status_code == status
    assert answer.json()["code"] == code
    assert answer.json()["message"]


def test_a_broken_body_is_refused(engine: EngineProcess, service: trio.ServiceClient) -> None:
    path = f"/api/openapi/v1/service-sessions/{service.service_session_cuid}/training-runs"
    broken = engine.call("POST", path, content=b"{")
    assert (broken.status_code, broken.json()["code"]) == (400, "invalid_request_body")
    wrong = engine.call("POST", path, json={"base_model": ALIAS, "lora_rank": "many"})
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_request_body")
    assert "lora_rank" in wrong.json()["message"]
    nothing = {"base_model": ALIAS, "lora_rank": 4}
    nothing |= dict.fromkeys(("train_mlp", "train_attn", "train_unembed"), False)
    idle = engine.call("POST", path, json=nothing)
    assert (idle.status_code, idle.json()["code"]) == (400, "validation_failed")


def test_a_session_survives_a_renewal_and_pages_are_cut(
    engine: EngineProcess, service: trio.ServiceClient
) -> None:
    path = f"/api/openapi/v1/service-sessions/{service.service_session_cuid}"
    assert engine.call("POST", f"{path}/renew").json()["status"] == "RUNNING"
    new_training(service)
    new_training(service)
    page = engine.get("/api/openapi/v1/training-runs?limit=1&offset=1").json()
    assert len(page["training_runs"]) == 1
    assert page["cursor"]["total"] >= 2


def test_telemetry_is_taken_and_dropped(engine: EngineProcess) -> None:
    answer = engine.call("POST", "/api/telemetry/event", json={"records": [1]})
    assert answer.status_code == 202
    assert httpx.head(engine.url).status_code == 200


def test_errors_of_the_sdk_are_control_errors(service: trio.ServiceClient) -> None:
    with pytest.raises(ControlAPIError):
        service.create_lora_training_client("no/such")
