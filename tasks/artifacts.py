"""What a training shows of itself in the Prefect UI: progress, and a table of the last steps."""

from uuid import UUID

from prefect.artifacts import (
    acreate_progress_artifact,
    acreate_table_artifact,
    aupdate_progress_artifact,
)

from searchr1.runs import StepRecord

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


def _row(record: StepRecord) -> dict[str, object]:
    values = {title: round(record.metrics.get(metric, 0.0), 3) for title, metric in COLUMNS.items()}
    return {"step": record.step, **values, "checkpoint": record.checkpoint or ""}


def artifact_key(what: str, run_name: str) -> str:
    """An artifact's key may hold lower-case letters, digits and dashes only."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in run_name.lower())
    return f"{what}-{plain.strip('-')}"
