"""The preparation as a Prefect flow, against a real Prefect server."""

import json
import time

import httpx

from searchr1.data import read_manifest
from tests.data.hub_server import hub_server
from tests.data.raw_files import evaluation_rows, rows, write_parquet

STAGES = ("fetch", "clean", "split", "verify")


def artifact(flows) -> list[dict]:
    """The rows of the latest table artifact."""
    url = f"{flows.environment['PREFECT_API_URL']}/artifacts/prepared-questions/latest"
    return json.loads(httpx.get(url).raise_for_status().json()["data"])


def test_the_stages_run_once_and_leave_a_table_of_what_was_found(flows, tmp_path):
    first = flows.run("prepare_flow", "--source", "world", "--jsonl")
    for stage in STAGES:
        assert f"'{stage}" in first
    manifest = read_manifest(tmp_path / "data")
    found = {(row["about"], row["of"]): row["value"] for row in artifact(flows)}
    assert found["questions, train", "two_hop"] == manifest.rows["train"]["two_hop"] == 360
    assert found["also evaluation questions", "kept in train"] == 0
    assert found["question length, characters", "max"] == manifest.question_characters["max"]
    assert found["answers per question", "mean"] == 1

    again = flows.run("prepare_flow", "--source", "world", "--jsonl")
    assert "is up to date: nothing to do" in again
    for stage in STAGES:
        assert f"'{stage}" not in again


def test_a_network_fault_is_retried_and_bad_data_is_not(flows, tmp_path):
    published = {}
    for split, values in (("train", rows(300)), ("test", evaluation_rows())):
        path = write_parquet(tmp_path / "published" / f"{split}.parquet", values)
        published[path.name] = path.read_bytes()
    with hub_server(published) as server:
        flows.environment |= {
            "MODELSCOPE_ENDPOINT": server.url,
            "MODELSCOPE_CACHE": str(tmp_path / "modelscope"),
            "MODELSCOPE_DOWNLOAD_MAX_RETRIES": "0",
            "MODELSCOPE_API_MAX_RETRIES": "0",
        }
        server.status = 503
        process = flows.start("prepare_flow", "--source", "modelscope")
        try:
            deadline = time.monotonic() + 120
            while not server.requests:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
            time.sleep(1)
            server.status = None
            output, _ = process.communicate(timeout=180)
        finally:
            process.kill()
    assert process.returncode == 0, output
    assert "Retry" in output and "ModelScope cannot be reached" in output
    assert "warning: train has 300 rows of nq, published are 79,168" in output
    assert read_manifest(tmp_path / "data").rows["train"] == {"nq": 300}

    write_parquet(tmp_path / "own" / "train.parquet", [*rows(3, split="x"), {"question": ""}])
    write_parquet(tmp_path / "own" / "test.parquet", evaluation_rows())
    output = flows.run(
        *("prepare_flow", "--source", "files", "--source-files", str(tmp_path / "own")), status=1
    )
    assert "1 blank_question" in output and "Retry" not in output
