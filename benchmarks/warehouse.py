"""One million synthetic trajectories (about 3 turns and 2 searches each): load, then every view.

    python benchmarks/warehouse.py [--trajectories 1000000] [--folder DIR]

Prints seconds and peak memory of loading and of each view, and ends with status 1 when all views
together take more than 10 s or a process more than 2 GB. The run directories are written with SQL
(the real schema, invented text); each measured part is a process of its own, so that its peak
memory is its own. About 4 GB of disk are used under `--folder` and removed afterwards.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from searchr1.trajectory_store import SCHEMA
from searchr1.warehouse import load, open_warehouse
from searchr1.warehouse.loader import view_names

QUERY_SECONDS = 10.0
MEMORY_BYTES = 2e9
RUNS = 10
PER_STEP = 512
"""Trajectories a step: 64 groups of 8."""

_ROWS = """
WITH numbers AS (
    SELECT i, (hash(i, $salt) >> 1)::BIGINT AS h FROM range($count) AS t(i)
),
drawn AS (
    SELECT i, h, h % 5 AS searches, (h >> 8) % 100 < $right AS em, (h >> 16) % 100 < 90 AS formed,
        (h >> 24) % 200 = 0 AS broken, i // $group AS question
    FROM numbers
),
written AS (
    SELECT *,
        CASE WHEN broken THEN greatest(searches, 1) ELSE searches END AS n,
        'q' || $salt // $questions_repeat || '-' || question AS question_id
    FROM drawn
)
SELECT
    question_id,
    'Which town is the birthplace of the writer of the book number ' || question || '?' AS question,
    ['Town ' || question, 'City of ' || question] AS answers,
    ['nq', 'triviaqa', 'popqa', 'hotpotqa', '2wikimultihopqa', 'musique', 'bamboogle']
        [1 + question % 7] AS source,
    (i % $group)::INTEGER AS "index",
    list_transform(range(200 + h % 200), lambda k: (hash(k, h) % 1000)::INTEGER)
        AS tokens,
    list_transform(range(200 + h % 200), lambda k: k % 4 = 3) AS loss_mask,
    list_transform(range(200 + h % 200),
        lambda k: CASE WHEN k % 4 = 3 THEN -((h + k) % 100) / 100.0 ELSE 0.0 END::FLOAT)
        AS logprobs,
    list_transform(range(n + 1), lambda k: {
        'start': (60 + 40 * k)::INTEGER, 'end': (72 + 40 * k)::INTEGER,
        'text': 'I should look for the writer of book ' || question || ' ' || hash(k, h),
        'kind': CASE WHEN k = n THEN 'answer' ELSE 'call' END,
        'seconds': 1.0 + (hash(k, h) % 100) / 100.0
    }) AS turns,
    list_transform(range(n), lambda k: {
        'turn': k::INTEGER,
        'query': CASE WHEN hash(h, k) % 10 = 0 THEN 'writer of book ' || question
            ELSE 'birthplace of writer ' || hash(k, h) % 1000 || ' of book ' || question END,
        'ok': NOT (broken AND k = n - 1),
        'error': CASE WHEN broken AND k = n - 1 THEN 'timeout' ELSE '' END,
        'items': [
            {'title': 'Page ' || k || ' of ' || question, 'text': 'see the observation',
             'url': 'https://example.org/' || hash(k, h)},
            {'title': 'Other page', 'text': 'nothing', 'url': 'https://example.org/other'}],
        'observation': '[1] Page of ' || question || chr(10)
            || CASE WHEN hash(h, k + 1) % 3 = 0 THEN 'The writer was born in Town ' || question
               ELSE 'It is a book about ' || hash(h, k) END
            || repeat(' It was printed in ' || hash(h, k) % 500 || ' copies, read by many.', 12),
        'seconds': (hash(h, k) % 2000) / 1000.0,
        'cached': hash(h, k) % 3 = 0,
        'cost': 0.001
    }) AS searches,
    CASE WHEN broken THEN 'environment_error' WHEN formed THEN 'answered' ELSE 'no_answer' END
        AS stop_reason,
    CASE WHEN broken THEN 'a search failed' ELSE '' END AS error,
    'Answer: Town ' || question AS final_text,
    CASE WHEN formed THEN 'Town ' || question END AS answer,
    CASE WHEN broken OR NOT formed THEN -0.1 WHEN em THEN 1.0 ELSE 0.0 END AS reward,
    formed AND NOT broken AS valid_format,
    em AND formed AND NOT broken AS em,
    em AND formed AND NOT broken AS em_squad,
    (em AND formed AND NOT broken)::DOUBLE AS f1,
    em AND formed AND NOT broken AS cover_em,
    3.0 + (h % 3000) / 1000.0 AS seconds
