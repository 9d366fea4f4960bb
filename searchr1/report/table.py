"""The comparison of base and checkpoints as tables in the terminal."""

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from searchr1.report.headline import series_headline
from searchr1.report.scores import Series, read_series
from searchr1.report.tables import COMPARISON, comparison_row, detail_rows
from searchr1.warehouse import load, open_warehouse


def print_summary(runs_dir: Path, run_name: str, console: Console | None = None) -> None:
    """Print the headline, base and checkpoints with their intervals, and every other measure."""
    console = console or Console()
    load(runs_dir)
    with open_warehouse(runs_dir) as connection:
        series = read_series(connection, run_name)
    top = series_headline(series[0] if series else None)
    console.print()
    console.print(Text(f"{run_name}: {top.title}", style="bold"))
    console.print(Text(top.verdict))
    for one_series in series:
        console.print()
        console.print(_comparison_table(one_series))
        console.print(_detail_table(one_series))
    for caveat in top.caveats:
        console.print(Text(f"- {caveat}", style="dim"))


def _comparison_table(series: Series) -> Table:
    table = Table(title=Text(series.title), title_justify="left", title_style="bold", box=None)
    table.add_column(COMPARISON[0])
    for name in COMPARISON[1:-1]:  # searches stand in the table below: 80 columns hold no more
        table.add_column(name, justify="right", no_wrap=True)
    for one in series.all:
        table.add_row(*(Text(cell) for cell in comparison_row(one)[:-1]))
    return table


def _detail_table(series: Series) -> Table:
    table = Table(box=None)
    table.add_column("")
    for one in series.all:
        table.add_column(Text(one.label), justify="right")
    for row in detail_rows(series, intervals=False):
        table.add_row(*(Text(cell) for cell in row))
    return table
