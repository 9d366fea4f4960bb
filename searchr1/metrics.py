"""Metrics of one step, with the seed's names. Pure functions of the step's trajectories.

A rate or mean is over the trajectories that say something about the policy (`valid`), unless its
name says otherwise; `reward/mean_all` shows what the mean would have been with the others in.
Search metrics are of this step alone, never cumulative.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from searchr1.advantage import GroupOutcome, group_advantages
from searchr1.datum import Batch, trajectory_rewards
from searchr1.protocol import TurnKind
from searchr1.search.base import SearchErrorKind, SearchResult
from searchr1.search.statistics import SearchStatistics, summarise
from searchr1.trajectory import Group, SearchRecord, StopReason, Trajectory


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Metrics of a step's groups."""
    everything = [trajectory for group in groups for trajectory in group.trajectories]
    valid = [trajectory for trajectory in everything if trajectory.valid]
    outcomes = Counter(group_advantages(trajectory_rewards(group)).outcome for group in groups)
    reasons = Counter(trajectory.stop_reason for trajectory in everything)
    by_source: dict[str, list[float]] = defaultdict(list)
    for trajectory in valid:
        by_source[trajectory.question.source].append(trajectory.reward)
    turns = [turn for trajectory in valid for turn in trajectory.turns]
    called = [turn for turn in turns if turn.kind != TurnKind.ANSWER]
    metrics = {
        "reward/mean": _mean([t.reward for t in valid]),
        "reward/mean_all": _mean([t.reward for t in everything]),
        "reward/correct": _mean([float(t.em) for t in valid]),
        "reward/format": _mean([float(t.valid_format) for t in valid]),
        "rollout/turns": _mean([len(t.turns) for t in valid]),
        "rollout/search_calls": _mean([len(t.searches) for t in valid]),
        "rollout/no_search_rate": _mean([float(not t.searches) for t in valid]),
        "rollout/trajectory_tokens": _mean([len(t.tokens) for t in valid]),
        "rollout/valid_tool_call_rate": _mean([float(t.kind == TurnKind.CALL) for t in called]),
        "rollout/degenerate_group_rate": 1 - outcomes[GroupOutcome.MIXED] / max(1, len(groups)),
        "rollout/all_right_group_rate": outcomes[GroupOutcome.ALL_RIGHT] / max(1, len(groups)),
        "rollout/all_wrong_group_rate": outcomes[GroupOutcome.ALL_WRONG] / max(1, len(groups)),
    }
    metrics |= _likelihood("rollout/mean_logprob", valid)
    metrics |= _likelihood("rollout/mean_logprob_right", [t for t in valid if t.em])
    for source, rewards in sorted(by_source.items()):
        metrics[f"reward/{source}"] = _mean(rewards)
    for reason in StopReason:
        metrics[f"rollout/{reason}_rate"] = reasons[reason] / max(1, len(everything))
    searches = [search for trajectory in everything for search in trajectory.searches]
    # Trajectories run beside each other: the step waits for the one that searched longest.
    metrics["time/search_seconds"] = max(
        (sum(search.seconds for search in t.searches) for t in everything), default=0.0
    )
    return metrics | search_statistics(searches).metrics()


def _likelihood(name: str, trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Mean logprob of the drawn tokens, nats a token, as metric `name`; nothing where nothing was
    drawn, since 0 would say that the policy was certain. Of all valid trajectories, drawn at
    temperature 1, minus this mean estimates the policy's entropy."""
    drawn = [
        logprob
        for trajectory in trajectories
        for logprob, own in zip(trajectory.logprobs, trajectory.loss_mask, strict=True)
        if own
    ]
    return {name: _mean(drawn)} if drawn else {}


def search_statistics(searches: Iterable[SearchRecord]) -> SearchStatistics:
    """How the search environment did, from the searches that trajectories made."""
    return summarise(
        SearchResult(
            ok=search.ok,
            items=search.items,
            error=SearchErrorKind(search.error) if search.error else None,
            seconds=search.seconds,
            cached=search.cached,
            joined=search.joined,
            cost=search.cost,
            requests=search.requests,
            rate_limited=search.rate_limited,
            timeouts=search.timeouts,
            waited=search.waited,
            dropped=search.dropped,
        )
        for search in searches
    )


def batch_metrics(batch: Batch) -> dict[str, float]:
    """What an update trains on. All datums go out in one call, so there is one micro-batch (the
    SDK splits it to the service's limits); padded tokens are what it would take to bring every
    datum to the length of the longest."""
    longest = max((len(datum.input_tokens) for datum in batch.datums), default=0)
    metrics = {
        "train/datums_per_rollout_batch": float(len(batch.datums)),
        "train/micro_batches_per_step": float(bool(batch.datums)),
        "train/tokens_per_rollout_batch": float(batch.tokens),
        "train/loss_tokens_per_rollout_batch": float(batch.loss_tokens),
        "train/padded_tokens_per_rollout_batch": float(longest * len(batch.datums)),
        "train/update_skipped": float(not batch.datums),
    }
    return metrics | {f"train/trajectories_{fate}": float(n) for fate, n in batch.fates.items()}
