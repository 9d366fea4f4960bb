"""Settings that keep to a test's own folder, and an environment without anybody's keys."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from searchr1.search import SearchEnvironment, SearchSettings, create_backend
from tests.search.loopback import Answering, Loopback

KEY = "sk-test-0123456789abcdef-SECRET"

_VARIABLES = (
    "DEEPSEEK_API_KEY",
    "DEEPSEEK_KEY",
    "DEEPSEEK_BASE_URL",
    "WIKIPEDIA_CONTACT",
    "WIKIPEDIA_API_URL",
    "ZHIHU_SEARCH_KEYS",
    "ZHIHU_SEARCH_KEY",
    "ZHIHU_ACCESS_SECRET",
    "ZHIHU_BASE_URL",
)


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SearchSettings]:
    """`make("deepseek", url, …)`: settings of a back end whose service is at `url`, with a key.

    Two attempts and short times, unless a test says otherwise.
    """

    def build(backend: str, url: str = "", **more: Any) -> SearchSettings:
        if backend == "deepseek":
            monkeypatch.setenv("DEEPSEEK_API_KEY", KEY)
            monkeypatch.setenv("DEEPSEEK_BASE_URL", url)
        elif backend == "wikipedia":
            monkeypatch.setenv("WIKIPEDIA_CONTACT", "someone@example.org")
            monkeypatch.setenv("WIKIPEDIA_API_URL", f"{url}/w/api.php")
        elif backend == "zhihu":
            monkeypatch.setenv("ZHIHU_SEARCH_KEYS", os.environ.get("ZHIHU_SEARCH_KEYS", KEY))
            monkeypatch.setenv("ZHIHU_BASE_URL", url)
        elif backend == "retriever":
            more["retriever_url"] = url
        given = {
            "search_backend": backend,
            "search_cache": "off",
            "search_cache_dir": tmp_path / "cache",
            "search_rate_dir": tmp_path / "rate",
            "search_attempts": 2,
            "search_timeout": 2.0,
            "search_total_timeout": 20.0,
            "search_circuit_failures": 1000,
            **more,
        }
        return SearchSettings.model_validate(given)

    return build


@pytest.fixture
def serving(
    make: Callable[..., SearchSettings],
) -> Callable[..., AbstractAsyncContextManager[tuple[Loopback, SearchEnvironment]]]:
    """`async with serving("deepseek", answer, …) as (server, backend)`: a back end whose service
    is a loopback server that answers so."""

    @asynccontextmanager
    async def start(
        backend: str, answer: Answering, **more: Any
    ) -> AsyncIterator[tuple[Loopback, SearchEnvironment]]:
        async with (
            Loopback(answer) as server,
            create_backend(make(backend, server.url, **more)) as environment,
        ):
            yield server, environment

    return start
