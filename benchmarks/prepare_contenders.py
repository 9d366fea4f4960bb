"""What `benchmarks/prepare.py` compares; each call is a process that prints its time and memory."""

import hashlib
import json
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.synthetic_questions import write_synthetic
from searchr1.data import DataSettings, clean_answers, prepare
from searchr1.data.answers import fold
from searchr1.data.questions import SCHEMA
from searchr1.data.split import EVALUATION_SEED, EVALUATION_SIZES, even_quotas
from searchr1.files import replacing

NEEDED = ["id", "question", "golden_answers", "data_source", "reward_model"]


def columnar(raw: Path, out: Path) -> None:
    """This project's preparation."""
    settings = DataSettings.model_validate(
        {"source": "files", "source_files": [raw], "data_dir": out}
    )
    prepare(settings, lambda line: None)


def row_loop(raw: Path, out: Path, columns: list[str] | None) -> None:
    """The same work, one row at a time over `datasets`."""
    from datasets import load_dataset

    sets: dict[str, list[dict]] = {}
    for split in ("train", "test"):
        rows = load_dataset(
            "parquet",
            data_files=str(raw / f"{split}.parquet"),
            split="train",
            columns=columns,
            cache_dir=str(out / "cache"),
        )
        sets[split] = _clean_rows(rows, split)
    evaluation = {_key(row["question"]) for row in sets["test"]}
    overlap = sum(_key(row["question"]) in evaluation for row in sets["train"])
    by_source: dict[str, list[dict]] = {}
    for row in sets["test"]:
        by_source.setdefault(row["source"], []).append(row)
    for name, size in EVALUATION_SIZES.items():
        quotas = even_quotas({source: len(rows) for source, rows in by_source.items()}, size)
        chosen = [
            row
            for source, rows in by_source.items()
            for row in sorted(rows, key=_rank)[: quotas[source]]
        ]
        sets[name] = sorted(chosen, key=lambda row: row["question_id"])
    for name, rows in sets.items():
        with replacing(out / f"{name}.parquet") as temporary:
            pq.write_table(pa.Table.from_pylist(rows, SCHEMA), temporary, compression="zstd")
    (out / "overlap.txt").write_text(f"{overlap}\n")


def _clean_rows(rows: Any, split: str) -> list[dict]:
    found, rejected = [], []
    for number, row in enumerate(rows):
        question = fold(row["question"] or "")
        key = _key(question)
        answers = clean_answers(row["golden_answers"])
        if not answers:
            answers = clean_answers(row["reward_model"]["ground_truth"]["target"])
        if not key or not answers:
            rejected.append({"row": number, "reason": "no_answer" if key else "blank_question"})
            continue
        found.append(
            {
                "question_id": f"{row['data_source']}:{row['id']}",
                "question": question,
                "answers": answers,
                "source": row["data_source"],
                "split": split,
            }
        )
    kept, contents, ids = [], set(), set()
    for row in sorted(found, key=lambda row: row["question_id"]):
        content = (row["source"], _key(row["question"]), tuple(sorted(row["answers"])))
        if content in contents or row["question_id"] in ids:
            rejected.append({"id": row["question_id"], "reason": "duplicate"})
            continue
        contents.add(content)
        ids.add(row["question_id"])
        kept.append(row)
    return kept


def _key(question: str) -> str:
    return re.sub(r"[\W_]+", " ", question.lower()).strip()


def _rank(row: dict) -> str:
    text = f"{EVALUATION_SEED}\n{row['source']}\n{row['question']}"
    return hashlib.sha256(text.encode()).hexdigest()


def main() -> None:
    contender, raw, out, *more = sys.argv[1:]
    Path(out).mkdir(parents=True, exist_ok=True)
    # Imports are not timed, those that libraries put off until they are needed included.
    import pandas  # noqa: F401
    import pyarrow.compute  # noqa: F401

    if contender.startswith("rows"):
        import datasets  # noqa: F401

    started, cpu_started = time.perf_counter(), time.process_time()
    if contender == "synthetic":
        write_synthetic(Path(raw), float(more[0]))
    elif contender == "columnar":
        columnar(Path(raw), Path(out))
    else:
        row_loop(Path(raw), Path(out), NEEDED if contender == "rows_selected" else None)
    used = {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu_started,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    rows = sum(pq.read_metadata(path).num_rows for path in Path(raw).glob("*.parquet"))
    print(json.dumps(used | {"rows": rows}))


if __name__ == "__main__":
    main()
