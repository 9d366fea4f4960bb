"""The report's page: one HTML file with its style, its program and its data inside.

Text reaches the page in two ways only: through Jinja with autoescape, or as data that the page's
program turns into text nodes. On top of that a content security policy allows the one style and
the one program by their hashes and nothing else: no network, no inline handler.
"""

import base64
import hashlib
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from searchr1.errors import DataError
from searchr1.evaluation import Estimate, Metric
from searchr1.files import write_text
from searchr1.report.example import read_example
from searchr1.report.figures import draw_figures
from searchr1.report.headline import series_headline
from searchr1.report.packing import compact_json, pack, script_json
from searchr1.report.scores import Series, read_series
from searchr1.report.tables import (
    BY_SOURCE,
    COMPARISON,
    behaviour_rows,
    comparison_row,
    detail_rows,
    source_rows,
)
from searchr1.report.tokens import Decoder, TokenTexts, local_tokenizer
from searchr1.report.training import CHARTS, Chart, Training, read_training
from searchr1.report.viewer import DETAIL_CHARACTERS, read_viewer
from searchr1.report.words import number, percent, points_interval
from searchr1.warehouse import load, open_warehouse

_SCRIPTS = ("base.js", "charts.js", "tokens.js", "detail.js", "changes.js", "viewer.js")


def build_report(
    runs_dir: Path,
    run_name: str,
    *,
    tokenizer: Decoder | None = None,
    detail_characters: int = DETAIL_CHARACTERS,
) -> Path:
    """Write the page and the figures of a run to `<run>/report/`; returns the page's path.

    Args:
        tokenizer: gives tokens their text; unset = the base model's, if it lies on this machine.
        detail_characters: most characters of trajectory details in the page.

    Raises:
        DataError: the warehouse knows no such run.
    """
    load(runs_dir)
    folder = runs_dir / run_name / "report"
    with open_warehouse(runs_dir) as connection:
        run = _read_run(connection, run_name)
        series = read_series(connection, run_name)
        training = read_training(connection, run_name)
        main = series[0] if series else None
        drawn = draw_figures(
            folder, main, training, read_example(connection, run_name, main) if main else None
        )
        tokenizer = tokenizer or local_tokenizer(run["base_model"] or "")
        viewer = read_viewer(
            connection,
            runs_dir,
            run_name,
            series,
            TokenTexts(tokenizer) if tokenizer else None,
            detail_characters=detail_characters,
        )
        behaviour = behaviour_rows(connection, run_name, main) if main else None
    style, script = _page_file("style.css"), "\n".join(_page_file(name) for name in _SCRIPTS)
    template = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True
    ).from_string(_page_file("page.html.jinja"))
    html = template.render(
        run=run_name,
        policy=(
            f"default-src 'none'; base-uri 'none'; form-action 'none'; "
            f"style-src '{_hash(style)}'; script-src '{_hash(script)}'"
        ),
        style=Markup(style),
        script=Markup(script),
        identity=_identity(run),
        headline=series_headline(main),
        facts=_facts(main, training),
        tables=[_table(one) for one in series],
        warnings=[
            (step, ", ".join(name.removeprefix("watchdog/").replace("_", " ") for name in names))
            for step, names in training.warnings.items()
        ],
        charts=[chart for chart in CHARTS if training.lines(chart)],
        behaviour={"policies": [one.label for one in main.all], "details": behaviour}
        if main
        else None,
        notes=viewer.notes,
        figure_links=_figure_links(drawn),
        data=Markup(script_json({"charts": _charts(main, training)})),
        index=Markup(pack(compact_json(viewer.index))),
        chunks=[Markup(chunk) for chunk in viewer.chunks],
    )
    page = folder / "index.html"
    write_text(page, html)
    return page


def _page_file(name: str) -> str:
    return (resources.files("searchr1.report") / "page_files" / name).read_text("utf-8")


