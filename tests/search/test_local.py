"""The local back end: corpus, index, ranking."""

import asyncio
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchr1.errors import DataError, SettingsError
from searchr1.search import SearchSettings, create_backend
from searchr1.search.corpus import Document, read_corpus
from searchr1.search.index import CorpusIndex, document_words, main, open_index, words

ROWS = [
    {"id": "a1", "title": "Nore", "text": "Nore is a river that flows into lake Tarn."},
    {"id": "a2", "title": "Tarn", "text": "Tarn is a lake."},
    {"id": "a3", "title": "Holt", "text": "Holt is a town on the river Nore."},
    {"id": "a4", "title": "漢江", "text": "漢江は韓国の川である。"},
]


def write(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "corpus.jsonl", ROWS)


def titles(corpus: Path, query: str, k: int = 3) -> list[str]:
    index, _ = open_index(corpus, corpus.parent / "cache")
    return [document.title for document in index.search(query, k)]


# Corpus files


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz", "corpus.parquet"])
@pytest.mark.parametrize(("id_name", "text_name"), [("id", "text"), ("document_id", "contents")])
def test_every_format_and_column_name_is_read(tmp_path, name, id_name, text_name):
    rows = [{id_name: row["id"], "title": row["title"], text_name: row["text"]} for row in ROWS]
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif name.endswith("gz"):
        path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    else:
        write(path, rows)
    assert list(read_corpus(path)) == [Document(*row.values()) for row in ROWS]


def test_contents_without_a_title_are_taken_apart(tmp_path):
    path = write(tmp_path / "c.jsonl", [{"id": 7, "contents": '"Nore"\nA river.'}])
    assert list(read_corpus(path)) == [Document("7", "Nore", "A river.")]


def test_documents_without_id_are_numbered_and_those_without_words_left_out(tmp_path):
    path = write(tmp_path / "c.jsonl", [{"text": "a"}, {"title": None, "text": " "}, {"text": "b"}])
    assert [document.document_id for document in read_corpus(path)] == ["000000000", "000000002"]


@pytest.mark.parametrize("content", [b"{broken", b"[1]\n", b"\xff\xfe", b'"text"\n'])
@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz", "c.parquet"])
def test_a_damaged_corpus_is_a_data_error_that_names_it(tmp_path, content, name):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=name):
        list(read_corpus(tmp_path / name))


@pytest.mark.parametrize("rows", [[], [{"id": "1", "title": "", "text": " "}], [{"text": "..."}]])
def test_an_empty_corpus_is_refused_and_leaves_no_index(tmp_path, rows):
    path = write(tmp_path / "c.jsonl", rows)
    with pytest.raises(DataError, match="holds no"):
        open_index(path, tmp_path)
    assert [entry for entry in (tmp_path / "indexes").iterdir() if entry.is_dir()] == []


def test_a_corpus_must_be_named_and_exist(tmp_path):
    with pytest.raises(SettingsError, match="search_corpus"):
        create_backend(SearchSettings.model_validate({"search_backend": "local"}))
    with pytest.raises(DataError, match="search_corpus"):
        open_index(tmp_path / "none.jsonl", tmp_path)


# Words and ranking


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A b-c D'e 12 x", ["a", "b", "c", "d", "e", "12", "x"]),
        ("漢江は川 river2川x", ["漢", "江", "は", "川", "river2", "川", "x"]),
        ("Café_1 ΩMEGA", ["café_1", "ωmega"]),
        ("", []),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


def test_the_title_counts_three_times_in_all():
    assert document_words(Document("1", "Nore", "A river.")) == ["nore"] * 3 + ["a", "river"]
    assert document_words(Document("1", "Nore", "Nore flows.")) == ["nore"] * 3 + ["flows"]


def test_the_best_match_comes_first(corpus):
    assert titles(corpus, "river Nore") == ["Nore", "Holt"]
    assert titles(corpus, "lake tarn", 1) == ["Tarn"]
    assert titles(corpus, "川") == ["漢江"]
    assert titles(corpus, "a") == ["Tarn", "Holt", "Nore"]  # one-character words count


@pytest.mark.parametrize("query", ["zebra", "?!", "東京", "", "\x00", "🦊"])
def test_a_query_without_a_known_word_finds_nothing(corpus, query):
    assert titles(corpus, query) == []


def test_more_results_than_documents_are_no_error(corpus):
    assert len(titles(corpus, "a river lake town 川", 1000)) == 4


