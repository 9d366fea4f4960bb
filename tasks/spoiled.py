"""When too much of a step or an evaluation failed for outside reasons, it is tried again.

A failed step is a failed task, not a bad step: the spoiled groups are dropped from the store, the
sound ones are kept, and an error that is retryable goes to Prefect.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator

from searchr1.budget import Usage, usage
from searchr1.metrics import search_statistics
from searchr1.policy_errors import PolicyUnavailable
from searchr1.trajectory import SearchRecord, StopReason
from searchr1.trajectory_store import TrajectoryStore

SAMPLING_ERROR_SHARE = 0.1
"""Share of the trajectories that may end in sampling errors."""


def refuse_spoiled(
    store: TrajectoryStore,
    search_outage_share: float,
    only: Collection[str] | None = None,
    on_spoiled: Callable[[Usage], None] | None = None,
) -> None:
    """Look at all groups, or `only` at those of these questions; `on_spoiled` is told what those
    took that are thrown away. Raise SearchOutage when the circuit opened or more than
    `search_outage_share` of the searches failed, or PolicyUnavailable when too many trajectories
    could not be sampled."""
    stop_reasons: Counter[StopReason] = Counter()
    spoiled: list[str] = []

    def searches() -> Iterator[SearchRecord]:
        for group in store.groups(only):
            stop_reasons.update(trajectory.stop_reason for trajectory in group.trajectories)
            if not all(trajectory.valid for trajectory in group.trajectories):
                spoiled.append(group.question.question_id)
            for trajectory in group.trajectories:
                yield from trajectory.searches

    outage = search_statistics(searches()).outage(search_outage_share)
    unsampled = stop_reasons[StopReason.SAMPLING_ERROR]
    if outage is None and unsampled <= SAMPLING_ERROR_SHARE * stop_reasons.total():
        return
    if on_spoiled is not None:
        on_spoiled(usage(store.groups(spoiled)))
    for question_id in spoiled:
        store.discard(question_id)
    raise outage or PolicyUnavailable(
        f"{unsampled} of {stop_reasons.total()} trajectories could not be sampled. The sound "
        "groups are kept; the others are sampled again later."
    )
