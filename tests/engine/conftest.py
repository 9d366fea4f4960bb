"""A tiny random model with a small tokenizer, the real engine as a process, and the real SDK.

The model has more rows in its head than the tokenizer has ids, as published models do.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["NO_PROXY"] = "127.0.0.1,localhost"

import pytrio as trio
import torch
import uvicorn
from starlette.applications import Starlette
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.decoders import ByteLevel
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

ALIAS = "tests/tiny"
KEY = "key-of-the-tests"
VOCAB = 259
"""256 bytes and three special tokens; the model has 7 ids more."""


def make_tokenizer(folder: Path) -> None:
    """One id per byte, then <|end|> (end of sequence), <|pad|> and <|stop|>."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevel()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|pad|>"
    )
    wrapped.add_special_tokens({"additional_special_tokens": ["<|stop|>"]})
    assert len(wrapped) == VOCAB
    wrapped.save_pretrained(folder)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Qwen3 with lively logits."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(7)
    config = Qwen3Config(
        vocab_size=VOCAB + 7,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.2,
        eos_token_id=256,
        pad_token_id=257,
        bos_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    make_tokenizer(folder)
    return folder


@dataclass
class EngineProcess:
    """A running engine."""

    url: str
    process: subprocess.Popen[bytes]

    def metrics(self) -> dict[str, int]:
        """The engine's counters."""
        return self.get("/api/engine/metrics").json()

    def get(self, path: str, **kwargs: object) -> httpx.Response:
        """GET with the right key."""
        return self.call("GET", path, **kwargs)

    def call(self, method: str, path: str, **kwargs: object) -> httpx.Response:
        """Any request with the right key."""
        headers = {"X-API-Key": KEY}
        return httpx.request(method, self.url + path, headers=headers, timeout=60, **kwargs)  # type: ignore[arg-type]


def launch(home: Path, model_folder: Path, *extra: str) -> EngineProcess:
    """Start an engine on a free port and wait until it listens."""
    port_file = home / "port"
    port_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "searchr1.engine", "--port", "0", "--home", str(home)]
    command += ["--model", f"{ALIAS}={model_folder}", "--threads", "1", "--exit-with-parent"]
    process = subprocess.Popen(
        [*command, "--port-file", str(port_file), *extra],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "SEARCHR1_ENGINE_KEY": KEY, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 240
    while not port_file.exists():
        assert process.poll() is None, f"the engine ended with {process.returncode}"
        assert time.monotonic() < deadline, "the engine did not start"
        time.sleep(0.05)
    return EngineProcess(port_file.read_text(), process)


Launch = Callable[..., EngineProcess]


@pytest.fixture
def start_engine(model_folder: Path) -> Iterator[Launch]:
    """Engines of a test's own; all end with the test."""
    started: list[EngineProcess] = []

    def start(home: Path, *extra: str) -> EngineProcess:
        started.append(launch(home, model_folder, *extra))
        return started[-1]

    yield start
    for engine in started:
        engine.process.kill()
        engine.process.wait(timeout=60)


@pytest.fixture
def serve() -> Iterator[Callable[[Starlette], str]]:
    """Serves applications from this process; gives their URLs."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(app: Starlette) -> str:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, lifespan="on")
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        running.append((server, thread))
        while not server.started:
            assert thread.is_alive(), "the application did not start"
            time.sleep(0.01)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(timeout=60)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Iterator[EngineProcess]:
    """The engine that most tests share."""
    home = tmp_path_factory.mktemp("engine")
    running = launch(home, model_folder)
    yield running
    running.process.terminate()
    assert running.process.wait(timeout=60) == 0, "SIGTERM is a clean end"
    assert not (home / "port").exists()


@pytest.fixture(scope="session")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], trio.ServiceClient]:
    """Opens an SDK client for an engine's URL."""
    home = tmp_path_factory.mktemp("sdk")

    def open_client(url: str) -> trio.ServiceClient:
        trio.configure(home=str(home), base_url=url, api_key=KEY)
        trio.configure_observability(enabled=False)
        trio.configure(
            sampling_request_max_in_flight=64,
            # At exit the SDK closes its sessions, and goes on trying for 15 minutes by default
            # when the engine is gone.
            control_retry_timeout_seconds=3,
            training_retry_timeout_seconds=3,
            sampling_retry_timeout_seconds=3,
        )
        return trio.ServiceClient()

    return open_client


@pytest.fixture(scope="session")
def service(
    engine: EngineProcess, connect: Callable[[str], trio.ServiceClient]
) -> trio.ServiceClient:
    """An SDK client of the shared engine."""
    return connect(engine.url)