def _hash(text: str) -> str:
    """A source expression of a content security policy for an inline element."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _figure_links(drawn: Sequence[str]) -> Any:
    def links(name: str, title: str = "") -> Markup:
        if name not in drawn:
            return Markup("")
        before = f"{title}: " if title else ""
        return Markup(
            '{}<span class="links"><a href="{}.png">PNG</a> <a href="{}.svg">SVG</a></span>'
        ).format(before, name, name)

    return links


def _read_run(connection: duckdb.DuckDBPyConnection, run: str) -> dict[str, Any]:
    cursor = connection.execute("SELECT * FROM runs WHERE run = $run", {"run": run})
    names = [column[0] for column in cursor.description or ()]
    row = cursor.fetchone()
    if row is None:
        known = ", ".join(
            name for (name,) in connection.execute("SELECT run FROM runs ORDER BY run").fetchall()
        )
        raise DataError(f"there is no run '{run}'. Runs there: {known or 'none'}.")
    return dict(zip(names, row, strict=True))


def _identity(run: dict[str, Any]) -> list[str]:
    created = run["created_at"]
    facts = [
        run["base_model"],
        f"{run['search_backend']} search" if run["search_backend"] else None,
        f"{run['questions_per_batch']} questions by {run['group_size']} trajectories a step"
        if run["questions_per_batch"] and run["group_size"]
        else None,
        f"started {created:%Y-%m-%d %H:%M} UTC" if created else None,
    ]
    return [fact for fact in facts if fact]


def _facts(series: Series | None, training: Training) -> list[tuple[str, str, str]]:
    """(name, value, detail) of the numbers under the headline."""
    facts: list[tuple[str, str, str]] = []
    last = series.last if series else None
    if series and last:
        base = series.base.summary if series.base else None
        if last.comparison:
            em = last.comparison.em
            facts.append(
                ("EM against base", f"{100 * em.value:+.1f} points", f"95%: {_between(em)}")
            )
        for name, metric in (("Format", Metric.VALID_FORMAT), ("Searches", Metric.SEARCHES)):
            after = last.summary.overall[metric].value
            show = percent if metric is Metric.VALID_FORMAT else number
            unit = " %" if metric is Metric.VALID_FORMAT else ""
            before = f"base {show(base.overall[metric].value)}{unit}" if base else ""
            facts.append((name, f"{show(after)}{unit}", before))
    if training.steps:
        seconds = [v for v in training.metrics.get("time/step_seconds", ()) if v is not None]
        detail = f"{sum(seconds) / len(seconds):.0f} s each" if seconds else ""
        facts.append(("Steps trained", str(training.steps[-1]), detail))
    spent = [v for v in training.metrics.get("cost/total_usd", ()) if v is not None]
    if spent and spent[-1] > 0:
        facts.append(("Spent", f"${spent[-1]:,.2f}", "by the prices in the settings"))
    return facts


def _between(difference: Estimate) -> str:
    return points_interval(difference).split(" ", 1)[1].strip("[]").replace(", ", " to ")


def _table(series: Series) -> dict[str, Any]:
    return {
        "title": series.title,
        "columns": COMPARISON,
        "rows": [comparison_row(one) for one in series.all],
        "policies": [one.label for one in series.all],
        "details": detail_rows(series, intervals=True),
        "source_columns": BY_SOURCE,
        "sources": [(one.label, source_rows(one)) for one in series.all],
    }


def _charts(series: Series | None, training: Training) -> dict[str, Any]:
    charts = {
        chart.name: _training_chart(chart, training) for chart in CHARTS if training.lines(chart)
    }
    if series:
        charts["evaluation"] = {
            "title": f"EM and format by checkpoint, {series.title}",
            "x": list(range(len(series.all))),
            "labels": [one.label for one in series.all],
            "lines": [
                _estimate_line("macro EM %", [o.summary.macro[Metric.EM] for o in series.all]),
                _estimate_line(
                    "format %", [o.summary.overall[Metric.VALID_FORMAT] for o in series.all]
                ),
            ],
        }
    return charts


def _training_chart(chart: Chart, training: Training) -> dict[str, Any]:
    return {
        "title": chart.title,
        "x": training.steps,
        "stacked": chart.stacked,
        "share": chart.share,
        "lines": [
            {"label": label, "values": [_finite(value) for value in values]}
            for label, values in training.lines(chart).items()
        ],
        "warnings": training.warnings,
    }


def _estimate_line(label: str, estimates: Sequence[Estimate]) -> dict[str, Any]:
    low, value, high = (
        [_finite(100 * getattr(estimate, name)) for estimate in estimates]
        for name in ("low", "value", "high")
    )
    return {"label": label, "values": value, "low": low, "high": high}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
