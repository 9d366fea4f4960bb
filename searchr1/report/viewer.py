"""What the trajectory viewer shows: an index of the trajectories, and their details in chunks.

The index lists every trajectory of the run up to a limit. Details (turns, observations, tokens)
are packed until the page has reached its size. Both take all evaluations first, then training
steps spread evenly over the run. `ViewerData.notes` says what was left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from searchr1.report.packing import chunks, compact_json, pack
from searchr1.report.scores import Series
from searchr1.report.tokens import TokenTexts

MOST_LISTED = 50_000
"""Trajectories in the index."""
DETAIL_CHARACTERS = 24_000_000
"""Packed details in the page."""
MOST_CHANGED = 500
"""Gained or lost questions of one checkpoint that are listed."""

OUTCOMES = ("right", "wrong", "malformed", "invalid")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ViewerData:
    """Contents of the viewer."""

    index: dict[str, Any]
    """`places` (evaluations and steps), `questions`, `sources`, `stop_reasons`, `outcomes`, and
    `columns`: one list a field, aligned; `chunk` and `slot` point to the details, -1 = none."""
    chunks: tuple[str, ...]
    """Packed lists of details."""
    notes: tuple[str, ...]


def read_viewer(
    connection: duckdb.DuckDBPyConnection,
    runs_dir: Path,
    run: str,
    series: Sequence[Series],
    texts: TokenTexts | None,
    *,
    most_listed: int = MOST_LISTED,
    detail_characters: int = DETAIL_CHARACTERS,
) -> ViewerData:
    """Everything the viewer shows of one run. `texts` decodes tokens; without it the viewer
    colours whole turns instead of tokens."""
    places = _evaluation_places(connection, run, series) + _step_places(connection, run)
    rows: list[Row] = []
    listed = 0
    for listed, place in enumerate(places, 1):
        rows += [{**row, "place": listed - 1} for row in _rows(connection, place["file"])]
        if len(rows) >= most_listed:
            break
    places = places[:listed]

    packed: list[str] = []
    size = 0
    for chunk in chunks(_details(runs_dir, places, rows, texts)):
        text = pack("[" + ",".join(detail for _, detail in chunk) + "]")
        size += len(text)
        if size > detail_characters and packed:
            break
        for slot, (row, _) in enumerate(chunk):
            row["chunk"], row["slot"] = len(packed), slot
        packed.append(text)

    (total,) = connection.execute(
        "SELECT count(*) FROM trajectories WHERE run = $run", {"run": run}
    ).fetchall()[0]
    notes = _notes(total, len(rows), sum("chunk" in row for row in rows), texts is not None)
    return ViewerData(_index(places, rows, series), tuple(packed), notes)


def _notes(total: int, listed: int, detailed: int, tokens: bool) -> tuple[str, ...]:
    notes = []
    if listed < total:
        notes.append(
            f"{listed:,} of the run's {total:,} trajectories are listed: all evaluations first, "
            "then training steps spread evenly over the run."
        )
    if detailed < listed:
        notes.append(
            f"{detailed:,} of the {listed:,} listed trajectories can be opened here; with all of "
            "them the page would be too large. The others are in the warehouse: "
            'python -m searchr1.warehouse "from trajectories".'
        )
    if not tokens:
        notes.append(
            "The model's tokenizer is not on this machine, so text is coloured by turn and not by "
            "token."
        )
    return tuple(notes)


def _evaluation_places(
    connection: duckdb.DuckDBPyConnection, run: str, series: Sequence[Series]
) -> list[Row]:
    files = dict(
        connection.execute(
            "SELECT DISTINCT evaluation, file FROM evaluation_items WHERE run = $run", {"run": run}
        ).fetchall()
    )
    return [
        {
            "phase": "evaluation",
            "label": one.label,
            "key": one.evaluation,
            "series": number,
            "file": files[one.evaluation],
        }
        for number, one_series in enumerate(series)
        for one in one_series.all
    ]


def _step_places(connection: duckdb.DuckDBPyConnection, run: str) -> list[Row]:
    steps = connection.execute(
        "SELECT DISTINCT step, file FROM trajectories WHERE run = $run AND phase = 'train' "
        "ORDER BY step",
        {"run": run},
    ).fetchall()
    return [
        {
            "phase": "train",
            "label": f"training step {steps[number][0]}",
            "key": str(steps[number][0]),
            "series": -1,
            "file": steps[number][1],
        }
        for number in spread(len(steps))
    ]


def spread(count: int) -> list[int]:
    """0 .. count-1 so ordered that every beginning of the list is spread over the whole: the
    last, the first, then the middles of ever smaller parts."""
    order = dict.fromkeys([count - 1] if count else [])
    parts = 1
    while len(order) < count:
        order |= dict.fromkeys(part * count // parts for part in range(parts))
        parts *= 2
    return list(order)


def _rows(connection: duckdb.DuckDBPyConnection, file: str) -> list[Row]:
    cursor = connection.execute(
        """
        SELECT question_id, question, answers, source, sample, stop_reason, valid, em,
            valid_format, reward, advantage, searches, turns, tokens, seconds, answer
        FROM trajectories WHERE file = $file ORDER BY question_id, sample
        """,
        {"file": file},
    )
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _details(
    runs_dir: Path, places: Sequence[Row], rows: Sequence[Row], texts: TokenTexts | None
) -> Iterator[tuple[Row, str]]:
    """Rows with their details as JSON, place by place; read only as far as they are asked for."""
    by_key = {(row["place"], row["question_id"], row["sample"]): row for row in rows}
    columns = ["question_id", "index", "turns", "searches", "error"]
    if texts is not None:
        columns += ["tokens", "loss_mask", "logprobs"]
    for number, place in enumerate(places):
        with pq.ParquetFile(runs_dir / place["file"]) as parquet:
            for batch in parquet.iter_batches(batch_size=64, columns=columns):
                for stored in batch.to_pylist():
                    key = (number, stored["question_id"], stored["index"])
                    yield by_key[key], compact_json(_detail(stored, texts))


def _detail(stored: Row, texts: TokenTexts | None) -> Row:
    detail: Row = {
        "error": stored["error"],
        "turns": stored["turns"],
        "searches": [
            {**search, "items": [[i["title"], i["url"], i["text"]] for i in search["items"]]}
            for search in stored["searches"]
        ],
    }
    for search in detail["searches"]:
        if search["items"]:
            del search["observation"]  # the items are what it was made of
    if texts is not None:
        pieces = texts.pieces(stored["tokens"])
        drawn = stored["loss_mask"]
        detail["tokens"] = {
            "text": "".join(pieces),
            "lengths": [_utf16_length(piece) for piece in pieces],
            "drawn": _run_lengths(drawn),
            "logprobs": [
                round(value, 3) + 0.0
                for value, own in zip(stored["logprobs"], drawn, strict=True)
                if own
            ],
        }
    return detail


def _utf16_length(text: str) -> int:
    """Length as JavaScript counts it."""
    return len(text) + sum(character > "\uffff" for character in text)


def _run_lengths(mask: Sequence[bool]) -> list[int]:
    """Lengths of the runs of equal values, the first of them of False (it may be 0)."""
    lengths = [0]
    value = False
    for item in mask:
        if item is not value:
            lengths.append(0)
            value = item
        lengths[-1] += 1
    return lengths


def _outcome(row: Row) -> int:
    if not row["valid"]:
        return OUTCOMES.index("invalid")
    if row["em"]:
        return OUTCOMES.index("right")
    return OUTCOMES.index("wrong" if row["valid_format"] else "malformed")


class _Numbers(dict):
    """Numbers values in order of first use."""

    def __missing__(self, key: object) -> int:
        self[key] = len(self)
        return self[key]


def _index(places: Sequence[Row], rows: Sequence[Row], series: Sequence[Series]) -> Row:
    questions, sources, reasons = _Numbers(), _Numbers(), _Numbers()
    described: list[Row] = []
    columns: dict[str, list] = {
        name: []
        for name in (
            *("place", "question", "sample", "outcome", "stop", "reward", "advantage", "searches"),
            *("turns", "tokens", "seconds", "answer", "chunk", "slot"),
        )
    }
    for row in rows:
        question = questions[row["question_id"]]
        if question == len(described):
            described.append(
                {
                    "id": row["question_id"],
                    "text": row["question"],
                    "answers": row["answers"],
                    "source": sources[row["source"]],
                }
            )
        advantage = row["advantage"]
        values = {
            "place": row["place"],
            "question": question,
            "sample": row["sample"],
            "outcome": _outcome(row),
            "stop": reasons[row["stop_reason"]],
            "reward": round(row["reward"], 4),
            "advantage": None if advantage is None else round(advantage, 4),
            "searches": row["searches"],
            "turns": row["turns"],
            "tokens": row["tokens"],
            "seconds": round(row["seconds"], 2),
            "answer": row["answer"],
            "chunk": row.get("chunk", -1),
            "slot": row.get("slot", -1),
        }
        for name, value in values.items():
            columns[name].append(value)
    return {
        "places": [{k: v for k, v in place.items() if k != "file"} for place in places],
        "series": [one.title for one in series],
        "questions": described,
        "sources": list(sources),
        "stop_reasons": list(reasons),
        "outcomes": list(OUTCOMES),
        "columns": columns,
        "changed": _changed(series, questions),
    }


def _changed(series: Sequence[Series], questions: dict[str, int]) -> list[Row]:
    """Gained and lost questions of each compared checkpoint, by their numbers."""
    return [
        {
            "key": one.evaluation,
            "base": one_series.base.evaluation,
            "label": one.label,
            "series": number,
            "gained": [questions[q] for q in one.comparison.gained[:MOST_CHANGED]],
            "lost": [questions[q] for q in one.comparison.lost[:MOST_CHANGED]],
            "gained_count": len(one.comparison.gained),
            "lost_count": len(one.comparison.lost),
        }
        for number, one_series in enumerate(series)
        for one in one_series.checkpoints
        if one_series.base is not None and one.comparison is not None
    ]
