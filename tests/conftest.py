"""What tests share: one real Prefect server, and flows run as a person runs them."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[1]
START_SECONDS = 180.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory) -> Iterator[dict[str, str]]:
    """A Prefect server of its own on loopback; yields the environment for processes that use it."""
    home = tmp_path_factory.mktemp("prefect")
    port = free_port()
    environment = {
        **os.environ,
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_UI_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    log = (home / "server.log").open("wb")
    command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)]
    server = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _healthy(environment["PREFECT_API_URL"]):
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no Prefect server:\n{(home / 'server.log').read_text()}")
            time.sleep(0.2)
        yield environment
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def _healthy(api_url: str) -> bool:
    try:
        return httpx.get(f"{api_url}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


class Flows:
    """Runs flows in a directory of their own, as a person does from the command line."""

    def __init__(self, environment: Mapping[str, str], directory: Path) -> None:
        self.environment = dict(environment)
        self.runs_dir = directory / "runs"
        self.folders = [
            *("--runs-dir", str(self.runs_dir)),
            *("--data-dir", str(directory / "data")),
            *("--search-cache-dir", str(directory / "search")),
        ]

    def start(self, flow: str, *arguments: str) -> subprocess.Popen[str]:
        """Start `python flows/<flow>.py`; its output is one text stream."""
        folders = self.folders
        if flow == "prepare_flow":
            folders = folders[2:4]
        elif flow == "analyse_flow":
            folders = folders[:2]
        return subprocess.Popen(
            [sys.executable, f"flows/{flow}.py", *folders, *arguments],
            env=self.environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, flow: str, *arguments: str, status: int = 0, seconds: float = 600) -> str:
        """Run a flow to its end, expect its exit status, return what it printed."""
        process = self.start(flow, *arguments)
        try:
            output, _ = process.communicate(timeout=seconds)
        finally:
            process.kill()
        assert process.returncode == status, output
        return output


@pytest.fixture
def flows(prefect_server, tmp_path) -> Flows:
    """Flows with a runs and data folder of this test's own."""
    return Flows(prefect_server, tmp_path)
