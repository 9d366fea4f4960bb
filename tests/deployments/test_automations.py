"""The automations on a real Prefect server: made once, kept up to date, and doing their work."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from prefect import flow
from prefect.blocks.webhook import Webhook
from prefect.client.schemas.objects import StateType
from prefect.deployments.runner import RunnerDeployment
from prefect.states import Failed

from deployments import automations
from deployments.automations import Change, apply, dead_runs
from tests.deployments.conftest import wait_for


@pytest.fixture(autouse=True)
def no_automations(client) -> Iterator[None]:
    yield
    for automation in client.read_automations():
        client.delete_automation(automation.id)


def test_an_automation_is_created_once_and_brought_up_to_date(client):
    assert apply(client, dead_runs(), dry_run=False) is Change.CREATED
    assert apply(client, dead_runs(), dry_run=False) is Change.UNCHANGED
    other = dead_runs(silence=timedelta(seconds=300))
    assert apply(client, other, dry_run=False) is Change.UPDATED
    (kept,) = client.read_automations()
    assert kept.trigger.within == timedelta(seconds=300)


def test_one_that_a_person_disabled_stays_disabled(client):
    apply(client, dead_runs(), dry_run=False)
    (kept,) = client.read_automations()
    client.pause_automation(kept.id)
    assert apply(client, dead_runs(), dry_run=False) is Change.UNCHANGED
    apply(client, dead_runs(silence=timedelta(seconds=300)), dry_run=False)
    assert client.read_automations()[0].enabled is False


def test_a_dry_run_changes_nothing_and_the_list_shows_what_is_there(client, capsys):
    automations.main(["--dry-run"])
    assert "would be created" in capsys.readouterr().out
    assert client.read_automations() == []
    automations.main([])
    automations.main(["--list"])
    assert "searchr1: dead runs: enabled" in capsys.readouterr().out


def test_an_unknown_block_ends_with_advice_and_nothing_is_made(client):
    with pytest.raises(SystemExit, match="no block 'slack-webhook/team'"):
        automations.main(["--notify", "slack-webhook/team"])
    assert client.read_automations() == []


@pytest.fixture
def inbox() -> Iterator[tuple[str, list[str]]]:
    """A web server on loopback: its address, and the bodies it was sent."""
    received: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", received
    server.shutdown()
    thread.join()
    server.server_close()


def failed_run(client, name):
    """A run of the deployment `name`/`name` that failed, without any process."""

    @flow(name=name)
    def nothing():
        pass

    deployment_id = RunnerDeployment.from_flow(nothing, name=name).apply()
    run = client.create_flow_run_from_deployment(deployment_id)
    client.set_flow_run_state(run.id, Failed(message="for the test"), force=True)
    client.request("DELETE", "/deployments/{id}", path_params={"id": deployment_id})
    return run


def test_a_failed_run_of_a_deployment_is_notified_and_others_are_not(client, inbox):
    address, received = inbox
    Webhook(url=address).save("failures", overwrite=True)
    automations.main(["--notify", "webhook/failures"])
    foreign = failed_run(client, "of-another-project")
    run = failed_run(client, "analyse")
    body = wait_for(lambda: received and received[0], "message", seconds=60)
    assert str(run.id) in body
    assert run.name in body
    assert str(foreign.id) not in "".join(received)


RUN_FOR_EVER = """
import sys, time
from prefect import flow
from prefect.runtime import flow_run

@flow(name=sys.argv[1])
def stay():
    print(flow_run.id, flush=True)
    time.sleep(600)

stay()
"""


def test_a_killed_run_is_marked_crashed_and_the_next_one_could_start(
    client, prefect_server, tmp_path
):
    apply(client, dead_runs(silence=timedelta(seconds=10)), dry_run=False)
    script = tmp_path / "stay.py"
    script.write_text(RUN_FOR_EVER)
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), name],
            env=prefect_server,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("train", "of-another-project")
    ]
    ids = []
    for process in processes:
        assert process.stdout is not None
        ids.append(process.stdout.readline().strip())
    ours, foreign = ids
    try:
        wait_for(lambda: heartbeats(client, ours) and heartbeats(client, foreign), "heartbeat")
    finally:
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()

    def crashed():
        state = client.read_flow_run(ours).state
        return state if state.type is StateType.CRASHED else None

    state = wait_for(crashed, "crashed run", seconds=90)
    assert "prefect flow-run retry" in state.message
    assert client.read_flow_run(foreign).state.type is StateType.RUNNING


def heartbeats(client, run_id):
    """How many signs of life of a run the server has."""
    wanted = {
        "event": {"name": ["prefect.flow-run.heartbeat"]},
        "resource": {"id": [f"prefect.flow-run.{run_id}"]},
        "occurred": {"since": "2020-01-01T00:00:00Z"},
    }
    return client.request("POST", "/events/filter", json={"filter": wanted}).json()["total"]
