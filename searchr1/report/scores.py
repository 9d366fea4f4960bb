"""The evaluations of one run, read from the warehouse and set against the base.

A series is what may be looked at side by side: the same questions, samples, temperature and
environment. Evaluations whose mixing was forced join the base's series and are marked `mixed`
wherever they are shown.
"""

from collections import defaultdict
from dataclasses import dataclass, replace

import duckdb

from searchr1.evaluation import Comparison, Item, Metric, Summary, compare, summarise
from searchr1.trajectory import StopReason

BASE = "base"


@dataclass(frozen=True, slots=True)
class Scored:
    """One evaluation with its statistics."""

    evaluation: str
    checkpoint: str
    step: int
    question_set: str
    samples: int
    temperature: float
    environment: str
    """Fingerprint."""
    questions_digest: str
    forced_mixed: bool
    started_at: str
    items: tuple[Item, ...]
    summary: Summary
    comparison: Comparison | None = None
    """Against the base of the series; None for the base itself, or without a base."""
    mixed: bool = False
    """Compared although the environment is not the base's."""

    @property
    def label(self) -> str:
        """What a person sees."""
        name = self.checkpoint.replace("_", " ")
        return f"{name} (other environment)" if self.mixed else name

    @property
    def em(self) -> float:
        """Macro EM."""
        return self.summary.macro[Metric.EM].value


@dataclass(frozen=True, slots=True)
class Series:
    """Evaluations that may be set side by side, checkpoints by step."""

    base: Scored | None
    checkpoints: tuple[Scored, ...]

    @property
    def all(self) -> tuple[Scored, ...]:
        """Base first, then checkpoints."""
        return ((self.base,) if self.base else ()) + self.checkpoints

    @property
    def last(self) -> Scored | None:
        """The checkpoint of the latest step: the one that the headline is about, so that nobody
        picks the luckiest of several."""
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def title(self) -> str:
        """Question set, sampling and size in words."""
        one = self.all[0]
        how = "greedy" if one.temperature == 0 else f"temperature {one.temperature:g}"
        if one.samples > 1:
            how += f", {one.samples} samples a question"
        asked = one.summary.questions + one.summary.missing
        return f"{one.question_set}, {asked:,} questions, {how}"


def read_series(connection: duckdb.DuckDBPyConnection, run: str) -> list[Series]:
    """All series of a run; the main one (with a base, greedy, most checkpoints, most questions,
    latest) is first."""
    scored = _read_scored(connection, run)
    asked: dict[tuple, list[Scored]] = defaultdict(list)
    for one in scored:
        asked[one.questions_digest, one.samples, one.temperature].append(one)
    series = [made for group in asked.values() for made in _series_of(group)]
    return sorted(series, key=_importance, reverse=True)


def _importance(series: Series) -> tuple:
    one = series.all[0]
    return (
        series.base is not None and bool(series.checkpoints),
        one.temperature == 0 and one.samples == 1,
        len(series.checkpoints),
        one.summary.questions,
        max(member.started_at for member in series.all),
    )


def _series_of(group: list[Scored]) -> list[Series]:
    """Split evaluations of the same questions and sampling by environment."""
    latest: dict[tuple[str, str], Scored] = {}
    for one in sorted(group, key=lambda one: one.started_at):
        latest[one.environment, one.checkpoint] = one
    bases = {one.environment: one for one in latest.values() if one.checkpoint == BASE}
    newest_base = max(bases.values(), key=lambda one: one.started_at, default=None)
    members: dict[str, list[Scored]] = {environment: [] for environment in bases}
    for one in latest.values():
        if one.checkpoint == BASE:
            continue
        if one.environment not in bases and one.forced_mixed and newest_base:
            members[newest_base.environment].append(_against(newest_base, one, mixed=True))
        else:
            base = bases.get(one.environment)
            compared = _against(base, one) if base else one
            members.setdefault(one.environment, []).append(compared)
    return [
        Series(bases.get(environment), tuple(sorted(ones, key=lambda o: (o.step, o.checkpoint))))
        for environment, ones in members.items()
    ]


def _against(base: Scored, one: Scored, *, mixed: bool = False) -> Scored:
    return replace(one, comparison=compare(base.items, one.items), mixed=mixed)


_ITEM_COLUMNS = (
    *("question_id", "source", "sample", "em", "em_squad", "f1", "cover_em", "valid_format"),
    *("reward", "searches", "turns", "tokens"),
)


def _read_scored(connection: duckdb.DuckDBPyConnection, run: str) -> list[Scored]:
    items: dict[str, list[Item]] = defaultdict(list)
    for evaluation, *values, stop_reason, ok, failed in connection.execute(
        """
        SELECT evaluation, question_id, source, sample, em, em_squad, f1, cover_em, valid_format,
            reward, searches, turns, tokens, stop_reason, searches - searches_failed,
            searches_failed
        FROM evaluation_items WHERE run = $run ORDER BY evaluation, question_id, sample
        """,
        {"run": run},
    ).fetchall():
        named = dict(zip(_ITEM_COLUMNS, values, strict=True))
        items[evaluation].append(
            Item(**named, stop_reason=StopReason(stop_reason), search_ok=ok, search_failed=failed)
        )
    described = connection.execute(
        """
        SELECT evaluation, checkpoint, step, question_set, samples, temperature,
            environment_fingerprint, questions_digest, forced_mixed,
            coalesce(strftime(started_at, '%Y-%m-%dT%H:%M:%S'), '')
        FROM evaluations WHERE run = $run ORDER BY evaluation
        """,
        {"run": run},
    ).fetchall()
    return [
        Scored(*row, items=tuple(items[row[0]]), summary=summarise(items[row[0]]))
        for row in described
        if items[row[0]]
    ]
