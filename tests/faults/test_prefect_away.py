"""A training outlives a Prefect server that goes away for half a minute."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from tests.conftest import Flows
from tests.faults.outcome import Outcome, outcome
from tests.faults.stage import RUN_SECONDS, Stage

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]
AWAY_SECONDS = 25


class Relay:
    """Stands before a server; while it is `away`, connections are closed and refused, and while
    it is `silent` they are open and nothing gets through."""

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url)
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self.port = 0

    def start(self) -> None:
        self._flowing.set()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.listen()

    def listen(self) -> None:
        self._call(self._listen())

    def away(self) -> None:
        self._call(self._close())

    def silent(self, silent: bool) -> None:
        self._loop.call_soon_threadsafe(self._flowing.clear if silent else self._flowing.set)

    def _call(self, coroutine: object) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)  # type: ignore[arg-type]

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            answers, requests = await asyncio.open_connection(self._to.hostname, self._to.port)
            await asyncio.gather(self._pump(reader, requests), self._pump(answers, writer))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        self._open.add(sink)
        try:
            while data := await source.read(1 << 16):
                await self._flowing.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            self._open.discard(sink)
            sink.close()


@pytest.fixture
def relay(stage: Stage) -> Iterator[Relay]:
    """In front of the Prefect server of the tests."""
    relay = Relay(stage.flows.environment["PREFECT_API_URL"])
    relay.start()
    yield relay
    relay.away()


@pytest.mark.parametrize("how", ["refuses", "is silent"])
def test_a_training_outlives_it(
    stage: Stage, undisturbed: Callable[..., Outcome], relay: Relay, how: str
) -> None:
    expected, name = undisturbed(), f"away-{how[0]}"
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
    time.sleep(AWAY_SECONDS)
    assert process.poll() is None, "it ended before the server was back"
    if how == "refuses":
        relay.listen()
    else:
        relay.silent(False)
    stage.end(process, 0)
    outcome(stage, name).assert_equal(expected)
