"""Kept answers: modes, identical queries in flight, several processes, recordings that travel."""

import asyncio
import json
import sqlite3
import subprocess
import sys

import pytest

from searchr1.errors import DataError, SettingsError
from searchr1.search import SearchErrorKind, SearchFatalError, create_backend
from searchr1.search.store import AnswerStore, StoredAnswer, canonical
from searchr1.trajectory import SearchItem
from tests.search.answers import REMOTE, ROWS, answer_with
from tests.search.loopback import Reply


async def test_off_asks_every_time_and_leaves_no_file(serving, tmp_path):
    async with serving("deepseek", answer_with("deepseek")) as (server, backend):
        results = [await backend.search("q") for _ in range(2)]
    assert len(server.requests) == 2 and not any(result.cached for result in results)
    assert not list(tmp_path.rglob("answers.sqlite"))


@pytest.mark.parametrize("backend", REMOTE)
async def test_use_asks_once_over_processes_and_gives_the_same_items(backend, serving, make):
    async with serving(backend, answer_with(backend), search_cache="use") as (server, first):
        asked = await first.search("q")
        settings = make(backend, server.url, search_cache="use")
        async with create_backend(settings) as second:  # as another process would
            again = [await first.search("q"), await second.search("q")]
    assert len(server.requests) == 1 and not asked.cached
    for result in again:
        assert result.ok and result.cached and result.items == asked.items
        assert result.cost == 0.0 and result.requests == 0


async def test_the_query_counts_to_the_letter(serving):
    async with serving("deepseek", answer_with("deepseek"), search_cache="use") as (
        server,
        backend,
    ):
        for query in ("q", "Q", "q ", "q?"):
            assert not (await backend.search(query)).cached
    assert len(server.requests) == 4


@pytest.mark.parametrize("change", [{"search_top_k": 1}, {"deepseek_evidence": ("summary",)}])
async def test_settings_that_change_answers_have_answers_of_their_own(change, serving, make):
    async with serving("deepseek", answer_with("deepseek"), search_cache="use") as (server, one):
        await one.search("q")
        async with create_backend(
            make("deepseek", server.url, search_cache="use", **change)
        ) as two:
            assert not (await two.search("q")).cached
        assert (await one.search("q")).cached


@pytest.mark.parametrize(
    "reply", [Reply(b"", 500), Reply(b"", 422), Reply(b"<html>"), Reply(b"", drop="before")]
)
async def test_failures_are_never_kept(reply, serving):
    replies = [reply, reply, answer_with("deepseek")]
    if reply.status == 422 or reply.body:
        replies = replies[1:]
    async with serving("deepseek", replies, search_cache="use") as (_, backend):
        failed, good = await backend.search("q"), await backend.search("q")
    assert not failed.ok and good.ok and not good.cached


async def test_empty_answers_are_kept(serving):
    async with serving("deepseek", answer_with("deepseek", []), search_cache="use") as (server, b):
        await b.search("q")
        again = await b.search("q")
    assert again.ok and again.cached and again.items == () and len(server.requests) == 1


async def test_record_asks_anew_once_and_replaces(serving, make):
    old, new = answer_with("deepseek", ROWS[:1]), answer_with("deepseek", ROWS[1:])
    async with serving("deepseek", old, search_cache="record") as (server, first):
        await first.search("q")
        server.now(new)
        settings = make("deepseek", server.url, search_cache="record")
        async with create_backend(settings) as second:
            asked, again = await second.search("q"), await second.search("q")
    assert not asked.cached and again.cached and len(server.requests) == 2
    assert [item.title for item in again.items] == [ROWS[1][0]]


