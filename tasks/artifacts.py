"""What a training shows of itself in the Prefect UI: progress, the last steps, a summary.

They are a convenience: while the server is away, nothing is shown and the training goes on.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import httpx
from prefect import get_run_logger
from prefect.artifacts import (
    acreate_markdown_artifact,
    acreate_progress_artifact,
    acreate_table_artifact,
    aupdate_progress_artifact,
)

from searchr1.budget import dollars, spent
from searchr1.runs import Run, StepRecord

LAST_STEPS = 10
COLUMNS = {
    "reward": "reward/mean",
    "right": "reward/correct",
    "format": "reward/format",
    "searches": "rollout/search_calls",
    "degenerate groups": "rollout/degenerate_group_rate",
    "search errors": "search/error_rate",
    "seconds": "time/step_seconds",
    "spent USD": "cost/spent_usd",
}


class TrainingArtifacts:
    """The artifacts of one flow run."""

    def __init__(self, run_name: str, max_steps: int) -> None:
        self._run_name = run_name
        self._max_steps = max_steps
        self._progress: UUID | None = None

    async def show(self, ledger: dict[int, StepRecord]) -> None:
        """Bring progress and table to the last step in the ledger."""
        with _dispensable():
            await self._show(ledger)

    async def _show(self, ledger: dict[int, StepRecord]) -> None:
        last = max(ledger, default=0)
        percent = 100.0 * min(1.0, last / self._max_steps)
        if self._progress is None:
            self._progress = await acreate_progress_artifact(
                percent,
                key=artifact_key("progress", self._run_name),
                description=f"steps of run {self._run_name}",
            )
        else:
            await aupdate_progress_artifact(self._progress, percent)
        rows = [_row(ledger[step]) for step in sorted(ledger)[-LAST_STEPS:] if step]
        if rows:
            await acreate_table_artifact(
                rows,
                key=artifact_key("steps", self._run_name),
                description=f"the last steps of run {self._run_name}",
            )


async def training_summary(run: Run, max_steps: int) -> None:
    """A markdown artifact: where the run stands, its checkpoints, and where to look on."""
    text = await asyncio.to_thread(summary_text, run, max_steps)
    with _dispensable():
        await acreate_markdown_artifact(text, key=artifact_key("summary", run.name))


@contextmanager
def _dispensable() -> Iterator[None]:
    try:
        yield
    except httpx.HTTPError as error:  # Prefect's own errors of its API are of this kind, too
        get_run_logger().warning(
            "Prefect did not take an artifact (%s); the run goes on", type(error).__name__
        )


def summary_text(run: Run, max_steps: int) -> str:
    """Where a run stands, as markdown with links."""
    ledger = run.ledger()
    steps = [ledger[step] for step in sorted(ledger) if step]
    folder = run.directory.resolve()
    lines = [f"# Run {run.name}", ""]
    if steps:
        first, last = steps[0], steps[-1]
        lines += [
            f"Step {last.step} of {max_steps}: right answers "
            f"{first.metrics['reward/correct']:.0%} in step {first.step}, "
            f"{last.metrics['reward/correct']:.0%} in step {last.step}; spent "
            f"{dollars(spent(step.metrics for step in steps).total)}. Batches differ: the "
            "evaluation of the checkpoints says what was learned.",
            "",
            "| checkpoint | sampler weights | finished |",
            "|---|---|---|",
        ]
        lines += [
            f"| {name} | `{record.sampler_weights}` | {record.time} |"
            for name, record in run.checkpoints().items()
        ]
    lines += [
        "",
        f"- [Report]({(folder / 'report' / 'index.html').as_uri()}), after `python "
        f"flows/analyse_flow.py --run {run.name}`",
        f"- [Ledger]({(folder / 'ledger.jsonl').as_uri()})",
        f"- Evaluate: `python flows/eval_flow.py --run {run.name}`",
    ]
    return "\n".join(lines) + "\n"


def _row(record: StepRecord) -> dict[str, object]:
    values = {title: round(record.metrics.get(metric, 0.0), 3) for title, metric in COLUMNS.items()}
    return {"step": record.step, **values, "checkpoint": record.checkpoint or ""}


def artifact_key(what: str, run_name: str) -> str:
    """An artifact's key may hold lower-case letters, digits and dashes only."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in run_name.lower())
    return f"{what}-{plain.strip('-')}"
