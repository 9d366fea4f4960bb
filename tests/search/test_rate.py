"""The requests a minute that processes share."""

import asyncio
import os
import subprocess
import sys
import time

import pytest

from searchr1.errors import SettingsError
from searchr1.search import SearchErrorKind, create_backend
from searchr1.search.rate import SharedRate
from tests.search.answers import answer_with
from tests.search.loopback import Loopback, Reply

TAKER = """
import asyncio, sys, time
from pathlib import Path
from searchr1.search.rate import SharedRate

async def main():
    rate = SharedRate(Path(sys.argv[1]), 15, seconds=1.0)
    end = time.time() + 3.0
    while time.time() < end:
        await rate.take()
        print(time.time())

asyncio.run(main())
"""

SEARCHER = """
import asyncio, sys
from pathlib import Path
from searchr1.search import SearchSettings, create_backend

async def main():
    settings = SearchSettings(search_backend="wikipedia", search_cache="off",
        search_rate_dir=Path(sys.argv[1]), search_requests_per_minute=12,
        search_total_timeout=3.0, search_concurrency=8)
    async with create_backend(settings) as backend:
        results = await asyncio.gather(*(backend.search(f"{sys.argv[2]} {n}") for n in range(8)))
        print(sum(result.ok for result in results))

asyncio.run(main())
"""


def test_four_processes_together_keep_to_any_window_of_the_rate(tmp_path):
    command = [sys.executable, "-c", TAKER, str(tmp_path / "rate.sqlite")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = [process.communicate(timeout=60)[0].split() for process in processes]
    taken = sorted(float(line) for output in outputs for line in output)
    # A little less than the window: a process may be held up between its turn and its clock.
    busiest = max(sum(start <= at < start + 0.9 for at in taken) for start in taken)
    assert busiest <= 15 and len(taken) >= 30


async def test_four_processes_of_a_back_end_send_no_more_than_their_common_rate(tmp_path):
    async with Loopback(answer_with("wikipedia")) as server:
        environment = os.environ | {
            "WIKIPEDIA_CONTACT": "a@example.org",
            "WIKIPEDIA_API_URL": server.url,
        }
        processes = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", SEARCHER, str(tmp_path), str(number)),
                stdout=subprocess.PIPE,
                env=environment,
            )
            for number in range(4)
        ]
        outputs = [(await process.communicate())[0] for process in processes]
    assert len(server.requests) == 12 == sum(int(output) for output in outputs)


async def test_a_retry_takes_from_the_rate_as_well(serving):
    options = {"search_requests_per_minute": 2, "search_total_timeout": 2.0}
    async with serving("deepseek", Reply(b"", 500), **options) as (server, backend):
        first, second = await backend.search("a"), await backend.search("b")
    assert len(server.requests) == 2 and first.requests == 2
    assert second.error is SearchErrorKind.QUEUE_TIMEOUT and second.requests == 0
    assert "search_requests_per_minute" in second.message and second.waited > 1


async def test_kept_answers_take_nothing_from_the_rate(serving):
    options = {"search_requests_per_minute": 1, "search_cache": "use"}
    async with serving("deepseek", answer_with("deepseek"), **options) as (_, backend):
        results = [await backend.search("q") for _ in range(5)]
    assert all(result.ok for result in results)


async def test_taking_does_not_hold_up_the_event_loop(tmp_path):
    rate = SharedRate(tmp_path / "rate.sqlite", 2, seconds=0.5)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    began = time.perf_counter()
    await asyncio.gather(*(rate.take() for _ in range(5)))
    took = time.perf_counter() - began
    ticking.cancel()
    rate.close()
    assert took >= 0.9 and ticks > 20


def test_a_folder_that_cannot_be_written_is_a_settings_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="search_rate_dir"):
        SharedRate(tmp_path / "file" / "rate.sqlite", 1)


@pytest.mark.parametrize("backend", ["retriever"])
async def test_a_back_end_without_a_rate_keeps_no_log(backend, serving, tmp_path):
    async with serving(backend, answer_with(backend)) as (_, environment):
        await environment.search("q")
    assert not (tmp_path / "rate").exists()


async def test_the_rate_of_one_back_end_is_not_that_of_another(make):
    async with Loopback(answer_with("deepseek")) as one, Loopback(answer_with("zhihu")) as two:
        rate = {"search_requests_per_minute": 1, "search_total_timeout": 2.0}
        for backend, server in (("deepseek", one), ("zhihu", two)):
            async with create_backend(make(backend, server.url, **rate)) as environment:
                assert (await environment.search("q")).ok
