"""The Actor plane: training events, sampling, heartbeats (all below /actor/v1).

Every route wants the token that Control handed out for the run. A run that is unknown (the
engine was restarted) is 404, so that the client gives up at once instead of renewing its token.
"""

import asyncio
import contextlib
import re
from typing import Any

import msgpack
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from searchr1.engine.config import HEARTBEAT_SECONDS, LONG_POLL_SECONDS
from searchr1.engine.control import bearer, body, same_secret, sampling_run
from searchr1.engine.engine import Engine
from searchr1.engine.errors import Code, EngineError
from searchr1.engine.runs import Event, SamplingRun, Status, TrainingRun
from searchr1.engine.sampler import SampleJob, WeightsKey
from searchr1.engine.wire import Envelope, SampleRequest, parse

LARGE_BODY = 1 << 20
"""Bytes from which a body is decoded outside of the event loop."""


def actor_routes() -> list[Route]:
    """All routes, relative to /actor/v1."""
    return [
        Route("/events", submit_event, methods=["POST"]),
        Route("/events/{event}", get_event, methods=["GET"]),
        Route("/sampling-runs/{run}/sample", sample, methods=["POST"]),
        Route("/client/heartbeat", heartbeat, methods=["POST"]),
    ]


async def submit_event(request: Request) -> Response:
    """Accept an event and answer at once; it is executed in its turn."""
    engine: Engine = request.app.state.engine
    envelope = parse(Envelope, await _packed(request))
    run = engine.training_runs.get(envelope.metadata.run_id)
    if run is None:
        raise EngineError(Code.RUN_NOT_FOUND, "No such training run. Was the engine restarted?")
    _authorize(request, run)
    if any(envelope.event_id in other.events for other in engine.training_runs.values()
           if other is not run):  # fmt: skip
        raise EngineError(Code.EVENT_EXISTS, "This event id belongs to another run.")
    return _status(run.submit(envelope))


async def get_event(request: Request) -> Response:
    """Status of an event; held back for up to `Prefer: wait` seconds while it is not done."""
    engine: Engine = request.app.state.engine
    name = request.path_params["event"]
    run = next((run for run in engine.training_runs.values() if name in run.events), None)
    if run is None:
        raise EngineError(
            Code.EVENT_NOT_FOUND, f"No event {name!r} here. Was the engine restarted?"
        )
    _authorize(request, run)
    run.touch()
    event = run.events[name]
    wait = re.search(r"\bwait=(\d+)", request.headers.get("prefer", ""))
    seconds = min(int(wait[1]) if wait else 0, LONG_POLL_SECONDS)
    if seconds:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.finished.wait(), seconds)
    return _status(event)


async def heartbeat(request: Request) -> Response:
    """The client of a training run is alive."""
    engine: Engine = request.app.state.engine
    token = bearer(request)
    for run in engine.training_runs.values():
        if same_secret(run.token, token):
            run.touch()
            return JSONResponse({"heartbeat_ms": HEARTBEAT_SECONDS * 1000})
    raise EngineError(Code.UNAUTHORIZED, "The token belongs to no run of this engine.")


async def sample(request: Request) -> Response:
    """Sample; answers when all sequences are done. A client that hangs up cancels the work."""
    engine: Engine = request.app.state.engine
    run = sampling_run(request, engine)
    _authorize(request, run)
    if run.status is not Status.RUNNING:
        raise EngineError(Code.RUN_ENDED, f"Run {run.cuid} has ended; create a new one.")
    run.touch()
    wanted = parse(SampleRequest, await body(request))
    prompt = _checked_prompt(wanted, run)

    loop = asyncio.get_running_loop()
    answer: asyncio.Future[dict[str, object]] = loop.create_future()

    def done(outcome: dict[str, object] | EngineError) -> None:
        loop.call_soon_threadsafe(_settle, answer, outcome)

    key = WeightsKey(run.base.alias, run.source_uri, run.source_cuid)
    job = SampleJob(key, wanted, prompt, run.base, done)
    engine.worker.sample(job)
    hangup = asyncio.create_task(_hangup(request))
    try:
        await asyncio.wait([answer, hangup], return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            return Response(status_code=499)  # nobody reads it
        run.touch()
        return JSONResponse({**answer.result(), "sampling_run": run.cuid})
    finally:
        job.cancelled = not answer.done()
        hangup.cancel()


def _checked_prompt(wanted: SampleRequest, run: SamplingRun) -> list[int]:
    """The prompt's tokens. Raises EngineError (`validation_failed`) over a limit."""
    prompt, limits, vocab = wanted.prompt.tokens, run.base.limits, run.base.vocab_size
    problem = ""
    if not prompt:
        problem = "The prompt is empty."
    elif len(prompt) > limits.max_seq_len:
        problem = f"The prompt has {len(prompt)} tokens; max_seq_len is {limits.max_seq_len}."
    elif wanted.num_samples > limits.max_batch_size:
        problem = f"num_samples is {wanted.num_samples}; at most {limits.max_batch_size} go."
    elif not all(0 <= token < vocab for token in prompt):
        problem = f"The prompt has a token id outside of [0, {vocab})."
    if problem:
        raise EngineError(Code.VALIDATION_FAILED, problem)
    return prompt


def _authorize(request: Request, run: TrainingRun | SamplingRun) -> None:
    if not same_secret(run.token, bearer(request)):
        raise EngineError(Code.UNAUTHORIZED, "The token is not the one of this run.")


def _settle(
    answer: asyncio.Future[dict[str, object]], outcome: dict[str, object] | EngineError
) -> None:
    if answer.done():
        return
    if isinstance(outcome, EngineError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


async def _hangup(request: Request) -> None:
    """Return when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _packed(request: Request) -> object:
    """The decoded msgpack body. Raises EngineError (`invalid_request_body`)."""
    raw = await request.body()

    def unpack() -> Any:
        return msgpack.unpackb(raw, raw=False)

    try:
        return unpack() if len(raw) < LARGE_BODY else await asyncio.to_thread(unpack)
    except (ValueError, msgpack.UnpackException):
        raise EngineError(Code.INVALID_BODY, "The body is not msgpack.") from None


def _status(event: Event) -> Response:
    packed = msgpack.packb(event.view(), use_bin_type=True)
    return Response(packed, status_code=200, media_type="application/msgpack")
