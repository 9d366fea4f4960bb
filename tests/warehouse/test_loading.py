"""The warehouse is what the run directories say, however it came about."""

import json
import logging
import random
import shutil
import threading
from pathlib import Path

import duckdb
import pytest

from searchr1.runs import Run
from searchr1.warehouse import WAREHOUSE, load, open_warehouse, rebuild
from searchr1.warehouse.loader import view_names
from tests.synthetic_run import (
    Skill,
    make_questions,
    make_run,
    make_trajectory,
    start_run,
    write_evaluation,
    write_step,
)

TABLES = (
    *("runs", "steps", "checkpoints", "trajectories", "turns", "searches", "evaluations"),
    *("evaluation_items", "loaded_files"),
)


def contents(runs_dir: Path) -> dict[str, list[str]]:
    """Every row of every table and view, in an order of its own. Sums of fractions depend on the
    order of rows in their last bits, so fractions are rounded."""

    def plain(value: object) -> object:
        return float(f"{value:.10g}") if isinstance(value, float) else value

    with open_warehouse(runs_dir) as connection:
        return {
            name: sorted(
                repr([plain(value) for value in row])
                for row in connection.execute(f"FROM {name}").fetchall()
            )
            for name in (*TABLES, *view_names())
        }


def counts(runs_dir: Path) -> dict[str, int]:
    """Rows of each table."""
    with open_warehouse(runs_dir) as connection:
        return {
            name: connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0]
            for name in TABLES
        }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs and their warehouse; to be copied, not changed."""
    runs_dir = tmp_path_factory.mktemp("made") / "runs"
    make_run(runs_dir, "first", steps=3, evaluation_questions=14)
    make_run(runs_dir, "second", steps=2, evaluation_questions=7, seed=5, watchdog_at=2)
    load(runs_dir)
    return runs_dir


@pytest.fixture
def runs_dir(made: Path, tmp_path: Path) -> Path:
    """A copy of the two runs and their warehouse."""
    return Path(shutil.copytree(made, tmp_path / "runs"))


def test_every_table_holds_what_the_directories_hold(runs_dir: Path) -> None:
    load(runs_dir)
    found = counts(runs_dir)
    assert found["runs"] == 2
    assert found["steps"] == 4 + 3  # with step 0
    assert found["checkpoints"] == 2
    assert found["evaluations"] == 4
    assert found["evaluation_items"] == 2 * 14 + 2 * 7
    assert found["trajectories"] == 5 * 16 + 42
    run = Run.open(runs_dir, "first")
    stored = run.trajectories(2, "step_1")
    with open_warehouse(runs_dir) as connection:
        for group in stored.groups():
            for trajectory in group.trajectories:
                rows = connection.execute(
                    "SELECT reward, em, answer, tokens, policy_tokens, turns, searches, "
                    "stop_reason FROM trajectories "
                    "WHERE run = 'first' AND phase = 'train' AND step = 2 "
                    "AND question_id = $question AND sample = $sample",
                    {"question": trajectory.question.question_id, "sample": trajectory.index},
                ).fetchall()
                assert rows == [
                    (
                        trajectory.reward,
                        trajectory.em,
                        trajectory.answer,
                        len(trajectory.tokens),
                        sum(trajectory.loss_mask),
                        len(trajectory.turns),
                        len(trajectory.searches),
                        trajectory.stop_reason.value,
                    )
                ]


def test_turns_and_searches_keep_their_order_and_text(runs_dir: Path) -> None:
    load(runs_dir)
    run = Run.open(runs_dir, "first")
    trajectory = max(
        (t for g in run.trajectories(1, "step_0").groups() for t in g.trajectories),
        key=lambda t: len(t.searches),
    )
    key = {"question": trajectory.question.question_id, "sample": trajectory.index}
    where = (
        "JOIN trajectories AS t USING (trajectory_id) WHERE t.run = 'first' AND t.phase = 'train' "
        "AND t.step = 1 AND t.question_id = $question AND t.sample = $sample"
    )
    with open_warehouse(runs_dir) as connection:
        turns = connection.execute(
            f"SELECT turn, kind, text, token_start, token_end FROM turns {where} ORDER BY turn", key
        ).fetchall()
        searches = connection.execute(
            "SELECT turn, query, s.ok, s.observation, s.titles, s.urls, s.cached "
            f"FROM searches AS s {where} ORDER BY search",
            key,
        ).fetchall()
    assert turns == [
        (n, turn.kind, turn.text, turn.start, turn.end) for n, turn in enumerate(trajectory.turns)
    ]
    assert searches == [
        (
            search.turn,
            search.query,
            search.ok,
            search.observation,
            [i.title for i in search.items],
            [i.url for i in search.items],
            search.cached,
        )
        for search in trajectory.searches
    ]


def test_incremental_loads_equal_a_rebuild(made: Path, tmp_path: Path) -> None:
    """Files arrive one after another, with a load after each."""
    runs_dir = tmp_path / "runs"
    files = sorted(
        (
            path
            for path in made.rglob("*")
            if path.is_file() and path.suffix in (".json", ".jsonl", ".parquet")
        ),
        key=lambda path: (path.name != "run.json", path.suffix, path.name),
    )
    for number, file in enumerate(files):
        target = runs_dir / file.relative_to(made)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
        if number % 3 == 0:
            load(runs_dir)
    load(runs_dir)
    grown = contents(runs_dir)
    rebuild(runs_dir)
    assert contents(runs_dir) == grown
    assert grown["trajectories"]


def test_a_load_with_nothing_new_leaves_the_file_alone(runs_dir: Path) -> None:
    path = load(runs_dir)
    before = path.stat().st_ino
    assert load(runs_dir) == path
    assert path.stat().st_ino == before


def test_new_steps_and_changed_files_are_taken_up(runs_dir: Path) -> None:
    load(runs_dir)
    before = counts(runs_dir)
    run = Run.open(runs_dir, "first")
    trajectories = [
        make_trajectory(question, index, Skill.at(1), random.Random(index))
        for question in make_questions(2, "late")
        for index in range(4)
    ]
    write_step(run, 4, trajectories, checkpoint=True)
    load(runs_dir)
    after = counts(runs_dir)
    assert after["steps"] == before["steps"] + 1
    assert after["checkpoints"] == before["checkpoints"] + 1
    assert after["trajectories"] == before["trajectories"] + 8
    grown = contents(runs_dir)
    rebuild(runs_dir)
    assert contents(runs_dir) == grown


def test_a_changed_evaluation_replaces_its_rows(runs_dir: Path) -> None:
    load(runs_dir)
    run = Run.open(runs_dir, "second")
    again = write_evaluation(
        run, "base", make_questions(7, "dev"), Skill(1.0, 1.0, 1.0), checkpoint="base", step=0
    )
    load(runs_dir)
    with open_warehouse(runs_dir) as connection:
        found = connection.execute(
            "SELECT count(*), sum(em::INTEGER) FROM evaluation_items "
            "WHERE run = 'second' AND evaluation = 'base'"
        ).fetchall()
    assert found == [(7, sum(t.em for t in again))]
    grown = contents(runs_dir)
    rebuild(runs_dir)
    assert contents(runs_dir) == grown


def test_a_removed_run_is_removed(runs_dir: Path) -> None:
    load(runs_dir)
    shutil.rmtree(runs_dir / "second")
    load(runs_dir)
    grown = contents(runs_dir)
    assert not any("'second'" in row for rows in grown.values() for row in rows)
    rebuild(runs_dir)
    assert contents(runs_dir) == grown


def test_a_torn_parquet_file_is_left_out_with_a_warning_and_loaded_when_whole(
    runs_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load(runs_dir)
    whole = contents(runs_dir)
    torn = runs_dir / "first" / "trajectories" / "step_00002.parquet"
    content = torn.read_bytes()
    torn.write_bytes(content[: len(content) // 2])
    with caplog.at_level(logging.WARNING):
        load(runs_dir)
    assert "step_00002.parquet is damaged" in caplog.text
    with_torn = contents(runs_dir)
    assert len(with_torn["trajectories"]) == len(whole["trajectories"]) - 16
    rebuild(runs_dir)
    assert contents(runs_dir) == with_torn
    torn.write_bytes(content)
    load(runs_dir)

    def without_times(found: dict[str, list[str]]) -> dict[str, list[str]]:
        return {name: rows for name, rows in found.items() if name != "loaded_files"}

    assert without_times(contents(runs_dir)) == without_times(whole)


def test_a_parquet_file_damaged_inside_does_not_stop_the_others(runs_dir: Path) -> None:
    damaged = runs_dir / "first" / "trajectories" / "step_00001.parquet"
    content = bytearray(damaged.read_bytes())
    content[100:3000] = bytes(2900)
    damaged.write_bytes(content)
    load(runs_dir)
    with open_warehouse(runs_dir) as connection:
        steps = connection.execute(
            "SELECT DISTINCT step FROM trajectories WHERE run = 'first' AND phase = 'train' "
            "ORDER BY step"
        ).fetchall()
    assert steps == [(2,), (3,)]


def test_a_torn_last_line_of_the_ledger_is_ignored_and_a_repeated_step_counts_once(
    runs_dir: Path,
) -> None:
    ledger = runs_dir / "first" / "ledger.jsonl"
    lines = ledger.read_text().splitlines()
    repeated = json.loads(lines[2]) | {"datums": 777}
    ledger.write_text("\n".join([*lines, json.dumps(repeated), '{"step": 9, "policy_r']))
    load(runs_dir)
    with open_warehouse(runs_dir) as connection:
        found = connection.execute(
            "SELECT step, datums FROM steps WHERE run = 'first' ORDER BY step"
        ).fetchall()
    assert [step for step, _ in found] == [0, 1, 2, 3]
    assert found[2] == (2, 777)  # the last line wins


def test_a_torn_evaluation_waits_for_its_description(runs_dir: Path) -> None:
    description = runs_dir / "first" / "evaluations" / "step_3.json"
    text = description.read_text()
    description.write_text(text[:40])
    load(runs_dir)
    with open_warehouse(runs_dir) as connection:
        before = connection.execute("SELECT count(*) FROM evaluation_items").fetchall()
    description.write_text(text)
    load(runs_dir)
    with open_warehouse(runs_dir) as connection:
        after = connection.execute("SELECT count(*) FROM evaluation_items").fetchall()
        steps = connection.execute(
            "SELECT DISTINCT step FROM trajectories WHERE run = 'first' AND evaluation = 'step_3'"
        ).fetchall()
    assert after[0][0] - before[0][0] == 14
    assert steps == [(3,)]


def test_odd_values_become_unknown_and_block_nothing(runs_dir: Path) -> None:
    """Settings change over the years; one strange run must not close the warehouse."""
    description = runs_dir / "first" / "run.json"
    run = json.loads(description.read_text())
    run["created_at"] = "yesterday"
    run["settings"]["group_size"] = "many"
    description.write_text(json.dumps(run))
    ledger = runs_dir / "first" / "ledger.jsonl"
    odd = {"step": 3, "time": "noon", "metrics": {"note": "text"}, "question_ids": None}
    with ledger.open("a") as file:
        file.write(json.dumps(odd) + "\n" + json.dumps({"step": "last"}) + "\n[]\n")
    load(runs_dir)
    with open_warehouse(runs_dir) as connection:
        runs = connection.execute("SELECT run, created_at, group_size FROM runs").fetchall()
        steps = connection.execute(
            "SELECT step, time, metrics FROM steps WHERE run = 'first' AND step = 3"
        ).fetchall()
    assert ("first", None, None) in runs
    assert steps == [(3, None, {"note": None})]


def test_parts_of_unfinished_steps_are_not_loaded(runs_dir: Path) -> None:
    load(runs_dir)
    before = counts(runs_dir)
    finished = runs_dir / "first" / "trajectories" / "step_00001.parquet"
    parts = runs_dir / "first" / "trajectories" / "step_00004.abcdef"
    parts.mkdir()
    shutil.copy(finished, parts / "part.parquet")
    shutil.copy(finished, finished.with_name(".step_00005.parquet.12.part"))
    load(runs_dir)
    assert counts(runs_dir) == before


def test_a_run_without_any_step_loads(tmp_path: Path) -> None:
    start_run(tmp_path / "runs", "young")
    load(tmp_path / "runs")
    assert counts(tmp_path / "runs")["trajectories"] == 0


def test_no_run_at_all_loads(tmp_path: Path) -> None:
    path = load(tmp_path / "runs")
    assert path.exists()
    assert counts(tmp_path / "runs")["runs"] == 0


def test_a_damaged_warehouse_or_one_of_another_version_is_built_again(runs_dir: Path) -> None:
    path = load(runs_dir)
    whole = contents(runs_dir)
    path.write_bytes(b"not a database")
    load(runs_dir)
    assert contents(runs_dir) == whole
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE schema_version SET version = 'other'")
        connection.execute("DELETE FROM trajectories")
    load(runs_dir)
    assert contents(runs_dir) == whole


def test_a_reader_is_not_disturbed_by_loads_and_sees_whole_states_only(runs_dir: Path) -> None:
    load(runs_dir)
    with open_warehouse(runs_dir) as reader:
        before = reader.execute("SELECT count(*) FROM trajectories").fetchall()
        shutil.rmtree(runs_dir / "second")
        load(runs_dir)  # would fail, or block, if it needed the reader's file
        assert reader.execute("SELECT count(*) FROM trajectories").fetchall() == before
        assert reader.execute("SELECT count(*) FROM turns").fetchall()[0][0] > 0
    assert counts(runs_dir)["trajectories"] < before[0][0]


def test_loads_at_the_same_time_take_turns(runs_dir: Path) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            load(runs_dir)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert counts(runs_dir)["runs"] == 2


def test_a_failed_load_leaves_the_old_warehouse(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(runs_dir)
    whole = contents(runs_dir)
    shutil.rmtree(runs_dir / "second")

    def fail(_: object) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr("searchr1.warehouse.loader._create_views", fail)
    with pytest.raises(RuntimeError, match="disk is full"):
        load(runs_dir)
    assert contents(runs_dir) == whole
    leftovers = [p.name for p in runs_dir.iterdir() if ".part" in p.name or p.suffix == ".spill"]
    assert leftovers == []


def test_what_a_killed_load_left_behind_is_removed(runs_dir: Path) -> None:
    part = runs_dir / f".{WAREHOUSE}.0123abcd.part"
    spill = runs_dir / f".{WAREHOUSE}.0123abcd.spill"
    for left_over in (part, part.with_name(f"{part.name}.wal")):
        left_over.write_bytes(b"half")
    spill.mkdir()
    load(runs_dir)
    assert [path.name for path in runs_dir.glob(f".{WAREHOUSE}.*")] == [f".{WAREHOUSE}.lock"]


def test_every_table_column_and_view_is_documented(runs_dir: Path) -> None:
    load(runs_dir)
    with open_warehouse(runs_dir) as connection:
        silent = connection.execute(
            "SELECT table_name || '.' || column_name FROM duckdb_columns() "
            "WHERE comment IS NULL AND table_name IN (SELECT table_name FROM duckdb_tables())"
        ).fetchall()
        tables = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE comment IS NULL"
        ).fetchall()
        views = connection.execute(
            "SELECT view_name FROM duckdb_views() WHERE NOT internal AND comment IS NULL"
        ).fetchall()
        explained = connection.execute(
            "SELECT meaning FROM documentation "
            "WHERE table_name = 'searches' AND column_name = 'after_answer'"
        ).fetchall()
    assert (silent, tables, views) == ([], [], [])
    assert "already held" in explained[0][0]


def test_the_warehouse_lies_in_the_folder_of_runs(runs_dir: Path) -> None:
    assert load(runs_dir) == runs_dir / WAREHOUSE
