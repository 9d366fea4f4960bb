"""The Control plane: key, models, sessions, runs, checkpoints (all below /api).

JSON in and out. Every route checks the key first.
"""

import asyncio
import functools
import hmac
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from searchr1.engine import config as settings
from searchr1.engine.checkpoints import Checkpoint, Kind
from searchr1.engine.engine import Engine, new_cuid
from searchr1.engine.errors import Code, EngineError
from searchr1.engine.model import LoraSettings
from searchr1.engine.runs import SamplingRun, Session, Status, TrainingRun
from searchr1.engine.views import (
    WORKSPACE,
    checkpoint_view,
    created_view,
    credentials,
    ids,
    iso,
    origin,
    run_view,
    sampling_run_view,
    session_view,
    spec,
)
from searchr1.engine.wire import (
    SamplingRunCreate,
    SessionClose,
    TrainingRunCreate,
    TrainingRunUpdate,
    parse,
)

Handler = Callable[[Request, Engine], Awaitable[Any]]

STARTED = time.time()


def control_routes() -> list[Route]:
    """All routes, relative to /api."""
    sessions = "/openapi/v1/service-sessions"
    session = sessions + "/{session}"
    runs = "/openapi/v1/training-runs"
    sampling_run = "/openapi/v1/sampling-runs/{run}"
    checkpoint = "/openapi/v1/checkpoints/{checkpoint}"
    table: list[tuple[str, str, Handler]] = [
        ("GET", "/openapi/v1/api-key/verify", verify_key),
        ("GET", "/sdk/bootstrap", bootstrap),
        ("POST", "/telemetry/event", drop_telemetry),
        ("GET", "/models", list_models),
        ("GET", "/engine/metrics", metrics),
        ("POST", sessions, create_session),
        ("GET", sessions, list_sessions),
        ("GET", session, get_session),
        ("POST", session + "/close", close_session),
        ("POST", session + "/renew", renew_session),
        ("POST", session + "/training-runs", create_training_run),
        ("PATCH", session + "/training-runs/{run}", bind_checkpoint),
        ("POST", session + "/sampling-runs", create_sampling_run),
        ("GET", runs + "/by-checkpoint-uri", find_by_checkpoint),
        ("GET", runs, list_training_runs),
        ("GET", runs + "/{run}", get_training_run),
        ("GET", runs + "/{run}/checkpoints", list_run_checkpoints),
        ("POST", runs + "/{run}/renew", renew_training_run),
        ("GET", sampling_run, get_sampling_run),
        ("POST", sampling_run + "/renew", renew_sampling_run),
        ("GET", "/openapi/v1/checkpoints", list_checkpoints),
        ("DELETE", checkpoint, delete_checkpoint),
        ("GET", checkpoint + "/download-url", download_url),
    ]
    return [Route(path, _guarded(handler), methods=[verb]) for verb, path, handler in table]


