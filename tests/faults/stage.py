"""What a disturbed training runs on: the real engine with faults around it, a search server that
counts, and the flow as a person starts it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Self

import httpx

from searchr1.data.preparation import prepare
from searchr1.data.settings import DataSettings, DataSource
from searchr1.search.index import CorpusIndex
from searchr1.tiny_policy import MODEL_NAME, WEIGHTS
from tests.conftest import ROOT, Flows, free_port
from tests.faults.fault import BACKGROUND, Fault
from tests.search.loopback import Loopback, Reply, Request, ok

KEY = "key-of-the-faults"
START_SECONDS = 180.0
RUN_SECONDS = 600.0
SETTINGS = (
    *("--profile", "local", "--policy-service", "pytrio", "--swanlab-mode", "disabled"),
    *("--max-steps", "3", "--save-every", "3", "--questions-per-batch", "2", "--group-size", "8"),
    *("--search-backend", "retriever", "--search-cache", "off", "--search-attempts", "4"),
    *("--service-retry-seconds", "4", "--sample-timeout", "20", "--seed", "5"),
)


class FaultyEngine:
    """The engine in a process of its own, started anew on the same port and checkpoints whenever
    it is dead."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._met = 0
        self._log = home / "requests.jsonl"
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._watcher.start()
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._watcher.join()

    def _watch(self) -> None:
        command = [
            *(sys.executable, "-m", "tests.faults.faulty_engine", "--port", str(self.port)),
            *("--home", str(self.home), "--model", MODEL_NAME, str(WEIGHTS), "--key", KEY),
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (self.home / "engine.log").open("ab") as log:
            while not self._stopping.is_set():
                process = subprocess.Popen(
                    command, cwd=ROOT, env=environment, stdout=log, stderr=log
                )
                while process.poll() is None and not self._stopping.wait(0.05):
                    pass
                process.kill()
                process.wait()

    def wait(self) -> None:
        """Until it answers."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                httpx.get(self.url, timeout=5)
                return
            except httpx.HTTPError:
                assert time.monotonic() < deadline, (self.home / "engine.log").read_text()
                time.sleep(0.05)

    def meet(self, fault: Fault | None) -> None:
        """From now on, meet this fault and no other; counting begins anew."""
        self.wait()
        self._met = len(self.log())
        values = json.dumps(fault.to_json() if fault else None)
        httpx.put(f"{self.url}/harness", content=values, timeout=60).raise_for_status()

    def log(self) -> list[dict]:
        """A row a request, oldest first: its kind, and whether a fault hit it."""
        if not self._log.exists():
            return []
        rows = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [row for row in rows if row["kind"] not in BACKGROUND]

    def hits(self) -> int:
        """How many requests the fault at hand has hit."""
        return sum(row["hit"] for row in self.log()[self._met :])

    def file(self, uri: str) -> Path:
        """Where the weights at a URI lie."""
        return self.home / "checkpoints" / f"{uri.removeprefix('trio://')}.safetensors"


class CountingSearch:
    """A retrieval server over the built-in world's corpus, which keeps every query."""

    def __init__(self, index: CorpusIndex) -> None:
        self._index = index
        self._server = Loopback(self._answer)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._server.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._server.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, coroutine: object) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)  # type: ignore[arg-type]

    def _answer(self, request: Request) -> Reply:
        asked = request.json
        (query,) = asked["queries"]
        found = self._index.search(query, asked["topk"])
        rows = [{"document": {"title": d.title, "text": d.text}, "score": 1.0} for d in found]
        return ok({"result": [rows]})

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def requests(self) -> int:
        """How many came so far."""
        return len(self._server.requests)

    def queries(self, since: int) -> Counter[str]:
        """How often each query came after the first `since` requests."""
        return Counter(request.json["queries"][0] for request in self._server.requests[since:])


def prepare_world(folder: Path) -> None:
    """The built-in world as prepared data."""
    settings = DataSettings(source=DataSource.WORLD, data_dir=folder)
    prepare(settings, progress=lambda _: None)


class Stage:
    """Engine, search server, data and a folder of runs, shared by all disturbed trainings."""

    def __init__(self, flows: Flows, engine: FaultyEngine, search: CountingSearch) -> None:
        self.flows, self.engine, self.search = flows, engine, search
        self.runs_dir = flows.runs_dir

    def start(self, run: str, *settings: str) -> subprocess.Popen[str]:
        """Start the training `run`, or take it up again."""
        return self.flows.start(
            "train_flow",
            *(*SETTINGS, "--retriever-url", self.search.url, "--run-name", run, *settings),
        )

    def finish(self, run: str, *settings: str) -> str:
        """Start the training and let it end well. Returns what it printed."""
        self.engine.wait()
        return self.end(self.start(run, *settings), 0)

    def end(self, process: subprocess.Popen[str], status: int | None) -> str:
        """Wait for the end of a training, expect its exit status, return what it printed."""
        try:
            printed, _ = process.communicate(timeout=RUN_SECONDS)
        finally:
            process.kill()
            process.wait()
        assert status is None or process.returncode == status, printed
        return printed

    def kill_when(self, process: subprocess.Popen[str], condition: Callable[[], bool]) -> str:
        """Kill the training as soon as `condition` holds. Returns what it printed."""
        deadline = time.monotonic() + RUN_SECONDS
        while not condition():
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
        return self.end(process, -signal.SIGKILL)
