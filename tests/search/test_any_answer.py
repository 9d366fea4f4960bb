"""Whatever bytes a server sends, a search ends in a result or a typed error, and keeps the key."""

import asyncio
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from searchr1.search import SearchEnvironment, SearchFatalError, SearchResult, create_backend
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
ENVELOPES = [body_with(backend, [("Ada", "x", "https://e.org")]) for backend in REMOTE]


def _places(value):
    """Every (container, key) inside a JSON value."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


names = st.one_of(
    st.sampled_from([key for _, key in _places(ENVELOPES) if isinstance(key, str)]),
    st.sampled_from(["error", "code", "pageprops", "disambiguation"]),
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


class Session:
    """One event loop with one server and one back end for all examples; a back end that met a
    fatal error is replaced, as a run would end there."""

    def __init__(self, backend: str, make) -> None:
        self._backend, self._make = backend, make
        self._runner = asyncio.Runner()
        self._server = Loopback(Reply())
        self._runner.run(self._server.__aenter__())
        self._environment = self._create()
        self._searches = 0

    def _create(self) -> SearchEnvironment:
        url = self._server.url
        options = {
            "search_attempts": 1,
            "search_requests_per_minute": 1_000_000,
            "search_cache": "record",
            "zhihu_cooldown": 0.0,
        }
        return create_backend(self._make(self._backend, url, **options))

    def search(self, reply: Reply) -> SearchResult | SearchFatalError:
        """The outcome of one search whose service answers so."""
        self._server.now(reply)
        self._searches += 1
        try:
            return self._runner.run(self._environment.search(f"query {self._searches}"))
        except SearchFatalError as error:
            self._runner.run(self._environment.aclose())
            self._environment = self._create()
            return error

    def close(self) -> None:
        self._runner.run(self._environment.aclose())
        self._runner.run(self._server.__aexit__())
        self._runner.close()


@pytest.mark.parametrize("backend", REMOTE)
def test_any_answer_ends_in_a_result_or_a_typed_error(backend, make):
    session = Session(backend, make)

    @settings(max_examples=60, deadline=None)
    @given(replies(backend))
    @example(Reply(b'{"results": [{"title": "\\ud800", "snippet": "\\ud83d x"}]}'))
    @example(Reply(b'{"results": ' + b"9" * 5000 + b"}"))
    @example(Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"))
    @example(Reply(raw=b"HTTP/1.1 999 \r\nSet-Cookie: \x00\r\n\r\n"))
    @example(Reply(b"{}", 200, {"Content-Encoding": "deflate"}))
    def check(reply: Reply) -> None:
        result = session.search(reply)
        if isinstance(result, SearchFatalError):
            assert KEY not in f"{result!r} {result}"
            return
        assert result.ok == (result.error is None)
        assert KEY not in result.message
        if result.ok:
            observe(result, 64, lambda text: list(text.encode()))
        else:
            assert result.items == () and result.message

    try:
        check()
        # The check would be empty if everything failed: a good answer still gets through.
        last = session.search(answer_with(backend))
        assert isinstance(last, SearchResult) and last.ok and len(last.items) == 2
    finally:
        session.close()
