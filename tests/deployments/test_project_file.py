"""The root `prefect.yaml`: what it says, and that Prefect deploys and works from it."""

import shutil

import pytest
import yaml

from deployments.catalog import CATALOG, HEARTBEAT_SECONDS
from tests.deployments.conftest import ROOT, running

PROJECT = yaml.safe_load((ROOT / "prefect.yaml").read_text("utf-8"))
DEPLOYMENTS = {deployment["name"]: deployment for deployment in PROJECT["deployments"]}


def test_it_deploys_what_the_catalogue_lists():
    assert list(DEPLOYMENTS) == list(CATALOG)
    for name, entry in CATALOG.items():
        assert DEPLOYMENTS[name]["description"] == entry.description
        assert DEPLOYMENTS[name]["tags"] == list(entry.tags)
        limit = DEPLOYMENTS[name].get("concurrency_limit")
        expected = {"limit": 1, "collision_strategy": "ENQUEUE"} if entry.one_at_a_time else None
        assert limit == expected


def test_schedules_are_there_and_switched_off():
    schedules = [s for d in DEPLOYMENTS.values() for s in d.get("schedules", ())]
    assert schedules
    assert all(schedule["active"] is False for schedule in schedules)
    assert all(schedule["slug"] for schedule in schedules)  # without, deploying again deletes it


def test_runs_give_signs_of_life_as_often_as_the_automation_expects():
    for deployment in DEPLOYMENTS.values():
        environment = deployment["work_pool"]["job_variables"]["env"]
        assert environment["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == str(HEARTBEAT_SECONDS)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_deploy_all_and_a_worker_run_the_flows(
    prefect_server, client, no_deployments, prefect, tmp_path
):
    folder = tmp_path / "project"
    for name in ("flows", "tasks", "deployments"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("prefect.yaml", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)

    made = prefect("work-pool", "create", "searchr1", "--type", "process", "--overwrite")
    assert made.status == 0, made.output
    deployed = prefect("--no-prompt", "deploy", "--all", cwd=folder)
    assert deployed.status == 0, deployed.output
    for name, entry in CATALOG.items():
        deployment = client.read_deployment_by_name(f"{name}/{name}")
        assert deployment.work_pool_name == "searchr1"
        assert not any(schedule.active for schedule in deployment.schedules)
        limit = deployment.global_concurrency_limit
        assert (limit.limit if limit else None) == (1 if entry.one_at_a_time else None)

    worker = ["prefect", "worker", "start", "--pool", "searchr1"]
    for _ in running(worker, prefect_server, tmp_path):
        command = "deployment run prepare-data -p source=world --watch"
        ended = prefect(*command.split(), cwd=folder)
        assert ended.status == 0, ended.output
    assert (folder / "data" / "world" / "manifest.json").exists()
