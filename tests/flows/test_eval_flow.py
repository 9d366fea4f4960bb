"""Evaluations: resumed, in shards, written out, and never mixed unawares."""

import asyncio
import json
from typing import Any

from flows.eval_flow import check, evaluate_checkpoints
from flows.train_flow import train

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from searchr1.config import EvalSettings, resolve
from searchr1.errors import SettingsError
from searchr1.runs import Run
from searchr1.trajectory import Trajectory
from searchr1.trajectory_store import read_trajectories


class Evaluations:
    """A run of one step, whose only checkpoint is step_1, and what is evaluated of it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.directory = settings["runs_dir"] / "one" / "evaluations"

    async def run(self, **given: Any) -> list[dict[str, Any]]:
        """Evaluate; the descriptions that were added."""
        before = {one["evaluation"] for one in self.all()}
        await evaluate_checkpoints(**self.settings, **given)
        return [one for one in self.all() if one["evaluation"] not in before]

    def all(self) -> list[dict[str, Any]]:
        return Run.open(self.settings["runs_dir"], "one").evaluations()

    def trajectories(self, one: dict[str, Any]) -> list[Trajectory]:
        return read_trajectories(self.directory / f"{one['evaluation']}.parquet")


@pytest.fixture(scope="module")
def evaluations(folders) -> Evaluations:
    small = {"max_steps": 1, "questions_per_batch": 2, "group_size": 2, "run_name": "one"}
    asyncio.run(train(**folders, **small, swanlab_mode="disabled"))
    return Evaluations(folders)


def shard_runs() -> set[str]:
    """Names of the shards' task runs in Prefect."""
    with get_client(sync_client=True) as client:
        names = [run.name for run in client.read_task_runs(limit=200)]
    return {name for name in names if "shard" in name}


async def test_shards_answer_every_question_once_and_another_run_asks_none_again(
    evaluations, tmp_path
):
    sampling = {"limit": 7, "samples": 2, "temperature": 1.0, "seed": 3}
    added = await evaluations.run(**sampling, shards=3, output=tmp_path)
    found = {(one["checkpoint"], one["questions"], one["samples"]) for one in added}
    assert found == {("base", 7, 2), ("step_1", 7, 2)}
    shards = {f"answer one {label} shard {n}" for label in ("base", "step_1") for n in (1, 2, 3)}
    assert await asyncio.to_thread(shard_runs) == shards
    for one in added:
        rows = evaluations.trajectories(one)
        asked = [(row.question.question_id, row.index) for row in rows]
        assert len(asked) == len(set(asked)) == 14
        *lines, summary = (tmp_path / f"{one['checkpoint']}.jsonl").read_text().splitlines()
        assert [json.loads(line)["exact_match"] for line in lines] == [row.em for row in rows]
        assert json.loads(summary)["evaluated_examples"] == 14
    assert not [path for path in evaluations.directory.iterdir() if path.is_dir()]
    kept = {path: path.stat().st_mtime_ns for path in evaluations.directory.iterdir()}
    assert await evaluations.run(**sampling) == []
    assert await evaluations.run(**sampling, shards=2) == []
    assert await asyncio.to_thread(shard_runs) == shards
    assert {path: path.stat().st_mtime_ns for path in evaluations.directory.iterdir()} == kept


@pytest.mark.slow  # each worker loads everything
async def test_shards_run_in_dask_workers_too(evaluations):
    (one,) = await evaluations.run(limit=4, ckpts="base", shards=2, task_runner="dask", seed=4)
    assert one["questions"] == 4


async def test_workers_of_other_processes_need_a_prefect_server(evaluations):
    dask = resolve(EvalSettings, evaluations.settings | {"task_runner": "dask"})
    await check(dask)
    with (
        temporary_settings(restore_defaults={PREFECT_API_URL}),
        pytest.raises(SettingsError, match="make server"),
    ):
        await check(dask)


@pytest.mark.parametrize("package", ["dask", "ray"])
async def test_a_task_runner_that_is_not_installed_is_refused_at_once(
    evaluations, monkeypatch, package
):
    monkeypatch.setitem(__import__("sys").modules, f"prefect_{package}", None)
    with pytest.raises(SettingsError, match=f"pip install prefect-{package}"):
        await check(resolve(EvalSettings, evaluations.settings | {"task_runner": package}))


async def test_an_interrupted_evaluation_asks_only_the_questions_that_are_left(evaluations):
    given = {"ckpts": "base", "limit": 12, "batch_size": 2, "temperature": 1.0, "seed": 5}
    interrupted = asyncio.create_task(evaluations.run(**given))
    while not (parts := list(evaluations.directory.glob("base.*/*.parquet"))):
        assert not interrupted.done()
        await asyncio.sleep(0.005)
    interrupted.cancel()
    await asyncio.wait([interrupted])
    parts = [part for part in parts if part.exists()]
    assert 1 <= len(parts) < 12
    before = [trajectory for part in parts for trajectory in read_trajectories(part)]
    (one,) = await evaluations.run(**given)
    after = {t.question.question_id: t for t in evaluations.trajectories(one)}
    assert len(after) == 12
    assert all(after[t.question.question_id] == t for t in before)  # its seconds too


async def test_an_interrupted_evaluation_in_shards_stops_asking(evaluations):
    given = {"ckpts": "base", "limit": 40, "batch_size": 1, "temperature": 1.0, "seed": 9}
    interrupted = asyncio.create_task(evaluations.run(**given, shards=2))

    def parts() -> int:
        return len(list(evaluations.directory.glob("base.*/*.parquet")))

    while not parts():
        assert not interrupted.done()
        await asyncio.sleep(0.005)
    interrupted.cancel()
    await asyncio.wait([interrupted])
    await asyncio.sleep(3)
    stopped_at = parts()
    await asyncio.sleep(2)
    assert parts() == stopped_at < 40
    (one,) = await evaluations.run(**given, shards=2)
    assert one["questions"] == 40


async def test_another_environment_evaluates_the_base_model_anew_unless_mixing_is_forced(
    evaluations,
):
    same = {"limit": 3, "seed": 6}
    other = {**same, "max_search_calls": 1}
    first = await evaluations.run(**same)
    (mixed,) = await evaluations.run(**other, force_mixed=True)
    assert (mixed["checkpoint"], mixed["forced_mixed"]) == ("step_1", True)
    (base,) = await evaluations.run(**other)
    assert (base["checkpoint"], base["forced_mixed"]) == ("base", False)
    assert base["environment_fingerprint"] == mixed["environment_fingerprint"]
    (fingerprint,) = {one["environment_fingerprint"] for one in first}
    assert base["environment_fingerprint"] != fingerprint


async def test_a_second_evaluation_of_the_same_is_refused_while_the_first_goes_on(evaluations):
    given = {"ckpts": "base", "limit": 20, "batch_size": 2, "temperature": 1.0, "seed": 7}
    first = asyncio.create_task(evaluations.run(**given))
    while not list(evaluations.directory.glob("base.*/*.parquet")):
        assert not first.done()
        await asyncio.sleep(0.005)
    with pytest.raises(SettingsError, match="is being worked on"):
        await evaluations.run(**given)
    assert len(await first) == 1


async def test_evaluations_that_were_deleted_are_made_again(evaluations):
    given = {"ckpts": "base", "limit": 2, "seed": 8}
    (one,) = await evaluations.run(**given)
    for file in evaluations.directory.glob(f"{one['evaluation']}.*"):
        file.unlink()
    (again,) = await evaluations.run(**given)
    assert again["evaluation"] == one["evaluation"]
    assert len(evaluations.trajectories(again)) == 2