def _guarded(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Check the key, hand in the engine, turn the result into JSON."""

    @functools.wraps(handler)
    async def guarded(request: Request) -> Response:
        engine: Engine = request.app.state.engine
        given = request.headers.get("x-api-key", "") or bearer(request)
        if not same_secret(given, engine.config.api_key):
            message = "The API key is not the one that this engine was started with."
            raise EngineError(Code.UNAUTHORIZED, message)
        result = await handler(request, engine)
        return result if isinstance(result, Response) else JSONResponse(result)

    return guarded


def bearer(request: Request) -> str:
    """The bearer token of a request, or an empty string."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else ""


def same_secret(one: str, other: str) -> bool:
    """Compare in a time that tells nothing."""
    return hmac.compare_digest(one.encode(), other.encode())


async def body(request: Request) -> object:
    """The decoded JSON body. Raises EngineError (`invalid_request_body`)."""
    try:
        return json.loads(await request.body() or b"{}")
    except ValueError:
        raise EngineError(Code.INVALID_BODY, "The body is not JSON.") from None


async def verify_key(request: Request, engine: Engine) -> object:
    return {
        "api_key_tid": "key_local",
        "api_key_name": "local",
        "user_cuid": "user_local",
        "username": "local",
        "display_name": None,
        "workspace_cuid": WORKSPACE,
        "workspace_name": "local",
        "workspace_type": "PERSONAL",
        "expires_at": None,
    }


async def bootstrap(request: Request, engine: Engine) -> object:
    version = request.query_params.get("sdk_version", "")
    return {"compatibility": {"status": "compatible", "sdk_version": version}, "notices": []}


async def drop_telemetry(request: Request, engine: Engine) -> object:
    await request.body()
    return Response(status_code=202)


async def metrics(request: Request, engine: Engine) -> object:
    """Counters for people and tests: decode steps, rows a step, prompt tokens reused, ..."""
    return engine.worker.sampler.metrics()


async def list_models(request: Request, engine: Engine) -> object:
    items = [
        {
            "cuid": spec(model),
            "alias": model.alias,
            "model_id": model.model_id,
            "context_length": model.limits.max_seq_len,
            "train_available": True,
            "sample_available": True,
            "trainer": model.limits.wire(),
            "sampler": model.limits.wire(),
            "created_at": iso(STARTED),
            "updated_at": iso(STARTED),
        }
        for model in engine.models.values()
    ]
    page, cursor = paged(request, items)
    return {"items": page, **cursor}


async def create_session(request: Request, engine: Engine) -> object:
    await request.body()
    session = Session(cuid=new_cuid("session"))
    engine.sessions[session.cuid] = session
    return session_view(session)


async def list_sessions(request: Request, engine: Engine) -> object:
    page, cursor = paged(request, [session_view(s) for s in engine.sessions.values()])
    return {"service_sessions": page, "cursor": cursor}


async def get_session(request: Request, engine: Engine) -> object:
    session = engine.session(request.path_params["session"])
    return {
        **session_view(session),
        "training_run_cuids": session.training_runs,
        "sampling_run_cuids": session.sampling_runs,
    }


async def close_session(request: Request, engine: Engine) -> object:
    session = engine.session(request.path_params["session"])
    engine.close_session(session, Status(parse(SessionClose, await body(request)).status))
    return session_view(session)


async def renew_session(request: Request, engine: Engine) -> object:
    return session_view(engine.session(request.path_params["session"], running=True))


async def create_training_run(request: Request, engine: Engine) -> object:
    session = engine.session(request.path_params["session"], running=True)
    wanted = parse(TrainingRunCreate, await body(request))
    if wanted.source_checkpoint_uri:
        base = engine.model_of(await source_state(engine, wanted.source_checkpoint_uri))
    else:
        base = engine.model(wanted.base_model)
    if not (wanted.train_attn or wanted.train_mlp or wanted.train_unembed):
        message = "Nothing to train: all of train_attn, train_mlp and train_unembed are off."
        raise EngineError(Code.VALIDATION_FAILED, message)
    run = TrainingRun(
        cuid=new_cuid("run"),
        session=session.cuid,
        index=len(session.training_runs),
        base=base,
        lora=LoraSettings(
            wanted.lora_rank,
            wanted.seed,
            wanted.train_attn,
            wanted.train_mlp,
            wanted.train_unembed,
        ),
        source_uri=wanted.source_checkpoint_uri,
        restore_optimizer=wanted.restore_optimizer,
    )
    engine.start_run(run)
    session.training_runs.append(run.cuid)
    return {**created_view(run), "training_run_cuid": run.cuid, "trainer": base.limits.wire(),
            **credentials(request, run)}  # fmt: skip


async def bind_checkpoint(request: Request, engine: Engine) -> object:
    engine.session(request.path_params["session"], running=True)
    run = training_run(request, engine)
    wanted = parse(TrainingRunUpdate, await body(request))
    await source_state(engine, wanted.source_checkpoint_uri)
    if run.events:
        message = "A checkpoint can be bound only before the run's first event."
        raise EngineError(Code.RUN_INITIALIZED, message)
    run.source_uri = wanted.source_checkpoint_uri
    run.restore_optimizer = wanted.restore_optimizer
    return {
        "source_checkpoint_uri": run.source_uri,
        "restore_optimizer": run.restore_optimizer,
        "trainer": run.base.limits.wire(),
        **credentials(request, run),
    }


async def create_sampling_run(request: Request, engine: Engine) -> object:
    session = engine.session(request.path_params["session"], running=True)
    wanted = parse(SamplingRunCreate, await body(request))
    cuid, base = "", None
    if wanted.source_checkpoint_uri:
        checkpoint = await asyncio.to_thread(engine.store.find, wanted.source_checkpoint_uri)
        cuid, base = checkpoint.cuid, engine.model_of(checkpoint)
    if wanted.base_model or base is None:
        named = engine.model(wanted.base_model)
        if base is not None and named is not base:
            message = f"The checkpoint is of model {base.alias!r}, not of {named.alias!r}."
            raise EngineError(Code.CHECKPOINT_INCOMPATIBLE, message)
        base = named
    run = SamplingRun(
        cuid=new_cuid("sampling"),
        session=session.cuid,
        index=len(session.sampling_runs),
        base=base,
        source_uri=wanted.source_checkpoint_uri,
        source_cuid=cuid,
    )
    engine.sampling_runs[run.cuid] = run
    session.sampling_runs.append(run.cuid)
    return {**created_view(run), "sampling_run_cuid": run.cuid, "sampler": base.limits.wire(),
            **credentials(request, run)}  # fmt: skip


async def find_by_checkpoint(request: Request, engine: Engine) -> object:
    uri = request.query_params.get("checkpoint_uri", "")
    checkpoint = await source_state(engine, uri)
    lora = checkpoint.lora
    return {
        "base_model": engine.model_of(checkpoint).model_id,
        "lora_rank": lora.rank,
        "seed": lora.seed,
        "train_mlp": lora.train_mlp,
        "train_attn": lora.train_attn,
        "train_unembed": lora.train_unembed,
    }


async def list_training_runs(request: Request, engine: Engine) -> object:
    page, cursor = paged(request, [run_view(run) for run in engine.training_runs.values()])
    return {"training_runs": page, "cursor": cursor}


async def get_training_run(request: Request, engine: Engine) -> object:
    return run_view(training_run(request, engine))


async def renew_training_run(request: Request, engine: Engine) -> object:
    run = training_run(request, engine)
    run.touch()
    return {**ids(run), "training_run_cuid": run.cuid, **credentials(request, run)}


async def get_sampling_run(request: Request, engine: Engine) -> object:
    return sampling_run_view(sampling_run(request, engine))


async def renew_sampling_run(request: Request, engine: Engine) -> object:
    run = sampling_run(request, engine)
    run.touch()
    return {**ids(run), "sampling_run_cuid": run.cuid, **credentials(request, run)}


async def list_run_checkpoints(request: Request, engine: Engine) -> object:
    found = await asyncio.to_thread(engine.store.list, request.path_params["run"])
    return checkpoint_page(request, engine, found)


async def list_checkpoints(request: Request, engine: Engine) -> object:
    return checkpoint_page(request, engine, await asyncio.to_thread(engine.store.list))


async def delete_checkpoint(request: Request, engine: Engine) -> object:
    def delete() -> None:
        engine.store.delete(engine.store.by_cuid(request.path_params["checkpoint"]))

    await asyncio.to_thread(delete)
    return Response(status_code=204)


async def download_url(request: Request, engine: Engine) -> object:
    cuid = request.path_params["checkpoint"]
    checkpoint = await asyncio.to_thread(engine.store.by_cuid, cuid)
    token, expires = secrets.token_urlsafe(24), time.time() + settings.DOWNLOAD_SECONDS
    engine.downloads[token] = checkpoint, expires
    return {
        "url": f"{origin(request)}/download/{token}",
        "expires_at": iso(expires),
        "source": "actor",
        "checkpoint_status": "READY",
        "tls_cert_pem": None,
        "tls_not_after": None,
    }


async def download(request: Request) -> Response:
    """The file behind a download address (which is its own credential); honours Range."""
    engine: Engine = request.app.state.engine
    checkpoint, expires = engine.downloads.get(request.path_params["token"], (None, 0.0))
    if checkpoint is None or expires < time.time():
        raise EngineError(Code.CHECKPOINT_NOT_FOUND, "This download address is not valid.")
    path = engine.store.path(checkpoint)
    if not path.exists():
        raise EngineError(Code.CHECKPOINT_NOT_FOUND, f"{checkpoint.uri} has been deleted.")
    return FileResponse(path, media_type="application/octet-stream", filename=path.name)


async def source_state(engine: Engine, uri: str) -> Checkpoint:
    """A checkpoint that can start a training run.

    Raises EngineError (`checkpoint_not_found`, `checkpoint_invalid_type`).
    """
    checkpoint = await asyncio.to_thread(engine.store.find, uri)
    if checkpoint.kind is not Kind.STATE:
        message = f"{uri} holds sampler weights; a training run starts from a saved state."
        raise EngineError(Code.CHECKPOINT_INVALID_TYPE, message)
    return checkpoint


def training_run(request: Request, engine: Engine) -> TrainingRun:
    """The run in the path. Raises EngineError (`run_not_found`)."""
    run = engine.training_runs.get(request.path_params["run"])
    if run is None:
        raise EngineError(Code.RUN_NOT_FOUND, "No such training run. Was the engine restarted?")
    return run


def sampling_run(request: Request, engine: Engine) -> SamplingRun:
    """The run in the path. Raises EngineError (`run_not_found`)."""
    run = engine.sampling_runs.get(request.path_params["run"])
    if run is None:
        raise EngineError(Code.RUN_NOT_FOUND, "No such sampling run. Was the engine restarted?")
    return run


def paged(request: Request, items: Sequence[object]) -> tuple[list[object], dict[str, int]]:
    """The page that `limit` and `offset` ask for, and the protocol's cursor."""
    try:
        limit = int(request.query_params.get("limit", "100"))
        offset = int(request.query_params.get("offset", "0"))
    except ValueError:
        raise EngineError(Code.INVALID_QUERY, "limit and offset must be integers.") from None
    if limit < 1 or offset < 0:
        raise EngineError(Code.INVALID_QUERY, "limit must be at least 1, offset at least 0.")
    cursor = {"offset": offset, "limit": limit, "total": len(items)}
    return list(items[offset : offset + limit]), cursor


def checkpoint_page(request: Request, engine: Engine, found: list[Checkpoint]) -> object:
    """A page of checkpoints, newest last."""
    page, cursor = paged(request, found)
    views = [checkpoint_view(engine, c) for c in page if isinstance(c, Checkpoint)]
    return {"checkpoints": views, "cursor": cursor}
