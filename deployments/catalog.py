"""The deployments by name: what `serve.py`, `automations.py` and the root `prefect.yaml` agree on.

A deployment and its flow have the same name. A test holds `prefect.yaml` to this list.
"""

from typing import NamedTuple

HEARTBEAT_SECONDS = 30
"""Between a flow run's signs of life; the shortest time that Prefect allows."""


class Entry(NamedTuple):
    """What people read of a deployment, and how many of its runs may go at once."""

    description: str
    tags: tuple[str, ...]
    one_at_a_time: bool = False
    """Further runs wait until the one before has ended."""


CATALOG = {
    "train-search-r1": Entry(
        "The whole chain: prepare the data, train, evaluate base and checkpoints, analyse.",
        ("searchr1", "training"),
        one_at_a_time=True,
    ),
    "prepare-data": Entry("Prepare questions and corpus.", ("searchr1", "data")),
    "train": Entry(
        "Teach a policy to search; a run of the same name goes on where it stopped.",
        ("searchr1", "training"),
        one_at_a_time=True,
    ),
    "eval": Entry(
        "Evaluate the base model and checkpoints of a run on the same questions.",
        ("searchr1", "evaluation"),
    ),
    "analyse": Entry(
        "Load every run into the warehouse and write the report of one.", ("searchr1", "analysis")
    ),
}
