"""Flows that run in the process of the tests."""

import asyncio
from collections.abc import Iterator
from typing import Any

from flows.prepare_flow import prepare_data

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from searchr1.embedded import embedded_engine
from searchr1.tiny_policy import MODEL_NAME


@pytest.fixture(scope="module")
def folders(prefect_server, tmp_path_factory) -> Iterator[dict[str, Any]]:
    """Settings that name folders of this module's own, with prepared data in them. One engine
    serves all flows that are started meanwhile."""
    folder = tmp_path_factory.mktemp("flows")
    found = {
        "profile": "local",
        "runs_dir": folder / "runs",
        "data_dir": folder / "data",
        "search_cache_dir": folder / "search",
    }
    server: dict[Any, Any] = {PREFECT_API_URL: prefect_server["PREFECT_API_URL"]}
    with temporary_settings(server), embedded_engine(found["runs_dir"] / ".engine", MODEL_NAME):
        asyncio.run(prepare_data(profile="local", data_dir=found["data_dir"]))
        yield found
