"""Rows of the comparison tables: the same for terminal, page and artifact."""

from collections.abc import Callable, Sequence

import duckdb

from searchr1.evaluation import Estimate, Metric, Summary
from searchr1.evaluation.comparison import format_p
from searchr1.report.scores import Scored, Series
from searchr1.report.words import number, percent, percent_interval, points_interval

COMPARISON = (
    "policy",
    "macro EM %",
    "vs base, points",
    "+/-",
    "p",
    "format %",
    "searches",
)


def comparison_row(one: Scored) -> list[str]:
    """One policy, in the columns of `COMPARISON`."""
    summary, comparison = one.summary, one.comparison
    return [
        one.label,
        percent_interval(summary.macro[Metric.EM]),
        points_interval(comparison.em) if comparison else "",
        f"{len(comparison.gained)} / {len(comparison.lost)}" if comparison else "",
        format_p(comparison.p_value) if comparison else "",
        percent_interval(summary.overall[Metric.VALID_FORMAT]),
        number(summary.overall[Metric.SEARCHES].value),
    ]


def detail_rows(series: Series, *, intervals: bool) -> list[list[str]]:
    """Every other measure, one a row: its name, then a cell for each policy of the series."""
    summaries = [one.summary for one in series.all]
    share = percent_interval if intervals else _percent

    def row(name: str, cell: Callable[[Summary], str]) -> list[str]:
        return [name, *(cell(summary) for summary in summaries)]

    def of_source(source: str) -> Callable[[Summary], str]:
        return lambda s: share(s.by_source[source][Metric.EM]) if source in s.by_source else "-"

    def overall(metric: Metric, digits: int) -> Callable[[Summary], str]:
        return lambda s: number(s.overall[metric].value, digits)

    sources = sorted({source for summary in summaries for source in summary.by_source})
    rows = [row(f"EM % {source}", of_source(source)) for source in sources]
    rows += [
        row("EM % (published normaliser)", lambda s: share(s.macro[Metric.EM_SQUAD])),
        row("F1 %", lambda s: share(s.macro[Metric.F1])),
        row("cover EM %", lambda s: share(s.macro[Metric.COVER_EM])),
    ]
    for k in sorted({k for summary in summaries for k in summary.pass_at}):
        rows.append(
            row(f"pass@{k} %", lambda s, k=k: share(s.pass_at[k]) if k in s.pass_at else "-")
        )
    rows += [
        row("searches", overall(Metric.SEARCHES, 2)),
        row("turns", overall(Metric.TURNS, 2)),
        row("tokens", overall(Metric.TOKENS, 0)),
        row("without search %", lambda s: share(s.overall[Metric.NO_SEARCH])),
        row("searches that worked %", lambda s: share(s.overall[Metric.SEARCH_SUCCESS])),
    ]
    reasons = sorted({reason for summary in summaries for reason in summary.stop_reasons})
    for reason in reasons:
        name = f"ended: {reason.replace('_', ' ')}"
        rows.append(row(name, lambda s, r=reason: str(s.stop_reasons.get(r, 0))))
    if any(summary.invalid for summary in summaries):
        rows.append(row("left out (errors outside)", lambda s: str(s.invalid)))
    return rows


def _percent(estimate: Estimate) -> str:
    return percent(estimate.value)


_BY_SOURCE: tuple[tuple[str, Metric, Callable[[Estimate], str]], ...] = (
    ("EM %", Metric.EM, percent_interval),
    ("EM % (published)", Metric.EM_SQUAD, percent_interval),
    ("F1 %", Metric.F1, percent_interval),
    ("cover EM %", Metric.COVER_EM, percent_interval),
    ("format %", Metric.VALID_FORMAT, percent_interval),
    ("searches", Metric.SEARCHES, lambda estimate: number(estimate.value)),
    ("turns", Metric.TURNS, lambda estimate: number(estimate.value)),
    ("tokens", Metric.TOKENS, lambda estimate: number(estimate.value, 0)),
    ("no search %", Metric.NO_SEARCH, _percent),
    ("searches ok %", Metric.SEARCH_SUCCESS, _percent),
)
BY_SOURCE = ("source", "questions", *(name for name, _, _ in _BY_SOURCE), "ended")


def source_rows(one: Scored) -> list[list[str]]:
    """Every measure of one policy by source, in the columns of `BY_SOURCE`."""
    summary = one.summary
    return [
        [
            source,
            str(summary.sizes.get(source, 0)),
            *(show(values[metric]) for _, metric, show in _BY_SOURCE),
            ", ".join(
                f"{reason.replace('_', ' ')} {count}"
                for reason, count in summary.stop_reasons_by_source[source].items()
            ),
        ]
        for source, values in summary.by_source.items()
    ]


_BEHAVIOUR: tuple[tuple[str, tuple[tuple[str, str, bool], ...]], ...] = (
    (
        "Queries",
        (
            ("words in a query", "query_words", False),
            ("words of the first query from the question %", "first_query_overlap", True),
            ("words of later queries from the question %", "later_query_overlap", True),
            ("repeated %", "repeated_rate", True),
            ("nearly repeated %", "near_repeated_rate", True),
            ("made after the answer was found %", "after_answer_rate", True),
        ),
    ),
    (
        "What became of the evidence",
        (
            ("answer found and used %", "found_and_used", True),
            ("answer found, not used %", "found_not_used", True),
            ("right without evidence %", "right_without_evidence", True),
            ("answer not found %", "not_found", True),
            ("used when found %", "used_when_found", True),
        ),
    ),
)


def behaviour_rows(
    connection: duckdb.DuckDBPyConnection, run: str, series: Series
) -> list[list[str]]:
    """How each policy of a series searches, from the warehouse's views. A row with its name alone
    is the heading of the rows below it."""
    names = [one.evaluation for one in series.all]
    rows = [["Searches a trajectory"]]
    for hops in ("one hop", "several hops", "unknown"):
        found = _by_evaluation(
            connection, "search_behaviour", "searches", run, " AND hops = $hops", {"hops": hops}
        )
        if found:
            title = "all questions" if hops == "unknown" else f"questions of {hops}"
            rows.append([title, *_cells(found, names, share=False)])
    for heading, measures in _BEHAVIOUR:
        view = "query_behaviour" if heading == "Queries" else "evidence_use"
        rows.append([heading])
        for title, column, share in measures:
            found = _by_evaluation(connection, view, column, run)
            rows.append([title, *_cells(found, names, share=share)])
    return rows


def _by_evaluation(
    connection: duckdb.DuckDBPyConnection,
    view: str,
    column: str,
    run: str,
    also: str = "",
    values: dict[str, str] | None = None,
) -> dict[str, float | None]:
    return dict(
        connection.execute(
            f"SELECT evaluation, {column} FROM {view} "
            f"WHERE run = $run AND phase = 'evaluation'{also}",
            {"run": run, **(values or {})},
        ).fetchall()
    )


def _cells(found: dict[str, float | None], names: Sequence[str], *, share: bool) -> list[str]:
    values = [found.get(name) for name in names]
    return ["-" if v is None else percent(v) if share else number(v) for v in values]
