"""`python -m searchr1.runs list | show NAME | checkpoints NAME`: runs for a person.

Only reads, and only what is written whole, so it may be used while a run is at work and after any
crash. Tables fit 80 columns; whatever a person may want to copy (URIs, paths) is never broken.
Wrong names end with status 2.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from searchr1.budget import dollars, spent
from searchr1.config import TrainSettings, resolve
from searchr1.errors import SearchR1Error, SettingsError
from searchr1.runs import Run, StepRecord
from searchr1.watchdog import CollapseWarning, WarningKind, all_warnings

LAST_STEPS = 10
"""Steps that `show` prints."""
_ELSEWHERE = frozenset({"profile", "run_name", "runs_dir"})
"""Settings that `show` does not list as changed: they say who and where, not how."""
DAMAGE = (ValueError, KeyError, TypeError)
"""What reading a damaged run.json or ledger raises."""

app = App(name="python -m searchr1.runs", help="Print the runs of a folder.", version_flags=[])
RunsDir = Annotated[Path, Parameter(help="Folder of all runs.")]
Name = Annotated[str, Parameter(help="Name of the run.")]


@app.command(name="list")
def list_command(*, runs_dir: RunsDir = Path("runs")) -> None:
    """All runs: how far they are, what they earn, what they cost."""
    found = [_summary(file) for file in runs_dir.glob("*/run.json")]
    if not found:
        print(f"There is no run in {runs_dir} yet. Train one first: python flows/train_flow.py")
        return
    table = _table("name", "created", ">steps", ">reward", ">checkpoints", ">cost")
    for row in sorted(found, key=lambda row: row[1]):
        table.add_row(*map(Text, row))
    Console().print(table)


@app.command
def show(name: Name, /, *, runs_dir: RunsDir = Path("runs")) -> None:
    """One run: settings, progress, last steps, money, warnings, and where it lies."""
    with _errors_for_a_person(name):
        run = Run.open(runs_dir, name)
        records = _steps(run)
        changed = changed_settings(run.settings)
        kept = run.checkpoints()
    console = Console()
    _heading(console, f"run {run.name}")
    profile = run.settings.get("profile", "?")
    console.print(
        Text(f"id {run.run_id}, profile {profile}, begun {run.description['created_at']}")
    )
    _heading(console, "settings that differ from the profile's")
    if not changed:
        console.print("none")
    table = _table("setting", "value", "profile's")
    for setting, (value, usual) in changed.items():
        table.add_row(*map(Text, (setting, value, usual)))
    if changed:
        console.print(table)
    _heading(console, "progress")
    console.print(Text(_progress(run, records)))
    console.print(Text(f"checkpoints: {', '.join(kept) or 'none yet'}"))
    if records:
        found = list(all_warnings({record.step: record.metrics for record in records}))
        _print_steps(console, records[-LAST_STEPS:], {warning.step for warning in found})
        _print_money(console, records, run.evaluations())
        _print_warnings(console, found)
    _heading(console, "where it lies")
    for place in ("ledger.jsonl", "trajectories", "evaluations", "report/index.html"):
        if (run.directory / place).exists():
            console.print(Text(str(run.directory / place)), soft_wrap=True)


@app.command
def checkpoints(name: Name, /, *, runs_dir: RunsDir = Path("runs")) -> None:
    """The kept checkpoints of a run, with the URIs of their weights."""
    with _errors_for_a_person(name):
        kept = Run.open(runs_dir, name).checkpoints()
    if not kept:
        print(f"Run '{name}' has no checkpoint yet.")
        return
    console = Console()
    table = _table("name", ">step", ">reward", ">state size", "time (UTC)", "digest")
    for label, record in kept.items():
        table.add_row(
            label,
            str(record.step),
            _number(record.metrics, "reward/mean", "{:.2f}"),
            _size(record.state_size),
            _minute(record.time),
            record.digest,
        )
    console.print(table)
    for label, record in kept.items():
        console.print()
        console.print(Text(f"{label} state    {record.state}"), soft_wrap=True)
        console.print(Text(f"{label} sampler  {record.sampler_weights}"), soft_wrap=True)


def changed_settings(settings: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Settings that are not what the run's profile sets, as (value, the profile's value)."""
    try:
        usual = resolve(TrainSettings, {"profile": settings.get("profile")}).model_dump(mode="json")
    except SettingsError:  # a profile that is no more
        usual = {}
    return {
        name: (str(value), str(usual.get(name, "")))
        for name, value in settings.items()
        if name not in _ELSEWHERE and (name not in usual or usual[name] != value)
    }


