"""When too much of a step or an evaluation failed for outside reasons, it is tried again.

A failed step is a failed task, not a bad step: the spoiled groups are dropped from the store, the
sound ones are kept, and an error that is retryable goes to Prefect.
"""

from collections.abc import Collection

from searchr1.metrics import search_statistics
from searchr1.policy_errors import PolicyUnavailable
from searchr1.trajectory import StopReason
from searchr1.trajectory_store import TrajectoryStore

SAMPLING_ERROR_SHARE = 0.1
"""Share of the trajectories that may end in sampling errors."""


def refuse_spoiled(
    store: TrajectoryStore, search_outage_share: float, only: Collection[str] | None = None
) -> None:
    """Look at all groups, or `only` at those of these questions. Raise SearchOutage when the
    circuit opened or more than `search_outage_share` of the searches failed, or PolicyUnavailable
    when too many trajectories could not be sampled."""
    groups = store.read(only)
    everything = [t for group in groups.values() for t in group.trajectories]
    outage = search_statistics(s for t in everything for s in t.searches).outage(
        search_outage_share
    )
    unsampled = sum(t.stop_reason is StopReason.SAMPLING_ERROR for t in everything)
    if outage is None and unsampled <= SAMPLING_ERROR_SHARE * len(everything):
        return
    for question_id, group in groups.items():
        if not all(trajectory.valid for trajectory in group.trajectories):
            store.discard(question_id)
    raise outage or PolicyUnavailable(
        f"{unsampled} of {len(everything)} trajectories could not be sampled. The sound groups "
        "are kept; the others are sampled again later."
    )
