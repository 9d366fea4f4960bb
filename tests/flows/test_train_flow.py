"""Trainings that stop where a person asked for it, and trainings that begin from another one."""

import shutil
from typing import Any

from flows.train_flow import Stopped, check, refuse_to_go_on, train
from tasks.artifacts import TrainingArtifacts

import pytest
from prefect import flow
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from searchr1.budget import Cost
from searchr1.config import TrainSettings, resolve
from searchr1.errors import DataError, SettingsError
from searchr1.runs import Run, StepRecord
from searchr1.trajectory_store import read_trajectories
from tests.faults.relay import Relay
from tests.synthetic_run import start_run

SMALL = {"questions_per_batch": 2, "group_size": 4, "save_every": 1, "swanlab_mode": "disabled"}
PRICES = {"price_train_tokens": 100.0, "price_sample_tokens": 100.0, "price_prompt_tokens": 100.0}


class Trainings:
    """Small trainings in folders of their own."""

    def __init__(self, folders: dict[str, Any]) -> None:
        self.settings = folders | SMALL

    async def run(self, name: str, max_steps: int, **given: Any) -> dict[int, StepRecord]:
        """Train, to the end or until it stops; the ledger."""
        await train(**self.settings | given, run_name=name, max_steps=max_steps)
        return self.ledger(name)

    def ledger(self, name: str) -> dict[int, StepRecord]:
        return Run.open(self.settings["runs_dir"], name).ledger()


@pytest.fixture(scope="module")
def trainings(folders) -> Trainings:
    return Trainings(folders)


async def test_a_run_stops_before_the_step_that_would_pass_its_limit_and_goes_on_with_more(
    trainings,
):
    first = (await trainings.run("money", 1, **PRICES))[1]
    cost = first.metrics["cost/total_usd"]
    assert cost > 0
    with pytest.raises(Stopped, match="higher --max-cost"):
        await trainings.run("money", 3, **PRICES, max_cost=1.5 * cost)
    assert max(trainings.ledger("money")) == 1
    ledger = await trainings.run("money", 2, **PRICES, max_cost=1000 * cost)
    assert max(ledger) == 2
    assert ledger[1] == first


def test_what_an_outage_spoiled_counts_against_the_limit(tmp_path):
    run = start_run(tmp_path)
    settings = resolve(TrainSettings, {"max_cost": 10.0, "price_sample_tokens": 1e-9})
    refuse_to_go_on(settings, run)
    run.add_spoiled(1, Cost(search=6.0, sampling=5.0, training=0.0).metrics())
    with pytest.raises(Stopped, match=r"has cost USD 11\.00"):
        refuse_to_go_on(settings, run)


async def test_a_collapsed_run_stops_and_goes_on_when_a_person_says_so(trainings):
    broken = {"learning_rate": 3.0, "group_size": 16, "questions_per_batch": 4}
    with pytest.raises(Stopped, match="--on-collapse warn"):
        await trainings.run("collapse", 20, **broken, on_collapse="stop")
    ledger = trainings.ledger("collapse")
    last = max(ledger)
    assert last < 20
    assert ledger[last].metrics["watchdog/dead"] == 1.0
    assert "watchdog/dead" not in ledger[last - 1].metrics
    assert max(await trainings.run("collapse", last + 1, **broken)) == last + 1


async def test_a_fork_begins_where_the_checkpoint_of_another_run_stands(trainings):
    trunk = await trainings.run("trunk", 2)
    other = {"fork_from": "trunk:step_2", "learning_rate": 1e-3}
    fork = await trainings.run("fork", 1, **other)
    assert fork[0].policy_ref == trunk[2].state
    # The same questions and luck, but a policy that has learned.
    assert fork[1].question_ids == trunk[1].question_ids
    assert fork[1].metrics["rollout/mean_logprob"] != trunk[1].metrics["rollout/mean_logprob"]
    assert trainings.ledger("trunk") == trunk
    with pytest.raises(SettingsError, match="step_1, step_2"):
        await trainings.run("none", 1, fork_from="trunk:step_7")
    with pytest.raises(SettingsError, match="fork_from"):
        await trainings.run("fork", 2, **other | {"fork_from": "trunk:step_1"})


async def test_a_run_restored_from_a_backup_goes_on_from_what_it_holds(trainings, tmp_path):
    await trainings.run("restored", 1)
    directory = trainings.settings["runs_dir"] / "restored"
    shutil.copytree(directory, tmp_path / "backup")
    newer = await trainings.run("restored", 2)
    shutil.rmtree(directory)
    shutil.copytree(tmp_path / "backup", directory)
    again = await trainings.run("restored", 2)
    assert again[1] == newer[1]
    assert again[2].question_ids == newer[2].question_ids and again[2].datums
    assert len(read_trajectories(directory / "trajectories" / "step_00002.parquet")) == 8


async def test_trajectories_that_are_gone_are_not_taken_for_a_step_without_gradient(trainings):
    given = {"resume_every": 2, "save_every": 2}
    first = await trainings.run("gone", 2, **given)
    assert not first[1].saved
    directory = trainings.settings["runs_dir"] / "gone"
    ledger = (directory / "ledger.jsonl").read_text().splitlines(keepends=True)
    (directory / "ledger.jsonl").write_text("".join(ledger[:2]))
    (directory / "trajectories" / "step_00001.parquet").unlink()
    with pytest.raises(DataError, match="step 1 are missing"):
        await trainings.run("gone", 2, **given)
    assert list(trainings.ledger("gone")) == [0, 1]


async def test_a_prefect_server_that_takes_no_artifacts_stops_nothing(prefect_server, caplog):
    relay = Relay(prefect_server["PREFECT_API_URL"])
    relay.start()

    @flow
    async def show() -> None:
        relay.away()
        await TrainingArtifacts("a", 3).show({})
        relay.listen()

    through = {
        PREFECT_API_URL: f"http://127.0.0.1:{relay.port}/api",
        PREFECT_CLIENT_MAX_RETRIES: 0,
    }
    with temporary_settings(through):
        await show()
    relay.away()
    assert "the run goes on" in caplog.text


async def test_a_dry_run_forecasts_and_starts_nothing(trainings, capsys):
    given = trainings.settings | PRICES | {"run_name": "never", "dry_run": True, "max_steps": 30}
    with pytest.raises(SystemExit) as ended:
        await check(resolve(TrainSettings, given))
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert '"max_steps": 30' in printed
    assert "USD" in printed and "searches" in printed and "tokens" in printed
    assert await train(**given) == ""
    assert not (trainings.settings["runs_dir"] / "never").exists()
