"""The health of the search environment over a period: a step, or an evaluation.

Numbers are always of the period, never cumulative. A rate is a share of the period's searches;
latency is that of searches which asked the service themselves (hits and joins take no time).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from searchr1.search.base import Fault, SearchErrorKind, SearchOutage, SearchResult

_OUTAGE_MINIMUM = 10
"""Searches below which a share of failures says nothing."""


@dataclass(frozen=True, slots=True)
class SearchStatistics:
    """Counts and sums over the searches of a period."""

    searches: int = 0
    success: int = 0
    empty: int = 0
    """Successful, with no items."""
    cache_hits: int = 0
    joins: int = 0
    """Searches that shared the answer of an identical one in flight."""
    requests: int = 0
    """Requests sent to the service, retries included."""
    met_429: int = 0
    """Searches of which at least one request was answered with "too many"."""
    met_timeout: int = 0
    """Searches of which at least one request had no answer in time."""
    items: int = 0
    characters: int = 0
    """Of titles and texts."""
    dropped: int = 0
    """Rows of answers that held no text."""
    cost: float = 0.0
    """US dollars."""
    waited: float = 0.0
    """Seconds spent on our own limits, summed over searches."""
    errors: dict[SearchErrorKind, int] = field(default_factory=dict)
    latency_mean: float = 0.0
    latency_p50: float = 0.0
    latency_p95: float = 0.0
    latency_max: float = 0.0
    """Seconds."""

    @property
    def failed(self) -> int:
        """Searches that failed for the environment's sake."""
        return sum(count for kind, count in self.errors.items() if kind.fault is not Fault.POLICY)

    def metrics(self) -> dict[str, float]:
        """For SwanLab and the step's record: the seed's names first, then ours."""
        if not self.searches:
            return {"search/searches": 0.0}
        searches, answers = self.searches, max(self.success, 1)
        metrics = {
            "search/success_rate": self.success / searches,
            "search/error_rate": (searches - self.success) / searches,
            "search/429_rate": self.met_429 / searches,
            "search/timeout_rate": self.met_timeout / searches,
            "search/latency": self.latency_mean,
            "search/results": self.items / answers,
            "search/searches": float(searches),
            "search/requests": float(self.requests),
            "search/environment_error_rate": self.failed / searches,
            "search/cache_hit_rate": self.cache_hits / searches,
            "search/join_rate": self.joins / searches,
            "search/empty_rate": self.empty / searches,
            "search/latency_p50": self.latency_p50,
            "search/latency_p95": self.latency_p95,
            "search/latency_max": self.latency_max,
            "search/waited": self.waited / searches,
            "search/characters": self.characters / answers,
            "search/dropped_rows": float(self.dropped),
            "search/cost_usd": self.cost,
        }
        for kind, count in self.errors.items():
            metrics[f"search/errors/{kind}"] = float(count)
        return metrics

    def outage(self, max_share: float) -> SearchOutage | None:
        """The error to raise if the searches of this period are not fit to be learned from: the
        circuit opened, or more than `max_share` of at least 10 searches failed."""
        opened = self.errors.get(SearchErrorKind.CIRCUIT_OPEN, 0) > 0
        many = self.searches >= _OUTAGE_MINIMUM and self.failed > max_share * self.searches
        if not (opened or many):
            return None
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.errors.items()))
        return SearchOutage(
            f"{self.failed} of {self.searches} searches failed ({kinds}). The search environment "
            "is not fit to train or evaluate on; finished groups are kept, and the rest is tried "
            "again later."
        )


class SearchMeter:
    """Collects results; `take` gives the statistics since the last `take`."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._totals: defaultdict[str, float] = defaultdict(int)
        self._errors: Counter[SearchErrorKind] = Counter()
        self._latencies: list[float] = []

    def record(self, result: SearchResult) -> None:
        """Count one search."""
        characters = sum(len(item.title) + len(item.text) for item in result.items)
        for name, amount in (
            ("searches", 1),
            ("success", result.ok),
            ("empty", result.ok and not result.items),
            ("cache_hits", result.cached),
            ("joins", result.joined),
            ("requests", result.requests),
            ("met_429", result.rate_limited > 0),
            ("met_timeout", result.timeouts > 0),
            ("items", len(result.items)),
            ("characters", characters),
            ("dropped", result.dropped),
            ("cost", result.cost),
            ("waited", result.waited),
        ):
            self._totals[name] += amount
        if result.error is not None:
            self._errors[result.error] += 1
        if result.requests or (result.ok and not result.cached and not result.joined):
            self._latencies.append(result.seconds)

    def take(self) -> SearchStatistics:
        """Statistics of the period that ends now; the next one begins."""
        totals: dict[str, Any] = dict(self._totals)
        latencies = sorted(self._latencies)
        statistics = SearchStatistics(
            **totals,
            errors=dict(self._errors),
            latency_mean=sum(latencies) / len(latencies) if latencies else 0.0,
            latency_p50=_quantile(latencies, 0.5),
            latency_p95=_quantile(latencies, 0.95),
            latency_max=latencies[-1] if latencies else 0.0,
        )
        self._begin()
        return statistics


def summarise(results: Iterable[SearchResult]) -> SearchStatistics:
    """The statistics of these searches."""
    meter = SearchMeter()
    for result in results:
        meter.record(result)
    return meter.take()


def _quantile(ordered: list[float], share: float) -> float:
    """Nearest-rank quantile of an ascending list; 0 of an empty one."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else 0.0
