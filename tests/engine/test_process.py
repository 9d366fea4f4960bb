"""The engine as a process: starting, stopping, dying, coming back."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import pytrio as trio
from pytrio.errors.base import PyTrioError

from tests.engine.conftest import ALIAS, Launch
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
    start_engine: Launch, connect: Connect, tmp_path: Path, engine: object
) -> None:
    (tmp_path / "one").mkdir()
    first = start_engine(tmp_path)
    second = start_engine(tmp_path)
    client = new_training(connect(first.url))
    path = client.save_state("shared").result().path
    other = connect(second.url)
    other.create_training_client_from_state(path).save_state("copy").result()
    assert first.get("/api/openapi/v1/checkpoints").json()["cursor"]["total"] == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(
    start_engine: Launch, tmp_path: Path, number: signal.Signals
) -> None:
    engine = start_engine(tmp_path)
    engine.process.send_signal(number)
    assert engine.process.wait(timeout=60) == 0
    assert not (tmp_path / "port").exists()


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
def test_wrong_arguments_are_explained_before_anything_is_loaded(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    command = [sys.executable, "-m", "searchr1.engine", "--home", str(tmp_path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_no_model_is_explained(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    command = [sys.executable, "-m", "searchr1.engine", "--home", str(tmp_path / "home")]
    command += ["--port", "0", "--model", f"broken={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "cannot be used" in done.stderr
    assert "Traceback" not in done.stderr
