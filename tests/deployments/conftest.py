"""The project on a real Prefect server, handled as a person handles it: from the command line."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

ROOT = Path(__file__).parents[2]
T = TypeVar("T")


def wait_for(look: Callable[[], T | None], what: str, seconds: float = 120.0) -> T:
    """The first thing that `look` finds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(f"after {seconds:.0f} s still no {what}")


@pytest.fixture(scope="module")
def client(prefect_server) -> Iterator[SyncPrefectClient]:
    """A client of the test server, which the code of the test process uses too."""
    with (
        temporary_settings({PREFECT_API_URL: prefect_server["PREFECT_API_URL"]}),
        get_client(sync_client=True) as connected,
    ):
        yield connected


@pytest.fixture(scope="module")
def no_deployments(client) -> None:
    """What other tests deployed is gone."""
    for deployment in client.read_deployments():
        client.request("DELETE", "/deployments/{id}", path_params={"id": deployment.id})


class Ended(NamedTuple):
    """A command that has ended."""

    status: int
    output: str


@pytest.fixture(scope="session")
def prefect(prefect_server) -> Callable[..., Ended]:
    """Runs `prefect ...` in the project's folder."""

    def run(*arguments: str, cwd: Path = ROOT, seconds: float = 280.0) -> Ended:
        done = subprocess.run(
            ["prefect", *arguments],
            env=prefect_server | {"COLUMNS": "200", "PWD": str(cwd)},
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=seconds,
        )
        return Ended(done.returncode, done.stdout)

    return run


def running(command: list[str], environment: dict[str, str], cwd: Path) -> Iterator[Path]:
    """Run `command` until the generator is closed; yields the file of what it prints. It ends as
    by a service manager: a signal, and in the end no mercy, for all its processes."""
    log = cwd / "output.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=cwd,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def served(prefect_server, client, no_deployments, tmp_path_factory) -> Iterator[Path]:
    """`python deployments/serve.py` at work; yields its folder, where its runs and data go."""
    folder = tmp_path_factory.mktemp("served")
    command = [sys.executable, str(ROOT / "deployments" / "serve.py")]
    for _ in running(command, prefect_server, folder):
        wait_for(lambda: len(client.read_deployments()) == 5, "five deployments")
        yield folder