FROM written
"""


def write_runs(runs_dir: Path, trajectories: int) -> None:
    """Run directories with about so many trajectories, a tenth of them in evaluations. To save
    minutes, all runs share the Parquet files of the first one (hard links); the warehouse does not
    know and loads each."""
    steps = max(1, round(trajectories * 0.9 / RUNS / PER_STEP))
    evaluated = max(7, round(trajectories * 0.1 / RUNS / 4))
    connection = duckdb.connect()

    def write(path: Path, salt: int, count: int, group: int, repeat: int, right: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        first = runs_dir / "run-0" / path.relative_to(runs_dir).relative_to(path.parents[1].name)
        if first != path:
            path.hardlink_to(first)
            return
        table = connection.sql(
            _ROWS,
            params={
                "salt": salt,
                "count": count,
                "group": group,
                "questions_repeat": repeat,
                "right": right,
            },
        ).to_arrow_table()
        pq.write_table(table.cast(SCHEMA), path, compression="zstd", compression_level=1)

    for number in range(RUNS):
        directory = runs_dir / f"run-{number}"
        (directory / "evaluations").mkdir(parents=True)
        settings = {"base_model": "invented", "group_size": 8, "max_steps": steps}
        identity = {"run_id": f"{number:012d}", "created_at": "2030-01-01T00:00:00+00:00"}
        (directory / "run.json").write_text(json.dumps({**identity, "settings": settings}))
        with (directory / "ledger.jsonl").open("w") as ledger:
            for step in range(1, steps + 1):
                right = 30 + 40 * step // steps
                path = directory / "trajectories" / f"step_{step:05d}.parquet"
                write(path, step, PER_STEP, 8, 1, right)
                line = {
                    "step": step,
                    "policy_ref": f"trio://r/{step - 1}",
                    "state": f"trio://r/{step}",
                    "state_size": 1,
                    "sampler_weights": f"trio://r/s{step}" if step % 50 == 0 else None,
                    "time": "2030-01-01T00:00:00+00:00",
                    "digest": "d",
                    "question_ids": [],
                    "datums": PER_STEP,
                    "updated": True,
                    "metrics": {"reward/mean": right / 100, "time/step_seconds": 30.0},
                }
                ledger.write(json.dumps(line) + "\n")
        for place, checkpoint in enumerate(("base", "step_50", "step_100", "step_150")):
            path = directory / "evaluations" / f"{checkpoint}.parquet"
            # `questions_repeat` makes question ids the same for all evaluations of a run.
            write(path, 1000 + place, evaluated, 1, 1000, 30 + 10 * place)
            description = {
                "evaluation": checkpoint,
                "checkpoint": checkpoint,
                "step": 50 * place,
                "question_set": "full",
                "questions_digest": "same",
                "questions": evaluated,
                "samples": 1,
                "temperature": 0.0,
                "environment": {"search_backend": "local"},
                "environment_fingerprint": "same",
                "settings": {},
                "started_at": "2030-01-01T00:00:00+00:00",
                "finished_at": "2030-01-01T01:00:00+00:00",
                "forced_mixed": False,
                "search": {},
            }
            path.with_suffix(".json").write_text(json.dumps(description))


def measure_load(runs_dir: Path) -> dict[str, float]:
    """Seconds of a first load and of a second one that finds nothing new."""
    started = time.perf_counter()
    load(runs_dir)
    first = time.perf_counter()
    load(runs_dir)
    return {"load": first - started, "load, nothing new": time.perf_counter() - first}


def measure_views(runs_dir: Path) -> dict[str, float]:
    """Seconds to compute each view and fetch all of its rows."""
    seconds = {}
    with open_warehouse(runs_dir) as connection:
        for name in view_names():
            started = time.perf_counter()
            connection.sql(f"FROM {name}").to_arrow_table()
            seconds[name] = time.perf_counter() - started
    return seconds


def _in_process(part: str, runs_dir: Path) -> tuple[dict[str, float], float]:
    """Run one measurement in a process of its own: its seconds, and its peak memory in bytes."""
    command = [sys.executable, __file__, "--part", part, "--folder", str(runs_dir)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    answer = json.loads(output)
    return answer["seconds"], answer["peak_bytes"]


def main() -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Load a million trajectories and compute every view."
    )
    parser.add_argument("--trajectories", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    parser.add_argument("--part", choices=["load", "views"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        measure = measure_load if options.part == "load" else measure_views
        seconds = measure(options.folder)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"seconds": seconds, "peak_bytes": peak}))
        return 0
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        runs_dir = Path(folder)
        started = time.perf_counter()
        write_runs(runs_dir, options.trajectories)
        print(f"written in {time.perf_counter() - started:.0f} s", flush=True)
        load_seconds, load_peak = _in_process("load", runs_dir)
        for name, seconds in load_seconds.items():
            print(f"{name:24} {seconds:8.2f} s")
        view_seconds, view_peak = _in_process("views", runs_dir)
        for name, seconds in view_seconds.items():
            print(f"{name:24} {seconds:8.2f} s")
        total = sum(view_seconds.values())
        with open_warehouse(runs_dir) as connection:
            sizes = {
                name: connection.table(name).shape[0]
                for name in ("trajectories", "turns", "searches")
            }
        print(", ".join(f"{count:,} {name}" for name, count in sizes.items()))
        size = (runs_dir / "warehouse.duckdb").stat().st_size
        print(
            f"all views {total:.2f} s; peak memory: load {load_peak / 1e9:.2f} GB, "
            f"views {view_peak / 1e9:.2f} GB; file {size / 1e9:.2f} GB"
        )
    passed = total <= QUERY_SECONDS and max(load_peak, view_peak) <= MEMORY_BYTES
    limits = f"{QUERY_SECONDS:.0f} s and {MEMORY_BYTES / 1e9:.0f} GB"
    print(f"limits of {limits}: {'met' if passed else 'NOT MET'}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
