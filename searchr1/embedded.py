"""The embedded engine as a child process: started for whoever needs it, shared, stopped at the end.

The child is tied to this process by its standard input: when this process ends, however it ends,
the pipe closes and the engine stops. Its checkpoints stay in its home folder, so the next engine
has them.
"""

import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from searchr1.errors import RetryableError, SettingsError
from searchr1.policy import ServiceAddress
from searchr1.tiny_policy import MODEL_NAME, WEIGHTS

START_SECONDS = 120.0
RETRY_SECONDS = 30.0
"""How long the SDK retries; on one's own machine a dead engine does not come back by itself."""


class EngineFailed(RetryableError):
    """The embedded engine did not start."""


class EmbeddedEngine:
    """An engine that runs whenever its address is asked for."""

    def __init__(self, home: Path, base_model: str) -> None:
        self._home = home
        self._base_model = base_model
        self._process: subprocess.Popen[bytes] | None = None
        self._address: ServiceAddress | None = None
        self._lock = threading.Lock()
        self.users = 0

    def address(self) -> ServiceAddress:
        """Where the engine is; one that has died is started anew, on the same checkpoints.
        Raises EngineFailed."""
        with self._lock:
            if self._address is None or self._process is None or self._process.poll() is not None:
                self._process, self._address = _start(self._home, self._base_model)
            return self._address

    def stop(self) -> None:
        """Stop the process, if there is one."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_engines: dict[tuple[Path, str], EmbeddedEngine] = {}
_engines_lock = threading.Lock()
"""Users come and go in several threads."""


def check_installed() -> None:
    """Raise SettingsError unless the extra `local` is installed."""
    missing = [
        name for name in ("torch", "peft", "starlette", "uvicorn") if find_spec(name) is None
    ]
    if missing:
        raise SettingsError(
            f"the embedded engine needs {', '.join(missing)}. Install the project with its extra: "
            "pip install -e '.[local]'"
        )


def model_folder(base_model: str) -> Path:
    """The folder of a model for the embedded engine: the built-in policy by name, else a path."""
    folder = WEIGHTS if base_model == MODEL_NAME else Path(base_model)
    if not (folder / "config.json").exists():
        raise SettingsError(
            f"the embedded engine finds no model at '{base_model}'. Give --base-model "
            f"{MODEL_NAME}, or a folder that transformers can load."
        )
    return folder


@contextmanager
def embedded_engine(home: Path, base_model: str) -> Iterator[EmbeddedEngine]:
    """A running engine that keeps its checkpoints in `home`. One engine serves all users within
    this process; the last one to leave stops it. Raises SettingsError or EngineFailed."""
    check_installed()
    model_folder(base_model)
    key = (home.resolve(), base_model)
    with _engines_lock:
        engine = _engines.setdefault(key, EmbeddedEngine(*key))
        engine.users += 1
    try:
        engine.address()
        yield engine
    finally:
        with _engines_lock:
            engine.users -= 1
            last = engine.users == 0
            if last:
                del _engines[key]
        if last:
            engine.stop()


def _start(home: Path, base_model: str) -> tuple[subprocess.Popen[bytes], ServiceAddress]:
    home.mkdir(parents=True, exist_ok=True)
    api_key = secrets.token_hex(16)
    port_file = Path(tempfile.mkdtemp(prefix="searchr1-engine-")) / "url"
    log = home / "engine.log"
    command = [
        *(sys.executable, "-m", "searchr1.engine"),
        *("--port", "0", "--port-file", str(port_file), "--home", str(home)),
        *("--model", f"{base_model}={model_folder(base_model)}", "--exit-with-parent"),
    ]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=_environment(api_key),
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while not port_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise EngineFailed(
                f"the embedded engine did not start; its log, {log}, ends: {_end(log)}"
            )
        time.sleep(0.05)
    address = ServiceAddress(
        base_url=port_file.read_text().strip(),
        api_key=api_key,
        home=home / "sdk",
        retry_seconds=RETRY_SECONDS,
    )
    return process, address


def _environment(api_key: str) -> dict[str, str]:
    return {**os.environ, "SEARCHR1_ENGINE_KEY": api_key, "TOKENIZERS_PARALLELISM": "false"}


def _end(log: Path) -> str:
    """The last line of the engine's log."""
    return (log.read_text(errors="replace").strip().splitlines() or ["(empty)"])[-1]
