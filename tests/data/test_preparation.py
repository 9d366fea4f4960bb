"""Preparation from end to end: files, manifest, refusals, and what an interruption leaves."""

import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from searchr1.data import (
    DataSettings,
    DataSource,
    Manifest,
    corpus_path,
    load_questions,
    prepare,
    read_manifest,
)
from searchr1.data.questions import SCHEMA
from searchr1.data.verify import PUBLISHED_ROWS, count_warnings
from searchr1.data.world import build_world
from searchr1.errors import DataError, SettingsError
from tests.data.raw_files import evaluation_rows, row, rows, write_jsonl, write_parquet

ROOT = Path(__file__).parents[2]


def settings(tmp_path: Path, **changes: object) -> DataSettings:
    given = {"source": "files", "source_files": [tmp_path / "raw"], "data_dir": tmp_path / "data"}
    return DataSettings.model_validate(given | changes)


def write_raw(tmp_path: Path, train: list[dict] | None = None) -> None:
    write_jsonl(tmp_path / "raw" / "train.jsonl", rows(300) if train is None else train)
    write_jsonl(tmp_path / "raw" / "test.jsonl", evaluation_rows())


def quiet(line: str) -> None:
    pass


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_the_prepared_files_are_sorted_typed_and_recorded(tmp_path: Path) -> None:
    write_raw(tmp_path)
    manifest = prepare(settings(tmp_path), quiet)
    assert manifest == read_manifest(tmp_path / "data")
    assert manifest.rows["train"] == manifest.rows_read["train"] == {"nq": 300}
    assert set(manifest.rows["dev70"].values()) == {10}
    for name in ("train", "test", "dev70", "dev500"):
        table = pq.read_table(tmp_path / "data" / f"{name}.parquet")
        assert table.schema.equals(SCHEMA)
        ids = table["question_id"].to_pylist()
        assert ids == sorted(ids)
    assert manifest.answers_per_question == {"min": 1, "median": 1, "mean": 1, "max": 1}


def test_questions_are_loaded_by_the_name_of_their_set(tmp_path: Path) -> None:
    write_raw(tmp_path)
    prepare(settings(tmp_path), quiet)
    data = tmp_path / "data"
    first = load_questions(data, "train")[0]
    assert (first.question_id, first.answers, first.source) == ("nq:train_0", ("answer 0",), "nq")
    assert load_questions(data, "full") == load_questions(data, "test")
    assert len(load_questions(data, "dev70")) == 70
    with pytest.raises(DataError, match=r"no question set 'dev71'.*dev70"):
        load_questions(data, "dev71")


def test_a_second_run_with_nothing_changed_does_nothing(tmp_path: Path) -> None:
    write_raw(tmp_path)
    prepare(settings(tmp_path), quiet)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").iterdir()}
    lines: list[str] = []
    prepare(settings(tmp_path), lines.append)
    assert lines == [f"{tmp_path / 'data'} is up to date: nothing to do"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "data").iterdir()} == before


@pytest.mark.parametrize("change", ["raw file", "setting", "prepared file", "manifest"])
def test_a_change_is_prepared_anew(tmp_path: Path, change: str) -> None:
    write_raw(tmp_path)
    expected = prepare(settings(tmp_path), quiet)
    changed = settings(tmp_path)
    if change == "raw file":
        write_raw(tmp_path, rows(301))
    elif change == "setting":
        changed = settings(tmp_path, jsonl=True)
    elif change == "prepared file":
        (tmp_path / "data" / "test.parquet").unlink()
    else:
        (tmp_path / "data" / "manifest.json").write_text("{")
    lines: list[str] = []
    manifest = prepare(changed, lines.append)
    assert "train: 30" in "\n".join(lines)
    assert (manifest == expected) == (change in ("prepared file", "manifest"))
    assert len(load_questions(tmp_path / "data", "train")) == (301 if change == "raw file" else 300)


