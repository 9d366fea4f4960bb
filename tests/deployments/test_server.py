"""Commands say what is wrong when there is no Prefect server to talk to."""

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from deployments.server import require_server
from tests.conftest import free_port


def test_without_a_server_the_advice_says_how_to_start_one():
    with (
        temporary_settings(restore_defaults={PREFECT_API_URL}),
        pytest.raises(SystemExit, match=r"no Prefect server is set.*prefect server start"),
    ):
        require_server()


def test_a_server_that_does_not_answer_is_named():
    url = f"http://127.0.0.1:{free_port()}/api"
    with (
        temporary_settings({PREFECT_API_URL: url}),
        pytest.raises(SystemExit, match=f"no Prefect server answers at {url}"),
    ):
        require_server()


def test_another_server_at_that_address_is_told_from_none(prefect_server):
    url = prefect_server["PREFECT_API_URL"] + "/no-api"
    with (
        temporary_settings({PREFECT_API_URL: url}),
        pytest.raises(SystemExit, match="answers with HTTP 404"),
    ):
        require_server()


def test_a_server_that_answers_gives_the_address_of_its_ui(client, prefect_server):
    assert require_server() == prefect_server["PREFECT_API_URL"].removesuffix("/api")
