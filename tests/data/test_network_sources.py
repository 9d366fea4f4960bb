"""The hub and ModelScope, with the real libraries against a server on loopback.

The libraries read the service's address when they are imported, so each test is a process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from searchr1.data import load_questions, read_manifest
from searchr1.data.sources.modelscope import REVISION
from tests.data.hub_server import COMMIT, HubServer, hub_server
from tests.data.raw_files import evaluation_rows, rows, write_parquet

ROOT = Path(__file__).parents[2]
SOURCES = ("hub", "modelscope")

PREPARE = """
import json, sys
from searchr1.data import DataSettings, prepare
from searchr1.errors import SearchR1Error
try:
    prepare(DataSettings.model_validate_json(sys.argv[1]))
except SearchR1Error as error:
    print(json.dumps({"error": str(error), "class": error.error_class}))
else:
    print(json.dumps({}))
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HubServer]:
    values = {"train": rows(300), "test": evaluation_rows()}
    files = {}
    for split, found in values.items():
        path = write_parquet(tmp_path / "published" / f"{split}.parquet", found)
        files[path.name] = path.read_bytes()
    with hub_server(files) as running:
        yield running


def prepare(tmp_path: Path, url: str, source: str, **settings: object) -> dict:
    """Run `prepare` in a process of its own; what it printed last."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": url,
        "HF_HOME": str(tmp_path / "huggingface"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "MODELSCOPE_ENDPOINT": url,
        "MODELSCOPE_CACHE": str(tmp_path / "modelscope"),
        "MODELSCOPE_HOME": str(tmp_path / "modelscope-home"),
        "MODELSCOPE_DOWNLOAD_MAX_RETRIES": "1",
        "MODELSCOPE_API_MAX_RETRIES": "0",
        "no_proxy": "127.0.0.1",
    }
    given = {"source": source, "data_dir": str(tmp_path / "data"), **settings}
    done = subprocess.run(
        [sys.executable, "-c", PREPARE, json.dumps(given)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert "SECRET-SERVER-TEXT" not in done.stdout
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("source", SOURCES)
def test_the_published_files_are_fetched_and_recorded(
    tmp_path: Path, server: HubServer, source: str
) -> None:
    assert prepare(tmp_path, server.url, source) == {}
    manifest = read_manifest(tmp_path / "data")
    assert manifest.revision == (COMMIT if source == "hub" else REVISION)
    assert {record.bytes for record in manifest.raw_files.values()} == {
        len(content) for content in server.files.values()
    }
    assert len(load_questions(tmp_path / "data", "train")) == 300
    assert len(load_questions(tmp_path / "data", "dev70")) == 70
    assert "train has 300 rows of nq, published are 79,168" in manifest.warnings
    assert "test has 12 rows of bamboogle, published are 125" in manifest.warnings
    downloads = len(server.downloads)
    server.status = 500
    assert prepare(tmp_path, server.url, source) == {}  # up to date: the network is not asked
    assert len(server.downloads) == downloads == 2


@pytest.mark.parametrize("source", SOURCES)
def test_a_broken_download_leaves_nothing_and_is_taken_up_again(
    tmp_path: Path, server: HubServer, source: str
) -> None:
    server.cut_after = 2000
    found = prepare(tmp_path, server.url, source)
    if found:  # the library gave up; the task layer would retry
        assert found["class"] == "retryable"
        assert not (tmp_path / "data" / "manifest.json").exists()
        assert prepare(tmp_path, server.url, source) == {}
    manifest = read_manifest(tmp_path / "data")
    assert {record.bytes for record in manifest.raw_files.values()} == {
        len(content) for content in server.files.values()
    }
    assert len(server.downloads) == 3
    if source == "modelscope":  # the hub's library keeps pieces of 10 MB, this file is smaller
        assert server.downloads[1][1] == "bytes=2000-"


@pytest.mark.parametrize("source", SOURCES)
def test_a_service_that_cannot_be_reached_is_an_error_to_retry(tmp_path: Path, source: str) -> None:
    found = prepare(tmp_path, "http://127.0.0.1:9", source)
    assert found["class"] == "retryable"
    assert "cannot be reached" in found["error"]
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("source", SOURCES)
def test_a_service_in_trouble_is_an_error_to_retry(
    tmp_path: Path, server: HubServer, source: str
) -> None:
    server.status = 503
    found = prepare(tmp_path, server.url, source)
    assert found["class"] == "retryable"


@pytest.mark.parametrize("source", SOURCES)
def test_a_revision_that_is_not_there_is_an_error_to_repair(
    tmp_path: Path, server: HubServer, source: str
) -> None:
    server.status = 404
    found = prepare(tmp_path, server.url, source, revision="nowhere")
    assert found["class"] == "fatal"
    assert "nowhere" in found["error"] and "--revision" in found["error"]
