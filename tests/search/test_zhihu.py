"""Zhihu's global search: codes inside HTTP 200, and keys in turn."""

import time
from email.utils import formatdate

import pytest

from searchr1.errors import SettingsError
from searchr1.search import SearchErrorKind, SearchFatalError, create_backend
from tests.search.answers import answer_with
from tests.search.conftest import KEY
from tests.search.loopback import Loopback, Request, ok


def code(number: int, **more):
    return ok({"Code": number, "Message": "the server's words", "Data": None}, **more)


def keys_used(server: Loopback) -> list[str]:
    return [request.headers["authorization"].removeprefix("Bearer ") for request in server.requests]


async def test_the_request_is_the_documented_one(serving):
    async with serving("zhihu", answer_with("zhihu")) as (server, backend):
        await backend.search("谁")
    request = server.requests[0]
    assert (request.method, request.path) == ("GET", "/api/v1/content/global_search")
    assert request.parameters == {"Query": "谁", "Count": "3", "SearchDB": "all"}
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert abs(int(request.headers["x-request-timestamp"]) - time.time()) < 10


@pytest.mark.parametrize("value", ["a,b,c", "a\nb\nc\n", " a , b ,, c , a"])
async def test_keys_are_used_in_turn(value, make, monkeypatch):
    async with Loopback(answer_with("zhihu")) as server:
        settings = make("zhihu", server.url)
        monkeypatch.setenv("ZHIHU_SEARCH_KEYS", value)
        async with create_backend(settings) as backend:
            for number in range(6):
                await backend.search(f"q{number}")
    assert keys_used(server) == ["a", "b", "c", "a", "b", "c"]


@pytest.mark.parametrize("number", [30001, 30002, 30003])
async def test_a_used_up_key_rests_and_the_next_one_answers(number, make, monkeypatch):
    def answer(request: Request):
        used_up = request.headers["authorization"] == "Bearer a"
        return code(number) if used_up else answer_with("zhihu")

    async with Loopback(answer) as server:
        settings = make("zhihu", server.url, search_attempts=1)
        monkeypatch.setenv("ZHIHU_SEARCH_KEYS", "a,b")
        async with create_backend(settings) as backend:
            results = [await backend.search(f"q{n}") for n in range(3)]
    assert all(result.ok for result in results)
    assert keys_used(server) == ["a", "b", "b", "b"]
    assert [result.rate_limited for result in results] == [1, 0, 0]


async def test_a_rested_key_is_used_again(make):
    async with Loopback([code(30001), answer_with("zhihu")]) as server:
        settings = make("zhihu", server.url, zhihu_cooldown=0.3)
        async with create_backend(settings) as backend:
            result = await backend.search("q")
    assert result.ok and result.seconds >= 0.3


async def test_when_every_key_is_used_up_the_environment_fails_without_a_request(serving):
    async with serving("zhihu", code(30002)) as (server, backend):
        first, second = await backend.search("q1"), await backend.search("q2")
    assert first.error is second.error is SearchErrorKind.RATE_LIMITED
    assert len(server.requests) == 1 and first.seconds < 5


async def test_without_a_cool_down_each_key_is_still_tried_once_an_attempt(serving, monkeypatch):
    monkeypatch.setenv("ZHIHU_SEARCH_KEYS", "a,b")
    async with serving("zhihu", code(30001), zhihu_cooldown=0.0) as (server, backend):
        result = await backend.search("q")
    assert result.error is SearchErrorKind.RATE_LIMITED
    assert sorted(keys_used(server)) == ["a", "a", "b", "b"]  # two attempts


async def test_a_refused_key_is_dropped_while_another_works(make, monkeypatch):
    def answer(request: Request):
        return (
            code(20001) if request.headers["authorization"] == "Bearer a" else answer_with("zhihu")
        )

    async with Loopback(answer) as server:
        settings = make("zhihu", server.url)
        monkeypatch.setenv("ZHIHU_SEARCH_KEYS", "a,b")
        async with create_backend(settings) as backend:
            results = [await backend.search(f"q{n}") for n in range(3)]
    assert all(result.ok for result in results) and keys_used(server).count("a") == 1


async def test_every_key_refused_is_fatal(make, monkeypatch):
    async with Loopback(code(20001)) as server:
        settings = make("zhihu", server.url)
        monkeypatch.setenv("ZHIHU_SEARCH_KEYS", "aa-0123,bb-0123")
        async with create_backend(settings) as backend:
            with pytest.raises(SearchFatalError, match="ZHIHU_SEARCH_KEYS") as caught:
                await backend.search("q")
            with pytest.raises(SearchFatalError):
                await backend.search("another")
    assert caught.value.kind is SearchErrorKind.CREDENTIAL and len(server.requests) == 2
    assert "0123" not in str(caught.value) and "words" not in str(caught.value)


@pytest.mark.parametrize("skew", [900, -900])
async def test_a_wrong_clock_is_named_instead_of_the_key(skew, serving):
    date = formatdate(time.time() + skew, usegmt=True)
    async with serving("zhihu", code(20001, headers={"Date": date})) as (_, backend):
        with pytest.raises(SearchFatalError, match="clock") as caught:
            await backend.search("q")
    assert caught.value.kind is SearchErrorKind.CLOCK


@pytest.mark.parametrize(
    ("number", "kind", "requests"),
    [
        (10001, SearchErrorKind.QUERY_REJECTED, 1),
        (99999, SearchErrorKind.SERVER_ERROR, 2),
    ],
)
async def test_other_codes(number, kind, requests, serving):
    async with serving("zhihu", code(number)) as (server, backend):
        result = await backend.search("q")
    assert result.error is kind and len(server.requests) == requests
    assert "words" not in result.message


@pytest.mark.parametrize("data", [None, {}, {"Items": None}, {"Items": []}])
async def test_code_0_without_items_is_no_results(data, serving):
    async with serving("zhihu", ok({"Code": 0, "Data": data})) as (_, backend):
        result = await backend.search("q")
    assert result.ok and result.items == ()


@pytest.mark.parametrize(
    "body",
    [{"Data": {"Items": []}}, {"Code": 0, "Data": [1]}, {"Code": 0, "Data": {"Items": {"a": 1}}}],
)
async def test_another_envelope_is_a_protocol_error(body, serving):
    async with serving("zhihu", ok(body)) as (_, backend):
        assert (await backend.search("q")).error is SearchErrorKind.PROTOCOL


def test_a_missing_key_names_the_variable(make, monkeypatch):
    settings = make("zhihu", "http://127.0.0.1:1")
    monkeypatch.delenv("ZHIHU_SEARCH_KEYS")
    with pytest.raises(SettingsError, match="ZHIHU_SEARCH_KEYS"):
        create_backend(settings)
