"""A real HTTP server on loopback that answers as it is told, faults included."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


@dataclass
class Request:
    """What a client sent."""

    method: str
    path: str
    parameters: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """What to send back. Without faults it is a proper HTTP response."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    """Sent instead of anything else, as it is."""
    delay: float = 0.0
    """Seconds before the first byte."""
    drop: str = ""
    """"before" the answer, or "inside" its body: the connection is closed there."""


def ok(value: Any, **more: Any) -> Reply:
    """A JSON answer."""
    return Reply(json.dumps(value).encode(), **more)


Answering = Reply | list[Reply] | Callable[[Request], Reply]
"""A reply for every request, replies in order (the last one goes on), or a function."""


class Loopback:
    """`async with Loopback(answer) as server`: `server.url`, and `server.requests` as they came."""

    def __init__(self, answer: Answering) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.url = ""
        self._answer = self._as_function(answer)
        self._tasks: set[asyncio.Task[None]] = set()

    @staticmethod
    def _as_function(
        answer: Answering,
    ) -> Callable[[Request], Reply]:
        if isinstance(answer, Reply):
            return lambda _: answer
        if isinstance(answer, list):
            replies: Iterator[Reply] = iter(answer)
            last = answer[-1]
            return lambda _: next(replies, last)
        return answer

    def now(self, answer: Answering) -> None:
        """Answer differently from now on."""
        self._answer = self._as_function(answer)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while (request := await self._read(reader)) is not None:
                self.requests.append(request)
                if not await self._send(self._answer(request), writer):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Request | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.strip().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        url = urlsplit(target)
        query = parse_qs(url.query, keep_blank_values=True)
        parameters = {name: values[0] for name, values in query.items()}
        return Request(method, url.path, parameters, headers, body)

    async def _send(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        await asyncio.sleep(reply.delay)
        if reply.drop == "before":
            return False
        if reply.raw is not None:
            writer.write(reply.raw)
            await writer.drain()
            return False
        headers = {"Content-Type": "application/json", "Content-Length": str(len(reply.body))}
        lines = [f"{name}: {value}" for name, value in {**headers, **reply.headers}.items()]
        head = f"HTTP/1.1 {reply.status} Status\r\n" + "\r\n".join(lines) + "\r\n\r\n"
        body = reply.body[: len(reply.body) // 2] if reply.drop == "inside" else reply.body
        writer.write(head.encode("latin-1") + body)
        await writer.drain()
        return reply.drop != "inside"
