"""Serve all flows from this machine: python deployments/serve.py

One process registers the deployments with the Prefect server, watches for their runs and starts
each in a process of its own. Every deployment is named like its flow. At most one run of a
training deployment goes at a time; others wait their turn.
"""

import sys
from typing import Any

import tasks  # noqa: F401  (settles Prefect's environment before Prefect is imported)

# isort: split
from flows.analyse_flow import analyse
from flows.eval_flow import evaluate_checkpoints
from flows.prepare_flow import prepare_data
from flows.train_flow import train
from flows.train_search_r1 import train_search_r1

from prefect import Flow, serve
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import RunnerDeployment

from deployments.catalog import CATALOG, HEARTBEAT_SECONDS, Entry
from deployments.server import require_server

FLOWS: tuple[Flow[..., Any], ...] = (
    train_search_r1,
    prepare_data,
    train,
    evaluate_checkpoints,
    analyse,
)
ONE_AT_A_TIME = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE)


def deployments() -> list[RunnerDeployment]:
    """A deployment of each flow, named like it, with what the catalogue says of it."""
    return [_deployment(flow, CATALOG[flow.name]) for flow in FLOWS]


def _deployment(flow: Flow[..., Any], entry: Entry) -> RunnerDeployment:
    deployment = RunnerDeployment.from_flow(
        flow,
        name=flow.name,
        description=entry.description,
        tags=list(entry.tags),
        concurrency_limit=ONE_AT_A_TIME if entry.one_at_a_time else None,
    )
    # Prefect counts the empty list as set by us, and would delete the schedules that a person
    # gave the deployment whenever this program starts again.
    deployment.model_fields_set.discard("schedules")
    return deployment


def main() -> None:
    ui = require_server()
    served = deployments()
    width = max(len(deployment.name) for deployment in served)
    print("Serving these deployments from this machine until Ctrl-C:\n")
    for deployment in served:
        print(f"  {deployment.name:{width}}  {deployment.description}")
    print(
        "\nStart a run, in the project's folder of another terminal:\n"
        "  prefect deployment run train-search-r1 -p profile=local -p max_steps=20 --watch\n"
        f"or in the UI: {ui}/deployments\n"
        "Elsewhere type the name in full: train-search-r1/train-search-r1\n"
    )
    sys.stdout.flush()
    serve(*served, print_starting_message=False, heartbeat_seconds=HEARTBEAT_SECONDS)


if __name__ == "__main__":
    main()
