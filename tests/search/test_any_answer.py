"""Whatever bytes a server sends, a search ends in a result or a typed error, and keeps the key."""

import asyncio
import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from searchr1.search import SearchFatalError, SearchResult, SearchSettings, create_backend
from searchr1.search.observation import observe
from tests.search.answers import REMOTE, answer_with, body_with
from tests.search.conftest import KEY
from tests.search.loopback import Loopback, Reply

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from([KEY, "<em>", "\ud800", "a" * 3000, "javascript:alert(1)"]),
)
names = st.one_of(
    st.sampled_from(
        ["results", "title", "snippet", "url", "error", "code", "query", "pages", "index", "extract", "batchcomplete", "Code", "Data", "Items", "Title", "ContentText", "Url", "result", "document", "contents", "pageprops", "disambiguation"]
    ),
    st.text(max_size=5),
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def nearly_good(draw: st.DrawFn, backend: str) -> bytes:
    """The body of a good answer in which one place holds anything."""
    body = body_with(backend, [("Ada", "A mathematician.", "https://e.org")])
    places = list(_places(body))
    container, key = draw(st.sampled_from(places))
    container[key] = draw(values)
    return json.dumps(body).encode()


def _places(value):
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def replies(backend: str) -> st.SearchStrategy[Reply]:
    bodies = st.one_of(
        nearly_good(backend),
        values.map(lambda value: json.dumps(value).encode()),
        st.binary(max_size=200),
    )
    headers = st.dictionaries(
        st.sampled_from(["Retry-After", "Date", "Content-Encoding", "Content-Type", "X-Echo"]),
        st.sampled_from(["0", "-1", "nan", "gzip", "br", "text/html", KEY, "\x80\xff", ""]),
        max_size=3,
    )
    status = st.sampled_from([200] * 6 + [201, 301, 400, 401, 402, 403, 404, 418, 429, 500, 599])
    raw = st.binary(max_size=100) | st.binary(max_size=60).map(
        lambda rest: b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n" + rest
    )
    return st.one_of(
        st.builds(Reply, bodies, status, headers),
        st.builds(lambda raw: Reply(raw=raw), raw),
    )


async def outcome(backend: str, reply: Reply) -> SearchResult | SearchFatalError:
    """Of one search whose service answers so."""
    async with Loopback(reply) as server:
        url = f"{server.url}/w/api.php" if backend == "wikipedia" else server.url
        os.environ |= {
            "DEEPSEEK_API_KEY": KEY,
            "DEEPSEEK_BASE_URL": url,
            "WIKIPEDIA_CONTACT": "a@example.org",
            "WIKIPEDIA_API_URL": url,
            "ZHIHU_SEARCH_KEYS": KEY,
            "ZHIHU_BASE_URL": url,
        }
        folder = Path(tempfile.gettempdir()) / f"searchr1-test-{os.getpid()}"
        options = SearchSettings.model_validate(
            {
                "search_backend": backend,
                "search_attempts": 1,
                "search_timeout": 5.0,
                "search_cache_dir": folder / "cache",
                "search_rate_dir": folder,
                "search_requests_per_minute": 1_000_000,
                "search_cache": "record",
                "retriever_url": url,
            }
        )
        async with create_backend(options) as environment:
            try:
                return await environment.search("a query")
            except SearchFatalError as error:
                return error


@pytest.mark.parametrize("backend", REMOTE)
def test_any_answer_ends_in_a_result_or_a_typed_error(backend, monkeypatch):
    for name in ("DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL", "WIKIPEDIA_CONTACT"):
        monkeypatch.setenv(name, "")  # so that the environment is put back in the end
    for name in ("WIKIPEDIA_API_URL", "ZHIHU_SEARCH_KEYS", "ZHIHU_BASE_URL"):
        monkeypatch.setenv(name, "")

    @settings(max_examples=60, deadline=None)
    @given(replies(backend))
    @example(Reply(b'{"results": [{"title": "\\ud800", "snippet": "\\ud83d x"}]}'))
    @example(Reply(b'{"results": ' + b"9" * 5000 + b"}"))
    @example(Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"))
    @example(Reply(raw=b"HTTP/1.1 999 \r\nSet-Cookie: \x00\r\n\r\n"))
    @example(Reply(b"{}", 200, {"Content-Encoding": "deflate"}))
    def check(reply: Reply) -> None:
        result = asyncio.run(outcome(backend, reply))
        if isinstance(result, SearchFatalError):
            assert KEY not in f"{result!r} {result}"
            return
        assert result.ok == (result.error is None)
        assert KEY not in result.message  # a text that a page sent may say anything, ours may not
        if result.ok:
            observe(result, 64, lambda text: list(text.encode()))
        else:
            assert result.items == () and result.message

    check()
    # The check above would be empty if everything failed: a good answer still gets through.
    assert asyncio.run(outcome(backend, answer_with(backend))).ok  # type: ignore[union-attr]