@pytest.mark.parametrize("name", ["train.parquet", "dev70.parquet"])
def test_a_changed_byte_is_refused(tmp_path: Path, name: str) -> None:
    write_raw(tmp_path)
    prepare(settings(tmp_path), quiet)
    path = tmp_path / "data" / name
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(DataError, match=r"has changed since.*prepare_flow\.py"):
        load_questions(tmp_path / "data", name.removesuffix(".parquet"))


def test_missing_data_is_an_error_that_says_how_to_prepare_it(tmp_path: Path) -> None:
    command = f"python flows/prepare_flow.py --source world --data-dir {tmp_path / 'world'}"
    with pytest.raises(DataError, match=command):
        load_questions(tmp_path / "world", "train")


def test_a_manifest_of_another_version_is_refused(tmp_path: Path) -> None:
    write_raw(tmp_path)
    prepare(settings(tmp_path), quiet)
    path = tmp_path / "data" / "manifest.json"
    values = json.loads(path.read_text())
    del values["files"]
    path.write_text(json.dumps(values))
    with pytest.raises(DataError, match="damaged or of another version"):
        load_questions(tmp_path / "data", "train")


def test_shuffled_input_gives_the_same_bytes(tmp_path: Path) -> None:
    train, test = rows(200) + rows(200, "hotpotqa"), evaluation_rows()
    found = []
    for seed in range(3):
        folder = tmp_path / str(seed)
        order = random.Random(seed)
        write_parquet(folder / "raw" / "train.parquet", order.sample(train, len(train)))
        write_parquet(folder / "raw" / "test.parquet", order.sample(test, len(test)))
        prepare(settings(folder), quiet)
        found.append(content(folder / "data"))
        found[-1].pop("manifest.json")
    assert found[0] == found[1] == found[2]


def test_jsonl_is_written_as_the_seed_does_and_read_back_to_the_same(tmp_path: Path) -> None:
    write_raw(tmp_path)
    prepare(settings(tmp_path, jsonl=True), quiet)
    line = (tmp_path / "data" / "train.jsonl").read_text().splitlines()[0]
    assert json.loads(line) == {
        "id": "train_0",
        "question": "What is number 0 of nq in train?",
        "answers": ["answer 0"],
        "data_source": "nq",
    }
    files = [tmp_path / "data" / name for name in ("train.jsonl", "test.jsonl")]
    prepare(settings(tmp_path, source_files=files, data_dir=tmp_path / "again"), quiet)
    for name in ("train", "test", "dev70"):
        assert load_questions(tmp_path / "again", name) == load_questions(tmp_path / "data", name)


def test_too_many_rejected_rows_fail_with_the_reasons_and_are_listed(tmp_path: Path) -> None:
    write_raw(tmp_path, [*rows(297), row(900, question=""), row(901, golden_answers=None)])
    with pytest.raises(DataError, match=r"2 of 383.*0\.52%.*1 blank_question, 1 no_answer"):
        prepare(settings(tmp_path), quiet)
    listed = (tmp_path / "data" / "rejected.jsonl").read_text().splitlines()
    assert [json.loads(line)["reason"] for line in listed] == ["blank_question", "no_answer"]
    assert [json.loads(line)["row"] for line in listed] == [297, 298]
    assert not (tmp_path / "data" / "manifest.json").exists()
    manifest = prepare(settings(tmp_path, max_rejected_share=0.01), quiet)
    assert manifest.rejected == {"blank_question": 1, "no_answer": 1}


def test_a_rejected_row_within_the_limit_is_counted_and_listed(tmp_path: Path) -> None:
    write_raw(tmp_path, [*rows(300), row(900, golden_answers=[float("nan")])])
    manifest = prepare(settings(tmp_path), quiet)
    assert manifest.rejected == {"no_answer": 1}
    assert json.loads((tmp_path / "data" / "rejected.jsonl").read_text())["id"] == "train_900"


