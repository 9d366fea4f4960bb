"""`python deployments/serve.py`, with the commands that people type, on a real Prefect server."""

from datetime import UTC, datetime, timedelta

import pytest
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.states import Cancelled, Cancelling

from deployments.catalog import CATALOG
from deployments.serve import deployments
from searchr1.runs import read_jsonl
from tests.deployments.conftest import wait_for


def runs_of(client, name):
    deployment = client.read_deployment_by_name(f"{name}/{name}")
    of_it = DeploymentFilter(id=DeploymentFilterId(any_=[deployment.id]))
    return client.read_flow_runs(deployment_filter=of_it)


def test_every_flow_is_served_under_its_own_name_and_training_one_at_a_time(served, client):
    for name, entry in CATALOG.items():
        deployment = client.read_deployment_by_name(f"{name}/{name}")
        assert deployment.description == entry.description
        assert deployment.tags == list(entry.tags)
        limit = deployment.global_concurrency_limit
        assert (limit.limit if limit else None) == (1 if entry.one_at_a_time else None)
        if entry.one_at_a_time:
            assert deployment.concurrency_options.collision_strategy == "ENQUEUE"
        schema = deployment.parameter_openapi_schema["properties"]
        assert all(parameter.get("description") for parameter in schema.values()), name


def test_prefect_deployment_run_train_search_r1_works_as_typed(served, client, prefect):
    try:
        ended = prefect("deployment", "run", "train-search-r1")
    finally:
        runs = runs_of(client, "train-search-r1")
        for run in runs:  # the test is about the command; what it started would take minutes
            waiting = run.state.type is StateType.SCHEDULED
            client.set_flow_run_state(run.id, Cancelled() if waiting else Cancelling(), force=True)
    assert ended.status == 0, ended.output
    assert "train-search-r1/train-search-r1" in ended.output
    assert len(runs) == 1
    assert str(runs[0].id) in ended.output


def test_parameters_and_watch_work_with_a_bare_name(served, client, prefect):
    ended = prefect("deployment", "run", "prepare-data", "-p", "source=world", "--watch")
    assert ended.status == 0, ended.output
    assert "Completed" in ended.output
    assert (served / "data" / "world" / "manifest.json").exists()
    assert runs_of(client, "prepare-data")[0].parameters == {"source": "world"}


def test_bare_names_are_looked_up_and_unknown_ones_not_found(served, client):
    assert client.read_deployment_by_name("analyse").name == "analyse"
    with pytest.raises(ObjectNotFound):
        client.read_deployment_by_name("no-such-flow")


def test_a_wrong_parameter_is_refused_before_a_run_is_made(served, client):
    deployment = client.read_deployment_by_name("train/train")
    with pytest.raises(PrefectHTTPStatusError) as refused:
        client.create_flow_run_from_deployment(deployment.id, parameters={"max_steps": 0})
    assert "max_steps" in refused.value.response.text
    assert not runs_of(client, "train")


def test_a_schedule_fires(served, client):
    deployment = client.read_deployment_by_name("prepare-data/prepare-data")
    parameters = {"source": "world", "data_dir": str(served / "scheduled")}
    soon = datetime.now(UTC) + timedelta(seconds=10)
    hourly = {"interval": 3600, "anchor_date": soon.isoformat()}
    schedule = {"schedule": hourly, "active": True, "parameters": parameters}
    path = "/deployments/{id}/schedules"
    added = client.request("POST", path, path_params={"id": deployment.id}, json=[schedule])
    client.pause_deployment(deployment.id)
    client.resume_deployment(deployment.id)  # else it may take a minute until Prefect notices

    def fired():
        runs = runs_of(client, "prepare-data")
        return [r for r in runs if r.auto_scheduled and r.state.type is StateType.COMPLETED]

    try:
        runs = wait_for(fired, "completed run of the schedule")
    finally:
        client.delete_deployment_schedule(deployment.id, added.json()[0]["id"])
    assert runs[0].parameters == parameters
    assert (served / "scheduled" / "manifest.json").exists()


def test_a_schedule_that_a_person_added_outlives_a_restart(served, client):
    analyse = client.read_deployment_by_name("analyse/analyse")
    schedule = {"schedule": {"cron": "0 5 1 1 *"}, "active": True}
    path = "/deployments/{id}/schedules"
    client.request("POST", path, path_params={"id": analyse.id}, json=[schedule])
    for deployment in deployments():
        if deployment.name == "analyse":
            deployment.apply()
    again = client.read_deployment(analyse.id)
    assert [one.schedule.cron for one in again.schedules] == ["0 5 1 1 *"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_whole_chain_runs_from_its_deployment(served, client, prefect):
    command = "deployment run train-search-r1 -p profile=local -p max_steps=2 --watch"
    ended = prefect(*command.split(), seconds=880)
    assert ended.status == 0, ended.output
    run = runs_of(client, "train-search-r1")[0]
    assert run.parameters == {"profile": "local", "max_steps": 2}
    (folder,) = (served / "runs").glob("local-*")
    steps = [line["step"] for line in read_jsonl(folder / "ledger.jsonl")]
    assert steps == [0, 1, 2]
