"""DeepSeek's search API."""

import pytest

from searchr1.errors import SettingsError
from searchr1.search import Fault, SearchErrorKind, create_backend
from tests.search.answers import ROWS, answer_with
from tests.search.conftest import KEY
from tests.search.loopback import Loopback, ok


async def test_the_request_is_the_documented_one(serving):
    async with serving("deepseek", answer_with("deepseek")) as (server, backend):
        await backend.search("who?")
    request = server.requests[0]
    assert (request.method, request.path) == ("POST", "/v1/tools/search")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.json == {"query": "who?", "count": 3}


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/beta"])
async def test_a_base_url_may_end_as_that_of_the_chat_client(suffix, make, monkeypatch):
    async with Loopback(answer_with("deepseek")) as server:
        settings = make("deepseek", server.url)
        monkeypatch.setenv("DEEPSEEK_BASE_URL", server.url + suffix)
        async with create_backend(settings) as backend:
            assert (await backend.search("q")).ok
    assert server.requests[0].path == "/v1/tools/search"


async def test_the_second_variable_serves_when_the_first_is_empty(make, monkeypatch):
    async with Loopback(answer_with("deepseek")) as server:
        settings = make("deepseek", server.url)
        monkeypatch.setenv("DEEPSEEK_API_KEY", " ")
        monkeypatch.setenv("DEEPSEEK_KEY", "other")
        async with create_backend(settings) as backend:
            await backend.search("q")
    assert server.requests[0].headers["authorization"] == "Bearer other"


def test_a_missing_key_is_an_error_that_names_the_variable(make, monkeypatch):
    settings = make("deepseek", "http://127.0.0.1:1")
    monkeypatch.delenv("DEEPSEEK_API_KEY")
    with pytest.raises(SettingsError, match="DEEPSEEK_API_KEY or DEEPSEEK_KEY"):
        create_backend(settings)


def test_a_key_with_characters_that_no_key_has_is_refused_without_showing_it(make, monkeypatch):
    settings = make("deepseek", "http://127.0.0.1:1")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-caf\u00e9")
    with pytest.raises(SettingsError, match="DEEPSEEK_API_KEY") as caught:
        create_backend(settings)
    assert "sk-caf" not in str(caught.value)


@pytest.mark.parametrize("query", ["x" * 128, "語" * 128, "🦊" * 128])
async def test_a_query_of_128_code_points_is_sent(query, serving):
    async with serving("deepseek", answer_with("deepseek")) as (server, backend):
        assert (await backend.search(query)).ok
    assert server.requests[0].json["query"] == query


async def test_a_longer_query_is_a_tool_error_without_a_request(serving):
    async with serving("deepseek", answer_with("deepseek")) as (server, backend):
        result = await backend.search("x" * 129)
    assert result.error is SearchErrorKind.BAD_QUERY and result.error.fault is Fault.POLICY
    assert "129" in result.message and "128" in result.message and server.requests == []


async def test_null_results_are_no_results_and_free(serving):
    async with serving("deepseek", ok({"results": None})) as (_, backend):
        result = await backend.search("q")
    assert result.ok and result.items == () and result.cost == 0.0


@pytest.mark.parametrize("results", [{"title": "x"}, "text", 7])
async def test_results_that_are_no_list_are_a_protocol_error(results, serving):
    async with serving("deepseek", ok({"results": results})) as (_, backend):
        assert (await backend.search("q")).error is SearchErrorKind.PROTOCOL


async def test_an_error_object_in_a_200_is_a_failure_and_not_an_empty_answer(serving):
    body = {"error": {"message": "busy", "type": "x", "param": None, "code": "x"}, "results": []}
    async with serving("deepseek", [ok(body), answer_with("deepseek")]) as (server, backend):
        result = await backend.search("q")
    assert result.ok and len(result.items) == 2 and len(server.requests) == 2


ROW = {"title": "T", "snippet": "short", "summary": "longer", "content": "page", "url": ""}


@pytest.mark.parametrize(
    ("order", "row", "text"),
    [
        (("snippet", "summary"), ROW, "short"),
        (("snippet", "summary"), ROW | {"snippet": None}, "longer"),
        (("snippet", "summary"), ROW | {"snippet": "  "}, "longer"),
        (("summary", "snippet"), ROW, "longer"),
        (("content", "snippet"), ROW, "page"),
    ],
)
async def test_evidence_is_the_first_field_with_text(order, row, text, serving):
    async with serving("deepseek", ok({"results": [row]}), deepseek_evidence=order) as (
        server,
        backend,
    ):
        result = await backend.search("q")
    assert [item.text for item in result.items] == [text]
    assert server.requests[0].json.get("need_content", False) == ("content" in order)


async def test_an_answer_with_results_costs_its_price(make, serving):
    async with serving("deepseek", answer_with("deepseek", ROWS)) as (server, backend):
        assert (await backend.search("q")).cost == pytest.approx(0.00075)
        async with create_backend(make("deepseek", server.url, search_cost=0.002)) as backend:
            assert (await backend.search("q")).cost == pytest.approx(0.002)


async def test_no_more_items_than_asked_for(serving):
    async with serving("deepseek", answer_with("deepseek", ROWS * 5), search_top_k=4) as (
        server,
        backend,
    ):
        assert len((await backend.search("q")).items) == 4
    assert server.requests[0].json["count"] == 4


def test_the_fingerprint_changes_with_what_changes_answers_and_holds_no_key(make):
    settings = make("deepseek", "http://127.0.0.1:1")
    prints = [
        create_backend(settings.model_copy(update=update)).fingerprint
        for update in (
            {},
            {"search_timeout": 9.0},
            {"search_top_k": 5},
            {"deepseek_evidence": ("summary",)},
        )
    ]
    assert prints[0] == prints[1] and prints[0] not in prints[2:] and prints[2] != prints[3]
    assert KEY not in str(prints)