def test_overlap_is_reported_and_removed_on_request(tmp_path: Path) -> None:
    shared = [row(400 + n, question=f"what is number {n} of NQ in test") for n in range(3)]
    write_raw(tmp_path, [*rows(300), *shared])
    lines: list[str] = []
    kept = prepare(settings(tmp_path), lines.append)
    dropped = prepare(settings(tmp_path, drop_overlap=True), lines.append)
    assert (kept.overlap, kept.rows["train"]["nq"]) == (3, 303)
    assert (dropped.overlap, dropped.rows["train"]["nq"]) == (3, 300)
    text = "\n".join(lines)
    assert "3 evaluation questions are also in the training questions" in text
    assert "3 evaluation questions removed from the training questions" in text


def test_a_split_without_questions_is_refused(tmp_path: Path) -> None:
    write_raw(tmp_path, [])
    with pytest.raises(DataError, match="no train questions"):
        prepare(settings(tmp_path), quiet)


def test_flashrag_folders_name_the_source_and_dev_counts_as_test(tmp_path: Path) -> None:
    for source in ("nq", "popqa"):
        for name, split in (("train", "train"), ("dev", "test")):
            lines = rows(20, source, split)
            for line in lines:
                del line["data_source"]
            write_jsonl(tmp_path / "raw" / source / f"{name}.jsonl", lines)
    manifest = prepare(settings(tmp_path), quiet)
    assert manifest.rows["train"] == manifest.rows["test"] == {"nq": 20, "popqa": 20}


def test_other_files_in_a_folder_are_left_alone(tmp_path: Path) -> None:
    write_raw(tmp_path)
    for name in ("contest", "latest", "dev70", "training_log"):
        write_jsonl(tmp_path / "raw" / f"{name}.jsonl", [{"title": "no question"}])
    assert len(prepare(settings(tmp_path), quiet).raw_files) == 2


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    write_raw(tmp_path)
    folder = tmp_path / "it's $data; 数据"
    prepare(settings(tmp_path, data_dir=folder, jsonl=True), quiet)
    assert len(load_questions(folder, "train")) == 300


def test_files_that_are_not_there_or_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="does not exist"):
        prepare(settings(tmp_path), quiet)
    write_jsonl(tmp_path / "raw" / "train.jsonl", rows(3))
    with pytest.raises(SettingsError, match="needs a file of test questions"):
        prepare(settings(tmp_path), quiet)
    other = tmp_path / "train.csv"
    other.write_text("id,question\n")
    with pytest.raises(SettingsError, match=r"neither \.parquet nor \.jsonl"):
        prepare(settings(tmp_path, source_files=[other]), quiet)
    unnamed = write_jsonl(tmp_path / "questions.jsonl", rows(3))
    with pytest.raises(SettingsError, match="Put train, test or dev in its name"):
        prepare(settings(tmp_path, source_files=[unnamed]), quiet)


@pytest.mark.parametrize(
    "changes", [{"source": "web"}, {"world_seed": -1}, {"source_weights": {"nq": 0}}]
)
def test_wrong_settings_fail_before_anything_is_done(changes: dict) -> None:
    with pytest.raises(ValidationError):
        DataSettings.model_validate(changes)


def test_the_folder_follows_from_the_source_unless_it_is_given() -> None:
    assert DataSettings().data_dir == Path("data/hub")
    assert DataSettings(source=DataSource.WORLD).data_dir == Path("data/world")
    assert DataSettings(data_dir=Path("elsewhere")).data_dir == Path("elsewhere")


def test_the_world_brings_its_corpus_and_a_balanced_evaluation_set(tmp_path: Path) -> None:
    manifest = prepare(settings(tmp_path, source="world", source_files=[]), quiet)
    assert manifest.rows["dev70"] == {"one_hop": 35, "two_hop": 35}
    assert sum(manifest.rows["train"].values()) == 600
    assert manifest.overlap == 0 and manifest.rejected == {}
    documents = [json.loads(line) for line in corpus_path(tmp_path / "data").open()]
    world = build_world(17)
    assert [d["document_id"] for d in documents] == [d.document_id for d in world.documents]
    assert set(documents[0]) == {"document_id", "title", "text"}
    titles = {document["title"] for document in documents}
    for question in load_questions(tmp_path / "data", "dev70"):
        assert re.fullmatch(r"(one|two)_hop:[0-9a-f]{12}", question.question_id)
        assert any(title in question.question for title in titles)


