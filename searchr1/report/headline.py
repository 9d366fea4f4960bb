"""What came out, in a few sentences: for the top of the page, and as a Prefect artifact."""

from dataclasses import dataclass
from pathlib import Path

from searchr1.evaluation import verdict
from searchr1.report.scores import Series, read_series
from searchr1.report.tables import COMPARISON, comparison_row
from searchr1.report.words import percent
from searchr1.warehouse import load, open_warehouse

MIXED = (
    "Mixed environments: this checkpoint met another search environment than the base, so the "
    "difference is not the policy's alone."
)


@dataclass(frozen=True, slots=True)
class Headline:
    """The answer to "did it learn, and can I believe it"."""

    title: str
    verdict: str
    caveats: tuple[str, ...]


def series_headline(series: Series | None) -> Headline:
    """The headline of a run's main series (None = nothing is evaluated)."""
    if series is None:
        return Headline(
            "Nothing is evaluated yet",
            "There is no finished evaluation of this run. Make one with: "
            "python flows/eval_flow.py --ckpts latest",
            (),
        )
    last, base = series.last, series.base
    caveats = [series.all[0].summary.sentence]
    for one in series.all:
        caveats += [f"{one.label}: {warning}" for warning in one.summary.warnings]
    if last is None or base is None or last.comparison is None:
        only = last or base or series.all[0]
        missing = "No checkpoint" if last is None else "The base model"
        return Headline(
            f"EM {percent(only.em)}% ({only.label})",
            f"{missing} was not evaluated on these questions in this environment, so there is "
            "nothing to compare.",
            tuple(caveats),
        )
    if last.mixed:
        caveats.insert(0, MIXED)
    if len(series.checkpoints) > 1:
        best = max(series.checkpoints, key=lambda one: one.em)
        if best.em > last.em:
            caveats.append(
                f"The headline is about the last checkpoint. {best.label} scored higher "
                f"({percent(best.em)}%), but the best of {len(series.checkpoints)} is partly the "
                "luckiest: confirm it on other questions before choosing it."
            )
    return Headline(
        f"EM {percent(base.em)}% → {percent(last.em)}% ({last.label})",
        verdict(last.comparison),
        tuple(caveats),
    )


def headline(runs_dir: Path, run_name: str) -> str:
    """The headline and the comparison table of a run in Markdown, for a Prefect artifact."""
    load(runs_dir)
    with open_warehouse(runs_dir) as connection:
        series = read_series(connection, run_name)
    top = series_headline(series[0] if series else None)
    lines = [f"# {run_name}: {top.title}", "", top.verdict, ""]
    for one_series in series:
        lines += [f"**{one_series.title}**", "", *_markdown_table(one_series), ""]
    lines += [f"- {caveat}" for caveat in top.caveats]
    report = runs_dir / run_name / "report" / "index.html"
    lines += ["", f"Report: `{report}`", ""]
    return "\n".join(lines)


def _markdown_table(series: Series) -> list[str]:
    rows = [COMPARISON, ["---"] * len(COMPARISON)] + [comparison_row(one) for one in series.all]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