@pytest.mark.parametrize("backend", REMOTE)
async def test_replay_needs_no_key_and_no_network(backend, serving, make, monkeypatch):
    async with serving(backend, answer_with(backend), search_cache="record") as (server, recorder):
        asked = await recorder.search("known")
    settings = make(backend, server.url, search_cache="replay")
    for name in ("DEEPSEEK_API_KEY", "WIKIPEDIA_CONTACT", "ZHIHU_SEARCH_KEYS"):
        monkeypatch.delenv(name, raising=False)
    async with create_backend(settings) as replayer:
        known, unknown = await replayer.search("known"), await replayer.search("never asked")
        blank = await replayer.search(" ")
    assert known.ok and known.cached and known.items == asked.items
    assert unknown.error is SearchErrorKind.REPLAY_MISS and "'never asked'" in unknown.message
    assert blank.error is SearchErrorKind.BAD_QUERY
    assert len(server.requests) == 1


def test_replay_without_a_recording_is_a_settings_error(make):
    with pytest.raises(SettingsError, match="search_cache=record"):
        create_backend(make("deepseek", "http://127.0.0.1:1", search_cache="replay"))


async def test_replay_of_another_environment_says_what_there_is(serving, make):
    async with serving("deepseek", answer_with("deepseek"), search_cache="record") as (server, b):
        await b.search("q")
    settings = make("deepseek", server.url, search_cache="replay", search_top_k=7)
    with pytest.raises(SettingsError, match=r"1 answers of.*top_k.: 3") as caught:
        create_backend(settings)
    assert '"top_k": 7' in str(caught.value)


async def test_local_answers_are_kept_only_for_a_recording(make, tmp_path):
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"id": "1", "title": "Nore", "text": "a river"}\n')
    async with create_backend(make("local", search_corpus=corpus, search_cache="use")) as backend:
        results = [await backend.search("river") for _ in range(2)]
    assert not any(result.cached for result in results)
    async with create_backend(
        make("local", search_corpus=corpus, search_cache="record")
    ) as backend:
        await backend.search("river")
    async with create_backend(
        make("local", search_corpus=corpus, search_cache="replay")
    ) as backend:
        assert (await backend.search("river")).cached


# In flight


@pytest.mark.parametrize("mode", ["off", "use", "record"])
async def test_identical_queries_in_flight_make_one_request(mode, serving):
    answer = answer_with("deepseek", delay=0.1)
    async with serving("deepseek", answer, search_cache=mode) as (server, backend):
        results = await asyncio.gather(*(backend.search("q") for _ in range(5)))
        statistics = backend.take_statistics()
    assert len(server.requests) == 1 and len({result.items for result in results}) == 1
    assert sorted(result.joined for result in results) == [False] + [True] * 4
    assert sum(result.cost for result in results) == pytest.approx(0.00075)
    assert (statistics.searches, statistics.joins, statistics.requests) == (5, 4, 1)


async def test_joined_searches_share_a_failure_too(serving):
    async with serving("deepseek", Reply(b"", 401, delay=0.1)) as (server, backend):
        results = await asyncio.gather(
            *(backend.search("q") for _ in range(3)), return_exceptions=True
        )
    assert all(isinstance(result, SearchFatalError) for result in results)
    assert len(server.requests) == 1 and len({id(result) for result in results}) == 3


async def test_a_caller_that_is_cancelled_does_not_take_the_others_with_it(serving):
    answer = answer_with("deepseek", delay=0.2)
    async with serving("deepseek", answer, search_cache="use") as (server, backend):
        first = asyncio.create_task(backend.search("q"))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(backend.search("q"))
        await asyncio.sleep(0.05)
        first.cancel()
        assert (await second).ok
        alone = asyncio.create_task(backend.search("paid"))
        await asyncio.sleep(0.05)
        alone.cancel()
        await asyncio.sleep(0.4)
        assert (await backend.search("paid")).cached  # what was paid for is kept
    assert len(server.requests) == 2


async def test_closing_ends_what_is_in_flight(serving):
    async with serving("deepseek", answer_with("deepseek", delay=30)) as (_, backend):
        waiting = asyncio.create_task(backend.search("q"))
        await asyncio.sleep(0.05)
        await backend.aclose()
        with pytest.raises(asyncio.CancelledError):
            await waiting


# The file

ANSWER = StoredAnswer((SearchItem("T", "text", "https://e.org"),), 0.5, 1.5)


