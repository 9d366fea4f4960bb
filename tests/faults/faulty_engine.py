"""The real engine with faults around it: `python -m tests.faults.faulty_engine`.

The engine itself has no fault in it: `FaultyApp` wraps it as an ASGI middleware, writes a line
about every request to a log, and meets the requests that the harness named in `PUT /harness`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgpack
import torch
import uvicorn

from searchr1.engine.app import create_app
from searchr1.engine.config import EngineConfig
from tests.faults.fault import ENGINE, Action, Fault, When

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

WRONG_BODY = b'{"unexpected": "body"}'


class FaultyApp:
    """Logs requests, and spoils those that the fault at hand concerns."""

    def __init__(self, app: Any, log: Path) -> None:
        self._app = app
        self._log = log.open("a", buffering=1)
        self._events: dict[str, str] = {}
        self._fault: Fault | None = None
        self._seen = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] == "/harness":
            await self._take_fault(receive, send)
            return
        body = await _body(receive)
        kind = self._kind(scope, body)
        fault = self._hit(kind)
        self._log.write(json.dumps({"kind": kind, "hit": fault is not None}) + "\n")
        replayed = _replay(body, receive)
        if fault is None:
            await self._app(scope, replayed, send)
        else:
            await self._spoil(fault, scope, replayed, send)

    async def _take_fault(self, receive: Receive, send: Send) -> None:
        values = json.loads(await _body(receive))
        self._fault = None if values is None else Fault.from_json(values)
        self._seen = 0
        await _respond(send, 200, b"{}")

    def _hit(self, kind: str) -> Fault | None:
        fault = self._fault
        if fault is None or not fault.concerns(kind):
            return None
        self._seen += 1
        return fault if fault.nth <= self._seen < fault.nth + fault.count else None

    def _kind(self, scope: Message, body: bytes) -> str:
        method, parts = scope["method"], scope["path"].strip("/").split("/")
        if parts[:2] == ["actor", "v1"]:
            if parts[-1] in ("sample", "heartbeat"):
                return parts[-1]
            if method == "POST":
                envelope = msgpack.unpackb(body, raw=False)
                self._events[envelope["event_id"]] = envelope["type"].removeprefix("trainer.")
                return f"submit:{self._events[envelope['event_id']]}"
            return f"poll:{self._events.get(parts[-1], 'unknown')}"
        if parts[0] != "api":
            return "probe"
        if "telemetry" in parts:
            return "telemetry"
        resources = [part for part in parts[1:] if part not in ("openapi", "v1")]
        named = [part for part in resources if "-" in part or part.isalpha()]
        return f"control:{method} {named[-1]}"

    async def _spoil(self, fault: Fault, scope: Message, receive: Receive, send: Send) -> None:
        connection = send.__self__.transport  # type: ignore[attr-defined]  # uvicorn's
        if fault.when is not When.ARRIVES or fault.action is Action.CUT:
            start, body = await _run(self._app, scope, receive)
            if fault.action is Action.CUT:
                await send(start)
                await send({**body, "body": body["body"][: len(body["body"]) // 2],
                            "more_body": True})  # fmt: skip
            elif fault.when is When.ANSWERED:
                await send(start)
                await send(body)
                await asyncio.sleep(0.02)  # until it has left this process
        match fault.action:
            case Action.KILL:
                _kill(fault.victims)
                connection.abort()
            case Action.STATUS:
                error = {"code": fault.code, "message": "A fault of the harness."}
                await _respond(send, fault.status, json.dumps(error).encode())
            case Action.WRONG:
                await _respond(send, 200, WRONG_BODY)
            case Action.HANG:
                while (await receive())["type"] != "http.disconnect":
                    pass
            case Action.DROP:
                connection.abort()
            case Action.CUT:
                connection.close()


def _kill(victims: tuple[int, ...]) -> None:
    for victim in sorted(victims, reverse=True):  # the engine, this process, last
        with contextlib.suppress(ProcessLookupError):
            os.kill(os.getpid() if victim == ENGINE else victim, signal.SIGKILL)


async def _body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """Gives the body once more, then what comes after it."""
    rest = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return rest.pop() if rest else await receive()

    return again


async def _run(app: Any, scope: Message, receive: Receive) -> tuple[Message, Message]:
    """The engine's answer, kept back: its start, and its body in one piece."""
    messages: list[Message] = []

    async def keep(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, keep)
    body = b"".join(message.get("body", b"") for message in messages[1:])
    return messages[0], {"type": "http.response.body", "body": body}


async def _respond(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--model", nargs=2, metavar=("NAME", "FOLDER"), required=True)
    parser.add_argument("--key", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    name, folder = options.model
    config = EngineConfig(options.home, {name: Path(folder)}, options.key, "cpu", max_rows=1)
    app = create_app(config)
    # Sequences that are decoded together, or go on from stored keys and values, change each
    # other's last bits: one at a time from its beginning, each is the same whatever else goes on.
    app.state.engine.models[name].slot_bytes = 0
    uvicorn.run(
        FaultyApp(app, options.home / "requests.jsonl"),
        port=options.port,
        lifespan="on",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,
    )


if __name__ == "__main__":
    main()
