"""How numbers are written for a person: one way, in table, page and artifact."""

import math

from searchr1.evaluation import Estimate


def percent(value: float, digits: int = 1) -> str:
    """A share as percent, without the sign; a dash when unknown."""
    return f"{100 * value:.{digits}f}" if math.isfinite(value) else "-"


def percent_interval(estimate: Estimate) -> str:
    """`50.0 [38, 62]`, in percent."""
    if not math.isfinite(estimate.value):
        return "-"
    return f"{percent(estimate.value)} [{percent(estimate.low, 0)}, {percent(estimate.high, 0)}]"


def points_interval(estimate: Estimate) -> str:
    """`+5.7 [-4, +16]`, a difference in percentage points."""
    if not math.isfinite(estimate.value):
        return "-"
    value, low, high = (100 * bound for bound in estimate)
    return f"{value:+.1f} [{low:+.0f}, {high:+.0f}]"


def number(value: float, digits: int = 2) -> str:
    """A plain number; a dash when unknown."""
    return f"{value:,.{digits}f}" if math.isfinite(value) else "-"