@contextmanager
def _errors_for_a_person(name: str) -> Iterator[None]:
    """End with a message and status 2 on a wrong name or a damaged run."""
    try:
        yield
    except SearchR1Error as error:
        print(f"Error: {error}", file=sys.stderr)
    except DAMAGE as error:
        print(
            f"Error: run '{name}' cannot be read, its run.json or ledger.jsonl is damaged: {error}",
            file=sys.stderr,
        )
    else:
        return
    raise SystemExit(2)


def _steps(run: Run) -> list[StepRecord]:
    """Records of finished steps in order, without step 0."""
    return [record for step, record in sorted(run.ledger().items()) if step]


def _summary(file: Path) -> tuple[str, ...]:
    """A row of `list`. One damaged run does not hide the others."""
    name = file.parent.name
    try:
        run = Run.open(file.parent.parent, name)
        created, records = _minute(run.description["created_at"]), _steps(run)
        kept = list(run.checkpoints())
        done, most = records[-1].step if records else 0, run.settings.get("max_steps", "?")
    except DAMAGE:
        return name, "", "damaged", "", "", ""
    return (
        name,
        created,
        f"{done}/{most}",
        _number(records[-1].metrics, "reward/mean", "{:.2f}") if records else "-",
        f"{len(kept)} ({kept[-1]})" if kept else "0",
        dollars(spent(record.metrics for record in records).total),
    )


def _progress(run: Run, records: list[StepRecord]) -> str:
    most = run.settings.get("max_steps", "?")
    if not records:
        return f"no step of {most} is finished yet"
    last = records[-1]
    return f"step {last.step} of {most} finished at {last.time}, reward " + _number(
        last.metrics, "reward/mean", "{:.3f}"
    )


_COLUMNS: dict[str, tuple[str, str]] = {
    "reward": ("reward/mean", "{:.2f}"),
    "right": ("reward/correct", "{:.0%}"),
    "format": ("reward/format", "{:.0%}"),
    "searches": ("rollout/search_calls", "{:.2f}"),
    "equal": ("rollout/degenerate_group_rate", "{:.0%}"),
    "seconds": ("time/step_seconds", "{:.0f}"),
    "USD": ("cost/total_usd", "{:.3f}"),
}


def _print_steps(console: Console, records: list[StepRecord], warned: set[int]) -> None:
    _heading(console, f"last {len(records)} steps (equal: groups without gradient; ! warning)")
    table = _table(">step", *(f">{title}" for title in _COLUMNS), ">datums", "")
    for record in records:
        cells = (_number(record.metrics, metric, form) for metric, form in _COLUMNS.values())
        mark = "!" if record.step in warned else ""
        table.add_row(str(record.step), *cells, str(record.datums), mark)
    console.print(table)


def _print_money(
    console: Console, records: list[StepRecord], evaluations: list[dict[str, Any]]
) -> None:
    so_far = spent(record.metrics for record in records)
    _heading(console, "spent")
    cost = so_far.cost
    console.print(
        f"{dollars(so_far.total)} in {len(records)} steps: search {dollars(cost.search)}, "
        f"sampling {dollars(cost.sampling)}, training {dollars(cost.training)}",
        highlight=False,
    )
    if evaluations:
        total = spent(evaluation.get("cost", {}) for evaluation in evaluations).total
        console.print(
            f"{dollars(total)} in {len(evaluations)} evaluations beside them", highlight=False
        )


def _print_warnings(console: Console, found: list[CollapseWarning]) -> None:
    """One entry for each kind, worded as when it was last warned of."""
    _heading(console, "warnings")
    if not found:
        console.print("none")
    by_kind: dict[WarningKind, list[CollapseWarning]] = {}
    for warning in found:
        by_kind.setdefault(warning.kind, []).append(warning)
    for kind, same in by_kind.items():
        steps = ranges([warning.step for warning in same])
        console.print(Text(f"{kind}, step {steps}: {same[-1].message}"))


def ranges(steps: Sequence[int]) -> str:
    """Rising step numbers, neighbours drawn together: "3, 5-8"."""
    stretches: list[list[int]] = []
    for step in steps:
        if stretches and stretches[-1][-1] == step - 1:
            stretches[-1].append(step)
        else:
            stretches.append([step])
    return ", ".join(
        f"{stretch[0]}-{stretch[-1]}" if len(stretch) > 1 else str(stretch[0])
        for stretch in stretches
    )


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _table(*titles: str) -> Table:
    """An empty table; titles that begin with ">" are of columns of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles:
        numbers = title.startswith(">")
        table.add_column(
            title.removeprefix(">"),
            justify="right" if numbers else "left",
            overflow="fold",
        )
    return table


def _number(metrics: Mapping[str, float], metric: str, form: str) -> str:
    return form.format(metrics[metric]) if metric in metrics else "-"


def _minute(time: str) -> str:
    """An ISO 8601 time, to the minute."""
    return time[:16].replace("T", " ")


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size else "unknown"
