"""The circuit breaker, alone and around a service."""

import asyncio
import time

import pytest

from searchr1.search import SearchErrorKind
from searchr1.search.breaker import Admission, CircuitBreaker
from tests.search.answers import answer_with
from tests.search.loopback import Reply

DOWN = Reply(b"", 500)
FAST = {"search_attempts": 1, "search_circuit_failures": 3, "search_circuit_seconds": 0.3}


async def fail(breaker: CircuitBreaker, times: int) -> None:
    for _ in range(times):
        breaker.settle(await breaker.admit(), alive=False)


async def test_failures_in_a_row_open_it_and_a_success_between_them_does_not():
    breaker = CircuitBreaker(3, 60)
    await fail(breaker, 2)
    breaker.settle(Admission.NORMAL, alive=True)
    await fail(breaker, 2)
    assert await breaker.admit() is Admission.NORMAL
    await fail(breaker, 1)
    assert await breaker.admit() is Admission.REFUSED


async def test_what_says_nothing_about_the_service_changes_nothing():
    breaker = CircuitBreaker(1, 60)
    breaker.settle(Admission.NORMAL, alive=None)
    assert await breaker.admit() is Admission.NORMAL


@pytest.mark.parametrize(("alive", "then"), [(True, Admission.NORMAL), (False, Admission.REFUSED)])
async def test_one_probe_decides_for_those_that_wait(alive, then):
    breaker = CircuitBreaker(1, 0.05)
    await fail(breaker, 1)
    await asyncio.sleep(0.06)
    assert await breaker.admit() is Admission.PROBE
    waiting = [asyncio.create_task(breaker.admit()) for _ in range(3)]
    await asyncio.sleep(0.02)
    assert not any(task.done() for task in waiting)
    breaker.settle(Admission.PROBE, alive=alive)
    assert await asyncio.gather(*waiting) == [then] * 3


async def test_a_probe_that_is_cancelled_hands_over():
    breaker = CircuitBreaker(1, 0.05)
    await fail(breaker, 1)
    await asyncio.sleep(0.06)
    assert await breaker.admit() is Admission.PROBE
    waiting = asyncio.create_task(breaker.admit())
    await asyncio.sleep(0)
    breaker.settle(Admission.PROBE, alive=None)
    assert await waiting is Admission.PROBE


async def test_an_outage_is_left_alone_and_found_over_by_one_probe(serving):
    async with serving("deepseek", DOWN, **FAST) as (server, backend):
        down = [await backend.search(f"q{n}") for n in range(6)]
        assert [result.error for result in down] == [SearchErrorKind.SERVER_ERROR] * 3 + [
            SearchErrorKind.CIRCUIT_OPEN
        ] * 3
        assert len(server.requests) == 3 and down[-1].seconds < 0.1
        outage = backend.take_statistics().outage(max_share=1.0)
        assert outage is not None and "circuit_open 3" in str(outage)

        await asyncio.sleep(0.35)
        still = await asyncio.gather(*(backend.search(f"r{n}") for n in range(4)))
        assert len(server.requests) == 4  # the probe, and nothing else
        assert SearchErrorKind.CIRCUIT_OPEN in [result.error for result in still]

        await asyncio.sleep(0.35)
        server.now(answer_with("deepseek", delay=0.1))
        back = await asyncio.gather(*(backend.search(f"s{n}") for n in range(4)))
    assert all(result.ok for result in back)
    assert backend.take_statistics().outage(max_share=1.0) is not None  # of the time before
    assert backend.take_statistics().outage(max_share=1.0) is None


async def test_a_probe_is_a_single_request(serving):
    options = FAST | {"search_attempts": 2}
    async with serving("deepseek", DOWN, **options) as (server, backend):
        for number in range(3):
            await backend.search(f"q{number}")
        await asyncio.sleep(0.35)
        probe = await backend.search("probe")
    assert probe.requests == 1 and len(server.requests) == 7


async def test_refused_queries_do_not_open_it_and_prove_that_the_service_lives(serving):
    async with serving("deepseek", Reply(b"", 422), **FAST) as (server, backend):
        for number in range(5):
            await backend.search(f"q{number}")
        assert len(server.requests) == 5
        server.now([DOWN, DOWN, Reply(b"", 400), DOWN, DOWN, answer_with("deepseek")])
        results = [await backend.search(f"r{n}") for n in range(6)]
    assert results[-1].ok


async def test_searches_that_queue_when_it_opens_fail_without_a_request(serving):
    options = FAST | {"search_concurrency": 1, "search_circuit_seconds": 30}
    began = time.perf_counter()
    async with serving("deepseek", Reply(b"", 500, delay=0.05), **options) as (server, backend):
        results = await asyncio.gather(*(backend.search(f"q{n}") for n in range(20)))
    assert len(server.requests) == 3 and time.perf_counter() - began < 10
    assert [result.error for result in results].count(SearchErrorKind.CIRCUIT_OPEN) == 17
