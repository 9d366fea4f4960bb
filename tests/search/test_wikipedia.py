"""English Wikipedia by the Action API."""

import pytest

from searchr1.errors import SettingsError
from searchr1.search import Fault, SearchErrorKind, SearchFatalError, create_backend
from tests.search.answers import answer_with
from tests.search.loopback import Reply, ok


def pages(*rows: dict) -> Reply:
    return ok({"batchcomplete": True, "query": {"pages": list(rows)}})


async def test_the_request_is_the_documented_one_and_says_who_asks(serving):
    async with serving("wikipedia", answer_with("wikipedia")) as (server, backend):
        await backend.search("Ada & Charles")
    request = server.requests[0]
    assert (request.method, request.path) == ("GET", "/w/api.php")
    assert request.headers["user-agent"] == "searchr1/0.1.0 (someone@example.org)"
    assert request.headers["accept-encoding"] == "gzip"
    expected = (
        "action=query format=json formatversion=2 generator=search gsrnamespace=0 gsrlimit=6 "
        "prop=extracts|info|pageprops ppprop=disambiguation explaintext=1 exintro=1 exlimit=max "
        "exchars=1200 inprop=url redirects=1 maxlag=5"
    )
    sent = {f"{name}={value}" for name, value in request.parameters.items()}
    assert sent == {*expected.split(), "gsrsearch=Ada & Charles"}


async def test_pages_come_in_rank_order_without_the_empty_ones(serving):
    reply = pages(
        {"index": 2, "title": "B", "extract": "b"},
        {"index": 1, "title": "A", "extract": ""},
        {"index": 3, "title": "C", "missing": True},
    )
    async with serving("wikipedia", reply) as (_, backend):
        result = await backend.search("q")
    assert result.ok and [item.title for item in result.items] == ["B"] and result.dropped == 2


async def test_the_first_three_with_text_are_kept_of_six(serving):
    rows = [
        {"index": n, "title": f"P{n}", "extract": "" if n == 2 else f"text {n}"}
        for n in range(1, 7)
    ]
    async with serving("wikipedia", pages(*reversed(rows))) as (_, backend):
        result = await backend.search("q")
    assert [item.title for item in result.items] == ["P1", "P3", "P4"]


async def test_disambiguation_pages_are_left_out(serving):
    reply = pages(
        {
            "index": 1,
            "title": "Nore",
            "extract": "may refer to",
            "pageprops": {"disambiguation": ""},
        },
        {"index": 2, "title": "River Nore", "extract": "A river.", "fullurl": "https://e.org/n"},
    )
    async with serving("wikipedia", reply) as (_, backend):
        (item,) = (await backend.search("q")).items
    assert (item.title, item.url) == ("River Nore", "https://e.org/n")


@pytest.mark.parametrize("body", [{"batchcomplete": True}, {"batchcomplete": ""}, {}])
async def test_no_query_key_means_no_hit(body, serving):
    async with serving("wikipedia", ok(body)) as (_, backend):
        result = await backend.search("q")
    assert result.ok and result.items == ()


@pytest.mark.parametrize(
    "body",
    [
        {"query": None},
        {"query": {}},
        {"query": {"pages": None}},
        {"query": {"pages": {"12": {"title": "x"}}}},
        {"query": {"pages": [{"title": "no index"}]}},
        {"query": {"pages": ["text"]}},
        [],
        {"batchcomplete": True, "unknown": 1},
    ],
)
async def test_any_other_shape_is_a_failure_and_never_no_results(body, serving):
    async with serving("wikipedia", ok(body)) as (_, backend):
        result = await backend.search("q")
    assert result.error is SearchErrorKind.PROTOCOL and result.error.fault is Fault.ENVIRONMENT


@pytest.mark.parametrize(
    ("code", "kind", "requests"),
    [
        ("srsearch-error", SearchErrorKind.SERVER_ERROR, 2),
        ("internal_api_error_DBQueryError", SearchErrorKind.SERVER_ERROR, 2),
        ("maxlag", SearchErrorKind.SERVER_ERROR, 2),
        ("ratelimited", SearchErrorKind.RATE_LIMITED, 2),
        ("missingparam", SearchErrorKind.QUERY_REJECTED, 1),
        (None, SearchErrorKind.SERVER_ERROR, 2),
    ],
)
async def test_an_error_object_in_a_200_is_a_failure(code, kind, requests, serving):
    body = {"error": {"code": code, "info": "Waiting for a lagged server"}, "servedby": "mw0"}
    async with serving("wikipedia", ok(body)) as (server, backend):
        result = await backend.search("q")
    assert result.error is kind and len(server.requests) == requests
    assert "lagged" not in result.message
    assert result.rate_limited == (2 if code == "ratelimited" else 0)


async def test_maxlag_is_retried_no_sooner_than_it_asks(serving):
    lagged = ok({"error": {"code": "maxlag", "info": "x"}}, headers={"Retry-After": "0.6"})
    async with serving("wikipedia", [lagged, answer_with("wikipedia")]) as (_, backend):
        result = await backend.search("q")
    assert result.ok and result.seconds >= 0.6


async def test_a_list_of_errors_is_an_error_too(serving):
    body = {"errors": [{"code": "blocked", "text": "x"}]}
    async with serving("wikipedia", ok(body)) as (_, backend):
        with pytest.raises(SearchFatalError, match="WIKIPEDIA_CONTACT"):
            await backend.search("q")


async def test_a_query_over_300_characters_is_not_sent(serving):
    async with serving("wikipedia", answer_with("wikipedia")) as (server, backend):
        result = await backend.search("x" * 301)
    assert result.error is SearchErrorKind.BAD_QUERY and server.requests == []


@pytest.mark.parametrize(
    "contact",
    [
        None,
        "",
        "me",
        "https://github.com/org/mylib",
        "mylib (https://github.com/org/mylib)",
        "caf\u00e9@example.org",
        "a@example.org\r\nX-Injected: 1",
    ],
)
def test_it_does_not_start_without_a_contact_of_the_person(contact, make, monkeypatch):
    settings = make("wikipedia", "http://127.0.0.1:1")
    if contact is None:
        monkeypatch.delenv("WIKIPEDIA_CONTACT")
    else:
        monkeypatch.setenv("WIKIPEDIA_CONTACT", contact)
    with pytest.raises(SettingsError, match="WIKIPEDIA_CONTACT"):
        create_backend(settings)


@pytest.mark.parametrize(
    "contact", ["a@b.org", "User:Ada@enwiki", "https://meta.wikimedia.org/wiki/User:Ada"]
)
def test_mail_and_user_pages_are_contacts(contact, make, monkeypatch):
    settings = make("wikipedia", "http://127.0.0.1:1")
    monkeypatch.setenv("WIKIPEDIA_CONTACT", contact)
    assert create_backend(settings).name == "wikipedia"


def test_another_wiki_is_another_environment(make, monkeypatch):
    settings = make("wikipedia", "http://127.0.0.1:1")
    first = create_backend(settings).fingerprint
    monkeypatch.setenv("WIKIPEDIA_API_URL", "https://de.wikipedia.org/w/api.php")
    assert create_backend(settings).fingerprint != first


@pytest.mark.parametrize("url", ["de.wikipedia.org/w/api.php", "file:///etc/passwd", "https://"])
def test_an_address_that_is_none_is_an_error_that_names_the_variable(url, make, monkeypatch):
    settings = make("wikipedia", "http://127.0.0.1:1")
    monkeypatch.setenv("WIKIPEDIA_API_URL", url)
    with pytest.raises(SettingsError, match="WIKIPEDIA_API_URL"):
        create_backend(settings)
