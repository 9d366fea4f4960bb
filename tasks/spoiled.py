"""When too much of a step or an evaluation failed for outside reasons, it is tried again.

A failed step is a failed task, not a bad step: the spoiled groups are dropped from the store, the
sound ones are kept, and an error that is retryable goes to Prefect.
"""

from searchr1.policy_errors import PolicyUnavailable
from searchr1.search import SearchOutage
from searchr1.trajectory import StopReason
from searchr1.trajectory_store import TrajectoryStore

SAMPLING_ERROR_SHARE = 0.1
"""Share of the trajectories that may end in sampling errors."""
FEWEST_SEARCHES = 10
"""With fewer searches a share says too little."""


def refuse_spoiled(store: TrajectoryStore, search_outage_share: float) -> None:
    """Raise SearchOutage when more than `search_outage_share` of the searches failed, or
    PolicyUnavailable when too many trajectories could not be sampled."""
    groups = store.read()
    everything = [t for group in groups.values() for t in group.trajectories]
    searches = sum(len(t.searches) for t in everything)
    failed = sum(t.stop_reason is StopReason.ENVIRONMENT_ERROR for t in everything)
    unsampled = sum(t.stop_reason is StopReason.SAMPLING_ERROR for t in everything)
    outage = searches >= FEWEST_SEARCHES and failed > search_outage_share * searches
    unsound = unsampled > SAMPLING_ERROR_SHARE * len(everything)
    if not outage and not unsound:
        return
    for question_id, group in groups.items():
        if not all(trajectory.valid for trajectory in group.trajectories):
            store.discard(question_id)
    kept = "The sound groups are kept; the others are sampled again later."
    if outage:
        raise SearchOutage(
            f"{failed} of {searches} searches failed for reasons outside of the policy. {kept}"
        )
    raise PolicyUnavailable(
        f"{unsampled} of {len(everything)} trajectories could not be sampled. {kept}"
    )
