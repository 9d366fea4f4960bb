"""The engine as a process: starting, stopping, dying, coming back."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import pytrio as trio
from pytrio.errors.base import PyTrioError
from starlette.applications import Starlette

from searchr1.engine.__main__ import main
from searchr1.engine.app import create_app
from searchr1.engine.config import EngineConfig
from tests.engine.conftest import ALIAS, KEY, Launch
from tests.engine.helpers import datum, new_training, prompt_of, random_batch

Connect = Callable[[str], trio.ServiceClient]


def test_what_was_saved_survives_a_kill_and_the_rest_is_unknown(
    start_engine: Launch, connect: Connect, tmp_path: Path
) -> None:
    engine = start_engine(tmp_path)
    service = connect(engine.url)
    client = new_training(service)
    data = [datum(*item) for item in random_batch(1)]
    client.forward_backward(data, "importance_sampling").result()
    client.optim_step(trio.AdamParams(learning_rate=0.05)).result()
    state = client.save_state("step-1").result().path
    weights = client.save_weights_for_sampler("step-1").result().path
    expected = client.forward(data, "importance_sampling").result()
    old_sampler = service.create_sampling_client(base_model=ALIAS, model_path=weights)
    client.forward_backward(data * 40, "importance_sampling")
    engine.process.kill()
    engine.process.wait(timeout=60)
    (tmp_path / "partial" / "half.safetensors").write_bytes(b"half")

    port = engine.url.rsplit(":", 1)[1]
    again = start_engine(tmp_path, "--port", port)
    assert again.url == engine.url
    with pytest.raises(PyTrioError) as error:
        old_sampler.compute_logprobs(prompt_of(1)).result(timeout=60)
    assert error.value.status_code == 404
    with pytest.raises(PyTrioError) as error:
        service.create_sampling_client(base_model=ALIAS)
    assert (error.value.status_code, error.value.code) == (404, "service_session_not_found")

    fresh = connect(again.url)
    restored = fresh.create_training_client_from_state_with_optimizer(state)
    got = restored.forward(data, "importance_sampling").result()
    for one, two in zip(got.loss_fn_outputs, expected.loss_fn_outputs, strict=True):
        assert one["logprobs"].data == pytest.approx(two["logprobs"].data, abs=1e-6)
    sampler = fresh.create_sampling_client(base_model=ALIAS, model_path=weights)
    assert len(sampler.compute_logprobs(prompt_of(1, 2)).result()) == 2
    rest = fresh.create_rest_client()
    run = client.training_run_cuid
    assert [c.path for c in rest.list_checkpoints(run).result().checkpoints] == [state, weights]


def test_two_engines_share_a_home(
    serve: Callable[[Starlette], str], connect: Connect, tmp_path: Path, model_folder: Path
) -> None:
    config = EngineConfig(tmp_path, {ALIAS: model_folder}, api_key=KEY)
    first, second = (connect(serve(create_app(config))) for _ in range(2))
    path = new_training(first).save_state("shared").result().path
    copy = second.create_training_client_from_state(path).save_state("copy").result().path
    for service in (first, second):
        listed = service.create_rest_client().list_user_checkpoints().result().checkpoints
        assert [c.path for c in listed] == [path, copy]


def test_it_ends_with_its_parent(model_folder: Path, tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    child = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)\n"
        "print(p.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    engine = [sys.executable, "-m", "searchr1.engine", "--port", "0", "--home", str(tmp_path)]
    engine += ["--model", f"{ALIAS}={model_folder}", "--port-file", str(port_file)]
    parent = subprocess.Popen(
        [sys.executable, "-c", child, *engine, "--exit-with-parent"], stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    deadline = time.monotonic() + 120
    while not port_file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    parent.kill()
    parent.wait(timeout=60)
    deadline = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < deadline, "the engine outlived its parent"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "name"], "expected NAME=FOLDER"),
        (["--model", "name=/no/such/folder"], "not a model folder"),
        ([], "--model"),
    ],
)
def test_wrong_arguments_are_explained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_a_folder_or_port_that_cannot_be_used_is_explained(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    home = ["--home", str(tmp_path / "home")]
    assert main([*home, "--port", "0", "--model", f"broken={tmp_path}"]) == 2
    assert "cannot be used" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main([*home, "--port", str(port), "--model", f"{ALIAS}={model_folder}"]) == 2
    assert f"Port {port}" in capsys.readouterr().err
