"""Search-R1's own retrieval server."""

import pytest

from searchr1.errors import SettingsError
from searchr1.search import SearchErrorKind, create_backend
from tests.search.answers import answer_with
from tests.search.loopback import Loopback, Reply, ok


@pytest.mark.parametrize("suffix", ["", "/", "/retrieve"])
async def test_the_request_always_asks_for_scores(suffix, make):
    async with Loopback(answer_with("retriever")) as server:
        settings = make("retriever", server.url + suffix)
        async with create_backend(settings) as backend:
            assert (await backend.search("who?")).ok
    request = server.requests[0]
    assert (request.method, request.path) == ("POST", "/retrieve")
    assert request.json == {"queries": ["who?"], "topk": 3, "return_scores": True}


@pytest.mark.parametrize(
    "row",
    [
        {"document": {"id": "1", "contents": '"Nore"\nA river.'}, "score": 9.1},
        {"id": "1", "contents": '"Nore"\nA river.'},
        {"id": "1", "contents": "Nore\nA river."},
        {"document": {"title": "Nore", "text": "A river."}},
        {"title": "Nore", "contents": "A river."},
    ],
)
async def test_documents_are_read_wrapped_or_bare(row, serving):
    async with serving("retriever", ok({"result": [[row]]})) as (_, backend):
        (item,) = (await backend.search("q")).items
    assert (item.title, item.text) == ("Nore", "A river.")


async def test_contents_of_one_line_have_no_title(serving):
    async with serving("retriever", ok({"result": [[{"contents": "A river."}]]})) as (
        _,
        backend,
    ):
        (item,) = (await backend.search("q")).items
    assert (item.title, item.text) == ("", "A river.")


@pytest.mark.parametrize("result", [[], [[], []], {"a": 1}, [{"contents": "x"}], None])
async def test_not_exactly_one_list_for_the_one_query_is_a_protocol_error(result, serving):
    async with serving("retriever", ok({"result": result})) as (_, backend):
        assert (await backend.search("q")).error is SearchErrorKind.PROTOCOL


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x/y", "http://me:secret@127.0.0.1:9"])
def test_a_url_that_is_none_or_holds_a_password_is_a_settings_error(url, make):
    with pytest.raises(SettingsError, match="retriever_url") as caught:
        create_backend(make("retriever", url))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("status", [400, 422])
async def test_a_refusal_is_the_servers_fault_since_any_text_is_a_query(status, serving):
    async with serving("retriever", Reply(b"{}", status)) as (_, backend):
        assert (await backend.search("q")).error is SearchErrorKind.PROTOCOL
