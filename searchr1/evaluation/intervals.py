"""95% intervals: Wilson's for rates, a bootstrap stratified by source for everything else.

The bootstrap resamples questions inside each source, so a source keeps its size, and takes
percentiles. Deviations from the source's mean are scaled by sqrt(n / (n - 1)) first (Rao and Wu
1988, rescaling bootstrap with m = n): resampling 10 questions a source without it gives intervals
5% too narrow (simulated coverage of a macro mean of 7 x 10 questions: 92.4% without, 94.0% with).
It is seeded: the same items always give the same interval.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
_MOST_RESAMPLES, _LEAST_RESAMPLES = 10_000, 1_000
_DRAWS = 20_000_000
"""Question draws a bootstrap: fewer resamples for more questions, where percentiles are steady."""


class Estimate(NamedTuple):
    """A value with the bounds of its 95% interval; all NaN when there is nothing to estimate."""

    value: float
    low: float
    high: float


UNKNOWN = Estimate(math.nan, math.nan, math.nan)


def wilson(successes: int, trials: int) -> Estimate:
    """A rate with Wilson's score interval (`scipy.stats.binomtest`)."""
    if trials == 0:
        return UNKNOWN
    interval = stats.binomtest(successes, trials).proportion_ci(CONFIDENCE, method="wilson")
    return Estimate(successes / trials, float(interval.low), float(interval.high))


def resampled_means(strata: Sequence[np.ndarray], seed: int) -> np.ndarray:
    """Bootstrap distribution of the mean of each stratum: from S arrays [C, Q of the stratum] to
    [S, C, B], the same B resamples for all C columns of a stratum. A stratum of one question has
    no spread to resample and stays at its value."""
    total = sum(stratum.shape[1] for stratum in strata)
    resamples = int(np.clip(_DRAWS // max(total, 1), _LEAST_RESAMPLES, _MOST_RESAMPLES))
    generator = np.random.default_rng(seed)
    means = []
    for stratum in strata:
        columns, size = stratum.shape
        centre = stratum.mean(axis=1, keepdims=True)
        if size < 2:
            means.append(np.broadcast_to(centre, (columns, resamples)))
            continue
        rescaled = centre + (stratum - centre) * math.sqrt(size / (size - 1))
        result = stats.bootstrap(
            (rescaled,),
            np.mean,
            axis=-1,
            vectorized=True,
            n_resamples=resamples,
            batch=max(1, 4_000_000 // (columns * size)),
            method="percentile",
            rng=generator,
        )
        means.append(result.bootstrap_distribution)
    return np.stack(means)


def percentile_interval(value: float, distribution: np.ndarray) -> Estimate:
    """`value` with the central 95% of its bootstrap distribution [B]."""
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(distribution, [tail, 100 - tail])
    # Sums in another order differ in the last bit, which must not put a bound past the value.
    return Estimate(float(value), min(float(low), float(value)), max(float(high), float(value)))


def grouped(values: Mapping[str, np.ndarray], sources: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Per source, sorted by name, the values of its questions as one array [C, Q]. Questions are
    sorted by id, so that the order of the items changes no interval."""
    strata: dict[str, list[np.ndarray]] = {}
    for question_id in sorted(values):
        strata.setdefault(sources[question_id], []).append(values[question_id])
    return {source: np.stack(rows, axis=1) for source, rows in sorted(strata.items())}
