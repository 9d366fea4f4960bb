"""One real question, base against checkpoints: what the policy did before and after."""

from dataclasses import dataclass

import duckdb

from searchr1.report.scores import Scored, Series
from searchr1.trajectory import StopReason


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that happened in a trajectory."""

    kind: str
    """search, result or answer."""
    text: str


@dataclass(frozen=True, slots=True)
class Played:
    """What one policy did."""

    label: str
    right: bool
    acts: tuple[Act, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """A question and what each policy made of it."""

    question: str
    answers: tuple[str, ...]
    policies: tuple[Played, ...]


def read_example(connection: duckdb.DuckDBPyConnection, run: str, series: Series) -> Example | None:
    """A question that the last checkpoint gained, of those the one with most searches in its
    right trajectory (then the first by id); None when no question was gained. Shown are the base,
    the middle checkpoint and the last."""
    base, last = series.base, series.last
    if base is None or last is None or last.comparison is None or not last.comparison.gained:
        return None
    searches = {item.question_id: item.searches for item in last.items if item.em}
    question_id = min(last.comparison.gained, key=lambda key: (-searches.get(key, 0), key))
    middle = series.checkpoints[(len(series.checkpoints) - 1) // 2]
    shown = [base, *([middle] if middle is not last else []), last]
    question, answers = connection.execute(
        "SELECT question, answers FROM trajectories "
        "WHERE run = $run AND evaluation = $evaluation AND question_id = $question LIMIT 1",
        {"run": run, "evaluation": last.evaluation, "question": question_id},
    ).fetchall()[0]
    policies = tuple(_played(connection, run, one, question_id) for one in shown)
    return Example(question, tuple(answers), policies)


def _played(
    connection: duckdb.DuckDBPyConnection, run: str, one: Scored, question_id: str
) -> Played:
    """The first sample of `one` for the question that is right, else the first."""
    trajectory, right, answer, stop_reason = connection.execute(
        "SELECT trajectory_id, em, answer, stop_reason FROM evaluation_items "
        "WHERE run = $run AND evaluation = $evaluation AND question_id = $question "
        "ORDER BY em DESC, sample LIMIT 1",
        {"run": run, "evaluation": one.evaluation, "question": question_id},
    ).fetchall()[0]
    acts: list[Act] = []
    for query, ok, error, titles in connection.execute(
        "SELECT query, ok, error, titles FROM searches WHERE trajectory_id = $trajectory "
        "ORDER BY search",
        {"trajectory": trajectory},
    ).fetchall():
        acts.append(Act("search", query))
        found = "; ".join(titles[:3]) if ok else f"failed: {error}"
        acts.append(Act("result", found or "nothing found"))
    if answer is None:
        reason = StopReason(stop_reason)
        why = "" if reason is StopReason.NO_ANSWER else f" ({reason.replace('_', ' ')})"
        answer = f"nothing well-formed{why}"
    acts.append(Act("answer", answer))
    return Played(one.label, bool(right), tuple(acts))
