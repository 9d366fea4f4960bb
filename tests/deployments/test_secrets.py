"""Keys, and what else `.env` holds, reach the environment of a flow run and nothing else."""

import asyncio
import os

from tasks.secrets import VARIABLES, load_secrets

import pytest
from prefect import flow
from prefect.blocks.system import Secret
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.context import FlowRunContext

from searchr1.errors import SettingsError
from tests.deployments.conftest import wait_for


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """No key is set, and none is in a file."""
    monkeypatch.chdir(tmp_path)
    for name in (name for names in VARIABLES for name in names):
        # Set first, so that what the code sets is taken back after the test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_ENDPOINT", "")
    monkeypatch.delenv("HF_ENDPOINT")
    return monkeypatch


@pytest.fixture
def blocks(client):
    """Saves Secret blocks for one test."""
    names = []

    def save(name, value):
        Secret(value=value).save(name, overwrite=True)
        names.append(name)

    yield save
    for name in names:
        document = client.read_block_document_by_name(name, "secret")
        client.delete_block_document(document.id)


@flow
async def load():
    await load_secrets()
    context = FlowRunContext.get()
    assert context and context.flow_run
    return context.flow_run.id


def test_the_environment_wins_then_the_file_then_a_secret_block(
    environment, blocks, client, tmp_path, capsys
):
    environment.setenv("PYTRIO_API_KEY", "key-of-environment")
    environment.setenv("DEEPSEEK_KEY", "other-name-of-environment")
    (tmp_path / ".env").write_text(
        "PYTRIO_API_KEY=key-of-file\n"
        "DEEPSEEK_API_KEY=key-of-file\n"
        "WIKIPEDIA_CONTACT='me$HOME@example.org'\n"
        "HF_ENDPOINT=https://mirror.example.org\n"
        "HOME=/of-file\n"
    )
    blocks("wikipedia-contact", "contact-of-block")
    blocks("zhihu-search-keys", "12345")
    run_id = asyncio.run(load())
    assert os.environ["PYTRIO_API_KEY"] == "key-of-environment"
    assert "DEEPSEEK_API_KEY" not in os.environ  # it would push the other name aside
    assert os.environ["WIKIPEDIA_CONTACT"] == "me$HOME@example.org"
    assert os.environ["ZHIHU_SEARCH_KEYS"] == "12345"
    assert "SWANLAB_API_KEY" not in os.environ
    assert os.environ["HF_ENDPOINT"] == "https://mirror.example.org"
    assert os.environ["HOME"] != "/of-file"

    of_run = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run_id]))

    def logged():
        lines = client.read_logs(of_run)
        return lines if "Finished" in "".join(line.message for line in lines) else None

    lines = wait_for(logged, "log", seconds=30)
    log = "\n".join(line.message for line in lines) + capsys.readouterr().err
    assert "ZHIHU_SEARCH_KEYS is taken from a Prefect Secret block" in log
    assert "WIKIPEDIA_CONTACT is taken from .env" in log
    assert not [v for v in ("12345", "example.org", "-of-environment", "-of-file") if v in log]


def test_a_command_finds_a_block_too_before_it_starts_a_flow(environment, blocks):
    blocks("zhihu-search-keys", "12345")
    asyncio.run(load_secrets())
    assert os.environ["ZHIHU_SEARCH_KEYS"] == "12345"


def test_a_secret_block_that_holds_no_text_is_refused_without_its_value(environment, blocks):
    blocks("swanlab-api-key", {"token": "hidden"})
    with pytest.raises(SettingsError, match="'swanlab-api-key' holds dict") as refused:
        asyncio.run(load())
    assert "hidden" not in str(refused.value)
