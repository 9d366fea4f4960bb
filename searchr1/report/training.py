"""The training curves of a run: which charts there are, and their data from the warehouse."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import duckdb


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart over steps."""

    name: str
    """File name of the figure."""
    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]
    """(label, metric name); lines whose metric no step recorded are left out."""
    help: str
    """How to read it."""
    stacked: bool = False
    share: bool = False
    """All values lie between 0 and 1."""


CHARTS = (
    Chart(
        "training_reward",
        "Reward",
        "mean over trajectories",
        (("reward", "reward/mean"), ("with environment errors", "reward/mean_all")),
        "What training maximises: 1 right, 0 wrong, -0.1 malformed. A gap between the two lines is "
        "the environment, not the policy.",
    ),
    Chart(
        "training_correct_and_format",
        "Right answers and format",
        "share",
        (("right", "reward/correct"), ("well-formed", "reward/format")),
        "Format does not depend on search and rises first; right answers follow.",
        share=True,
    ),
    Chart(
        "training_searches",
        "Searches and turns",
        "a trajectory",
        (("searches", "rollout/search_calls"), ("turns", "rollout/turns")),
        "Fewer searches are not better in themselves; a drop to zero, or to the limit, is a sign "
        "of collapse.",
    ),
    Chart(
        "training_degenerate_groups",
        "Groups without gradient",
        "share",
        (
            ("all right", "rollout/all_right_group_rate"),
            ("all wrong", "rollout/all_wrong_group_rate"),
        ),
        "Together: the share of groups that teach nothing. All right: the questions are too easy "
        "by now. All wrong: too hard, or something broke.",
        stacked=True,
        share=True,
    ),
    Chart(
        "training_environment",
        "Right answers beside search errors",
        "share",
        (
            ("right", "reward/correct"),
            ("search errors", "search/error_rate"),
            ("trajectories lost to them", "rollout/environment_error_rate"),
        ),
        "If right answers fall while search errors rise, suspect the environment first.",
        share=True,
    ),
    Chart(
        "training_drift",
        "Distance from the sampling policy",
        "per token",
        (
            ("mean |change of logprob|", "trainer/logprob_drift"),
            ("KL", "trainer/kl"),
            ("KL (k1)", "trainer/kl_sample_train_v1"),
            ("KL (k2)", "trainer/kl_sample_train_v2"),
        ),
        "Should stay small and flat; a steady climb comes before a collapse.",
    ),
    Chart(
        "training_logprob",
        "Logprob of drawn tokens",
        "mean per token",
        (("all", "rollout/mean_logprob"), ("right answers", "rollout/mean_logprob_right")),
        "Minus this is an estimate of the entropy. Right answers that become less likely come "
        "before a collapse; a value that runs to 0 has little left to explore.",
    ),
    Chart(
        "training_gradient",
        "Gradient norm",
        "",
        (("gradient norm", "trainer/grad_norm"),),
        "Spikes and values that are not finite come before a collapse.",
    ),
    Chart(
        "training_time",
        "Time of a step",
        "seconds",
        (
            ("rollout without search", "rollout_rest"),
            ("search", "time/search_seconds"),
            ("update", "time/update_seconds"),
            ("save", "time/save_seconds"),
        ),
        "Search time is what the rollout waited for the search service on the slowest path; it is "
        "part of the rollout.",
        stacked=True,
    ),
    Chart(
        "training_cost",
        "Money spent",
        "US dollars, so far",
        (("total", "cost/total_usd"),),
        "As the prices in the settings have it.",
    ),
)


@dataclass(frozen=True, slots=True)
class Training:
    """Metrics by step."""

    steps: tuple[int, ...]
    metrics: dict[str, tuple[float | None, ...]]
    """Metric name to its values, aligned with `steps`; None where a step has none."""
    warnings: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Step to the names of the watchdog's warnings at it."""

    def lines(self, chart: Chart) -> dict[str, Sequence[float | None]]:
        """Label to values of the lines of `chart` that have any value."""
        found = {label: self.metrics.get(metric) for label, metric in chart.lines}
        return {
            label: values
            for label, values in found.items()
            if values is not None and any(value is not None for value in values)
        }


def read_training(connection: duckdb.DuckDBPyConnection, run: str) -> Training:
    """Metrics of all steps after step 0."""
    rows = connection.execute(
        "SELECT step, metrics FROM steps WHERE run = $run AND step > 0 ORDER BY step", {"run": run}
    ).fetchall()
    steps = tuple(step for step, _ in rows)
    by_step = [_with_rest(metrics or {}) for _, metrics in rows]
    names = sorted({name for metrics in by_step for name in metrics})
    warnings = {
        step: tuple(sorted(n for n, v in metrics.items() if n.startswith("watchdog/") and v))
        for step, metrics in zip(steps, by_step, strict=True)
    }
    return Training(
        steps=steps,
        metrics={name: tuple(metrics.get(name) for metrics in by_step) for name in names},
        warnings={step: found for step, found in warnings.items() if found},
    )


def _with_rest(metrics: dict[str, float]) -> dict[str, float]:
    """Search is part of the rollout; the chart stacks what remains of it beside the search."""
    rollout, search = metrics.get("time/rollout_seconds"), metrics.get("time/search_seconds")
    if rollout is None:
        return metrics
    return {**metrics, "rollout_rest": max(0.0, rollout - (search or 0.0))}