def test_another_world_seed_is_prepared_anew(tmp_path: Path) -> None:
    world = {"source": "world", "source_files": []}
    first = prepare(settings(tmp_path, **world), quiet)
    assert prepare(settings(tmp_path, **world, world_seed=18), quiet).revision != first.revision


def test_files_bring_no_corpus(tmp_path: Path) -> None:
    write_raw(tmp_path)
    prepare(settings(tmp_path), quiet)
    with pytest.raises(DataError, match=r"prepared without corpus\.jsonl"):
        corpus_path(tmp_path / "data")


def test_counts_that_differ_from_the_published_ones_are_named() -> None:
    assert count_warnings(DataSource.HUB, PUBLISHED_ROWS) == []
    fewer = {"train": PUBLISHED_ROWS["train"], "test": PUBLISHED_ROWS["test"] | {"nq": 3}}
    warnings = count_warnings(DataSource.MODELSCOPE, fewer)
    assert warnings == ["test has 3 rows of nq, published are 3,610"]
    assert count_warnings(DataSource.FILES, fewer) == []


PREPARE = """
import resource, signal, sys
from pathlib import Path
from searchr1.data import DataSettings, prepare
settings = DataSettings.model_validate_json(sys.argv[1])
limit = int(sys.argv[2])
if limit:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
print("ready", flush=True)
prepare(settings)
"""


def start(tmp_path: Path, file_size_limit: int = 0) -> subprocess.Popen:
    """`prepare` in a process of its own, in which no file may grow beyond the limit."""
    given = settings(tmp_path).model_dump_json()
    process = subprocess.Popen(
        [sys.executable, "-c", PREPARE, given, str(file_size_limit)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def whole_or_refused(tmp_path: Path, expected: Manifest) -> bool:
    """Whether the folder is a whole preparation; if not, reading it must fail."""
    try:
        manifest = read_manifest(tmp_path / "data")
        sets = {
            name: load_questions(tmp_path / "data", name) for name in ("train", "test", "dev70")
        }
    except DataError:
        return False
    assert manifest.rows == expected.rows
    assert {name: len(found) for name, found in sets.items()} == {
        name: sum(expected.rows[name].values()) for name in sets
    }
    return True


def test_a_disk_that_fills_up_leaves_nothing_half_written(tmp_path: Path) -> None:
    write_raw(tmp_path, rows(5000))
    process = start(tmp_path, file_size_limit=20_000)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0 and "Error" in errors
    assert not (tmp_path / "data" / "train.parquet").exists()
    assert not (tmp_path / "data" / "manifest.json").exists()
    assert not list((tmp_path / "data").glob(".*"))
    prepare(settings(tmp_path), quiet)
    assert len(load_questions(tmp_path / "data", "train")) == 5000


def test_a_kill_at_any_moment_leaves_a_whole_preparation_or_none(tmp_path: Path) -> None:
    write_raw(tmp_path, rows(5000))
    expected = prepare(settings(tmp_path, data_dir=tmp_path / "expected"), quiet)
    outcomes = []
    for seconds in (0.1, 0.3, 0.6):
        process = start(tmp_path)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        outcomes.append(whole_or_refused(tmp_path, expected))
    assert not all(outcomes), "no kill came in time"
    prepare(settings(tmp_path), quiet)
    assert whole_or_refused(tmp_path, expected)
    assert (
        content(tmp_path / "data")["train.parquet"]
        == content(tmp_path / "expected")["train.parquet"]
    )
