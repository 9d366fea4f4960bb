"""Health of a period."""

import pytest

from searchr1.search import SearchErrorKind, SearchResult
from searchr1.search.statistics import SearchMeter, summarise
from searchr1.trajectory import SearchItem
from tests.search.answers import answer_with
from tests.search.loopback import Reply

ITEM = SearchItem("Ada", "A mathematician.", "")


def good(seconds: float = 1.0, **more) -> SearchResult:
    return SearchResult(True, (ITEM, ITEM), seconds=seconds, requests=1, cost=0.001, **more)


def bad(kind: SearchErrorKind, **more) -> SearchResult:
    return SearchResult(False, error=kind, message="x", **more)


def test_rates_are_shares_of_the_periods_searches():
    results = [
        good(1.0, dropped=3),
        good(3.0, rate_limited=2, timeouts=1),
        SearchResult(True, (ITEM,), cached=True, seconds=0.001),
        SearchResult(True, (), joined=True, seconds=2.0),
        bad(SearchErrorKind.TIMEOUT, seconds=9.0, requests=4, timeouts=4),
        bad(SearchErrorKind.BAD_QUERY),
        bad(SearchErrorKind.RATE_LIMITED, seconds=2.0, requests=4, rate_limited=4),
        bad(SearchErrorKind.QUEUE_TIMEOUT, seconds=60.0, waited=60.0),
    ]
    metrics = summarise(results).metrics()
    expected = {
        "search/searches": 8,
        "search/success_rate": 4 / 8,
        "search/error_rate": 4 / 8,
        "search/environment_error_rate": 3 / 8,
        "search/429_rate": 2 / 8,
        "search/timeout_rate": 2 / 8,
        "search/cache_hit_rate": 1 / 8,
        "search/join_rate": 1 / 8,
        "search/empty_rate": 1 / 8,
        "search/requests": 10,
        "search/results": 5 / 4,
        "search/characters": 5 * 19 / 4,
        "search/latency": (1 + 3 + 9 + 2) / 4,
        "search/latency_p50": 2.0,
        "search/latency_p95": 9.0,
        "search/latency_max": 9.0,
        "search/waited": 60 / 8,
        "search/dropped_rows": 3,
        "search/cost_usd": 0.002,
        "search/errors/timeout": 1,
        "search/errors/bad_query": 1,
        "search/errors/rate_limited": 1,
        "search/errors/queue_timeout": 1,
    }
    assert metrics == pytest.approx(expected)


def test_quantiles_are_those_of_the_nearest_rank():
    statistics = summarise(good(float(n)) for n in range(1, 101))
    assert (statistics.latency_p50, statistics.latency_p95, statistics.latency_max) == (50, 95, 100)
    one = summarise([good(7.0)])
    assert (one.latency_p50, one.latency_p95) == (7, 7)


def test_a_period_without_searches_reports_no_rates():
    assert summarise([]).metrics() == {"search/searches": 0.0}
    assert summarise([]).outage(0.0) is None


def test_each_period_starts_from_nothing():
    meter = SearchMeter()
    meter.record(bad(SearchErrorKind.TIMEOUT, requests=1, seconds=5.0))
    assert meter.take().failed == 1
    meter.record(good())
    statistics = meter.take()
    assert (statistics.searches, statistics.failed, statistics.latency_max) == (1, 0, 1.0)


@pytest.mark.parametrize(
    ("failed", "of", "kind", "outage"),
    [
        (1, 10, SearchErrorKind.TIMEOUT, False),
        (2, 10, SearchErrorKind.TIMEOUT, True),
        (9, 9, SearchErrorKind.TIMEOUT, False),
        (10, 10, SearchErrorKind.QUERY_REJECTED, False),
        (10, 10, SearchErrorKind.REPLAY_MISS, True),
        (1, 50, SearchErrorKind.CIRCUIT_OPEN, True),
    ],
)
def test_an_outage_is_an_open_circuit_or_too_large_a_share(failed, of, kind, outage):
    results = [bad(kind)] * failed + [good()] * (of - failed)
    error = summarise(results).outage(max_share=0.1)
    assert (error is not None) == outage
    if error is not None:
        assert f"{failed} of {of}" in str(error) and kind in str(error)


async def test_a_back_end_counts_its_searches_per_period(serving):
    replies = [answer_with("deepseek"), Reply(b"", 429), answer_with("deepseek"), Reply(b"", 422)]
    async with serving("deepseek", replies, search_cache="use") as (_, backend):
        for query in ("a", "a", "b", "c"):
            await backend.search(query)
        first = backend.take_statistics()
        await backend.search("a")
        second = backend.take_statistics()
    assert (first.searches, first.success, first.cache_hits, first.met_429) == (4, 3, 1, 1)
    assert first.requests == 4 and first.errors == {SearchErrorKind.QUERY_REJECTED: 1}
    assert first.cost == pytest.approx(2 * 0.00075)
    assert (second.searches, second.cache_hits, second.errors) == (1, 1, {})