def test_several_processes_write_and_read_one_new_file(tmp_path):
    program = (
        "import sys; from pathlib import Path\n"
        "from searchr1.search.store import *\n"
        "store = AnswerStore(Path(sys.argv[1]))\n"
        "for n in range(50):\n"
        "    store.put('e', f'{sys.argv[2]}-{n}', StoredAnswer((), 0.0, 0.0))\n"
        "    store.put('e', f'shared-{n}', StoredAnswer((), 0.0, 0.0))\n"
        "    assert store.get('e', f'shared-{n}')\n"
    )
    path = tmp_path / "new" / "answers.sqlite"
    command = [sys.executable, "-c", program, str(path)]
    processes = [subprocess.Popen([*command, str(number)]) for number in range(3)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 3
    assert AnswerStore(path).counts() == {"e": 200}


def test_an_export_is_one_sorted_file_that_can_be_imported_elsewhere(tmp_path):
    environment = canonical({"backend": "deepseek", "top_k": 3, "größe": [1.5]})
    store = AnswerStore(tmp_path / "a.sqlite")
    for query in ("b", "a", "ö\n\u2028"):
        store.put(environment, query, ANSWER)
    store.put(canonical({"backend": "other"}), "a", ANSWER)
    for name in ("out.jsonl", "out.jsonl.gz"):
        assert store.export(environment, tmp_path / name) == 3
        other = AnswerStore(tmp_path / f"{name}.sqlite")
        assert other.import_file(tmp_path / name) == other.import_file(tmp_path / name) == 3
        assert other.counts() == {environment: 3}
        assert other.get(environment, "ö\n\u2028") == store.get(environment, "ö\n\u2028")
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["query"] for line in lines[:2]] == ["a", "b"]


@pytest.mark.parametrize(
    "line", ["{", "[]", "{}", '{"environment": {}, "query": "q", "items": [[1]], "cost": 0}']
)
def test_a_damaged_import_changes_nothing(line, tmp_path):
    store = AnswerStore(tmp_path / "a.sqlite")
    store.put("{}", "q", ANSWER)
    store.export("{}", tmp_path / "out.jsonl")
    with (tmp_path / "out.jsonl").open("a") as file:
        file.write(line + "\n")
    other = AnswerStore(tmp_path / "b.sqlite")
    with pytest.raises(DataError, match="line 2"):
        other.import_file(tmp_path / "out.jsonl")
    assert other.counts() == {}


def test_a_file_that_is_no_store_is_a_data_error(tmp_path):
    path = tmp_path / "answers.sqlite"
    path.write_text("this is not a database, and it is long enough to be seen as none" * 20)
    with pytest.raises(DataError, match="cannot be opened"):
        AnswerStore(path)


async def test_a_full_disk_does_not_lose_the_answer(serving, tmp_path, caplog):
    async with serving("deepseek", answer_with("deepseek"), search_cache="use") as (_, backend):
        with sqlite3.connect(tmp_path / "cache" / "answers.sqlite") as other:
            other.execute("create trigger full before insert on answers begin "
                          "select raise(fail, 'database or disk is full'); end")  # fmt: skip
        result = await backend.search("q")
    assert result.ok and len(result.items) == 2 and "could not be kept" in caplog.text


async def test_a_damaged_row_is_asked_again(serving, tmp_path):
    async with serving("deepseek", answer_with("deepseek"), search_cache="use") as (
        server,
        backend,
    ):
        await backend.search("q")
        with sqlite3.connect(tmp_path / "cache" / "answers.sqlite") as other:
            other.execute("update answers set items = '[[1'")
        result = await backend.search("q")
    assert result.ok and not result.cached and len(server.requests) == 2


async def test_two_services_of_one_folder_do_not_share_answers(make, serving):
    answer = answer_with("retriever")
    async with (
        serving("retriever", answer, search_cache="use") as (_, one),
        serving("retriever", answer, search_cache="use") as (_, two),
    ):
        await one.search("q")
        assert not (await two.search("q")).cached