def test_equally_good_documents_come_by_id(tmp_path):
    rows = [{"id": f"d{n}", "title": f"T{n}", "text": "same words"} for n in (3, 1, 9, 2, 7)]
    path = write(tmp_path / "c.jsonl", rows)
    assert titles(path, "same", 3) == ["T1", "T2", "T3"]
    assert titles(path, "same words", 5) == ["T1", "T2", "T3", "T7", "T9"]


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> CorpusIndex:
    folder = tmp_path_factory.mktemp("local")
    return open_index(write(folder / "corpus.jsonl", ROWS), folder)[0]


@given(query=st.text(), k=st.integers(1, 9))
def test_no_query_raises(index, query, k):
    assert len(index.search(query, k)) <= min(k, 4)


# The index folder


def test_the_index_is_built_once_and_anew_for_another_corpus(corpus):
    cache = corpus.parent / "cache"
    open_index(corpus, cache)
    (folder,) = (entry for entry in (cache / "indexes").iterdir() if entry.is_dir())
    built = folder.stat().st_mtime_ns
    open_index(corpus, cache)
    assert folder.stat().st_mtime_ns == built
    write(corpus, [*ROWS, {"id": "a5", "title": "New", "text": "news"}])
    assert titles(corpus, "news") == ["New"]


def test_leftovers_of_a_build_that_was_killed_are_cleared(corpus):
    cache = corpus.parent / "cache"
    open_index(corpus, cache)
    (folder,) = (entry for entry in (cache / "indexes").iterdir() if entry.is_dir())
    leftover = folder.rename(folder.with_name(f"{folder.name}.part-x1"))
    assert titles(corpus, "lake tarn", 1) == ["Tarn"]
    assert folder.is_dir() and not leftover.exists()


def test_processes_that_start_together_build_one_index(corpus):
    program = (
        "import sys; from pathlib import Path; from searchr1.search.index import open_index\n"
        "index, _ = open_index(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "print([document.title for document in index.search('river Nore', 3)])"
    )
    cache = corpus.parent / "cache"
    command = [sys.executable, "-c", program, str(corpus), str(cache)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0].strip() for process in processes]
    assert outputs == ["['Nore', 'Holt']"] * 2
    assert len([entry for entry in (cache / "indexes").iterdir() if entry.is_dir()]) == 1


def test_the_command_builds_an_index(corpus, capsys):
    assert main([str(corpus), "--search-cache-dir", str(corpus.parent / "cache")]) == 0
    assert "4 documents" in capsys.readouterr().out
    assert main([str(corpus.parent / "none.jsonl")]) == 1
    assert "search_corpus" in capsys.readouterr().err


# The back end


async def test_search_answers_clean_items(tmp_path, make):
    row = {"id": "1", "title": "Tom &amp; Jerry", "text": "<em>cartoon</em> of the &#39;40s"}
    path = write(tmp_path / "c.jsonl", [row, {"id": "2", "title": "Title only", "text": ""}])
    async with create_backend(make("local", search_corpus=path)) as backend:
        found, titled = await backend.search("cartoon"), await backend.search("only")
        nothing = await backend.search("zebra")
    assert [(item.title, item.text) for item in found.items] == [
        ("Tom & Jerry", "cartoon of the '40s")
    ]
    assert [item.text for item in titled.items] == ["Title only"]
    assert nothing.ok and nothing.items == () and found.cost == 0.0 and found.requests == 0


async def test_a_large_corpus_does_not_hold_up_the_event_loop(tmp_path, make):
    rows = [{"id": str(n), "title": f"t{n}", "text": "word " * (n % 7)} for n in range(12_000)]
    path = write(tmp_path / "c.jsonl", rows)
    async with create_backend(make("local", search_corpus=path)) as backend:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        ticking = asyncio.create_task(tick())
        result = await backend.search("word t5")
        ticking.cancel()
    assert len(result.items) == 3 and ticks > 3


def test_the_fingerprint_is_that_of_the_corpus_and_not_of_its_place(tmp_path, make):
    first = write(tmp_path / "one.jsonl", ROWS)
    second = write(tmp_path / "two.jsonl", ROWS)
    third = write(tmp_path / "three.jsonl", ROWS[:2])
    prints = [
        create_backend(make("local", search_corpus=path)).fingerprint
        for path in (first, second, third)
    ]
    assert prints[0] == prints[1] != prints[2]
