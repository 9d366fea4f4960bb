"""The comparison of base and checkpoints as tables in the terminal."""

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from searchr1.evaluation import Metric
from searchr1.report.headline import comparison_cells, series_headline
from searchr1.report.scores import Series, read_series
from searchr1.report.words import number, percent
from searchr1.warehouse import load, open_warehouse


def print_summary(runs_dir: Path, run_name: str, console: Console | None = None) -> None:
    """Print the headline, base and checkpoints with their intervals, and EM by source."""
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
    table = Table(title=series.title, title_justify="left", title_style="bold", box=None)
    table.add_column("policy")
    for name in ("macro EM %", "vs base", "+/-", "p", "format %"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in series.all:
        # Searches stand in the table below: 80 columns hold no more.
        table.add_row(*(Text(cell) for cell in comparison_cells(one)[:-1]))
    return table


def _detail_table(series: Series) -> Table:
    """Everything else by policy: rows are measures, columns are policies."""
    table = Table(box=None)
    table.add_column("")
    for one in series.all:
        table.add_column(Text(one.label), justify="right")
    summaries = [one.summary for one in series.all]
    sources = sorted({source for summary in summaries for source in summary.by_source})
    for source in sources:
        table.add_row(
            Text(f"EM % {source}"),
            *(
                percent(summary.by_source[source][Metric.EM].value)
                if source in summary.by_source
                else "-"
                for summary in summaries
            ),
        )
    for title, metric in (
        ("EM % (published normaliser)", Metric.EM_SQUAD),
        ("F1 %", Metric.F1),
        ("cover EM %", Metric.COVER_EM),
    ):
        table.add_row(title, *(percent(summary.macro[metric].value) for summary in summaries))
    for k in sorted({k for summary in summaries for k in summary.pass_at}):
        table.add_row(f"pass@{k} %", *(percent(s.pass_at[k].value) for s in summaries))
    table.add_row("searches", *(number(s.overall[Metric.SEARCHES].value) for s in summaries))
    table.add_row("turns", *(number(s.overall[Metric.TURNS].value) for s in summaries))
    table.add_row("tokens", *(number(s.overall[Metric.TOKENS].value, 0) for s in summaries))
    table.add_row(
        "without search %", *(percent(s.overall[Metric.NO_SEARCH].value) for s in summaries)
    )
    table.add_row(
        "searches that worked %",
        *(percent(s.overall[Metric.SEARCH_SUCCESS].value) for s in summaries),
    )
    reasons = sorted({reason for summary in summaries for reason in summary.stop_reasons})
    for reason in reasons:
        table.add_row(
            Text(f"ended: {reason}"), *(str(s.stop_reasons.get(reason, 0)) for s in summaries)
        )
    return table
