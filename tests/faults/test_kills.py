"""Killed at any point of a step and started again, a training comes to what it would have come to.

The flow's process, the engine, or both are killed (SIGKILL) at a request to the engine, or when
a file appears. What is compared: every line of the ledger, every stored trajectory, the weights
and Adam's state at the end, bit for bit; and the searches that the search server got.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import pytest

from searchr1.runs import read_jsonl
from tests.faults.fault import ENGINE, Action, Fault, When
from tests.faults.outcome import Outcome, finished_queries, outcome
from tests.faults.stage import Stage

pytestmark = pytest.mark.timeout(1800)
Undisturbed = Callable[..., Outcome]


class Victim(StrEnum):
    """Who is killed."""

    FLOW = "flow"
    """The flow's process; it is started again by the same command."""
    ENGINE = "engine"
    """The engine, which comes back after some seconds; the flow has to go on by itself."""
    BOTH = "both"
    """Both; both are started again."""


PATIENT = ("--service-retry-seconds", "60", "--sample-timeout", "60")
"""Long enough for an engine that was killed to come back. With less a request may fail, and where
it is the only one in flight, one trajectory in sixteen is left out, as it should be."""


def kill_at(kind: str, nth: int, when: When = When.ARRIVES) -> Fault:
    return Fault(Action.KILL, kind, nth, when=when)


def after_a_kill(stage: Stage, name: str, fault: Fault, victim: Victim, *settings: str) -> Outcome:
    """The outcome of a training that was killed at `fault`, and that went on."""
    process = stage.start(name, *settings)
    victims = {Victim.FLOW: (process.pid,), Victim.ENGINE: (ENGINE,)}
    both = (process.pid, ENGINE)
    stage.engine.meet(replace(fault, victims=victims.get(victim, both)))
    if victim is Victim.ENGINE:
        printed = stage.end(process, 0)
    else:
        printed = stage.end(process, -signal.SIGKILL)
        go_on(stage, name, *settings)
    assert stage.engine.hits() == 1, printed
    return outcome(stage, name)


def go_on(stage: Stage, name: str, *settings: str) -> str:
    """Start a killed training again; none of its finished groups is searched for again."""
    time.sleep(0.2)  # requests that were on their way have come
    kept, before = finished_queries(stage, name), stage.search.requests
    printed = stage.finish(name, *settings)
    after = finished_queries(stage, name)
    unfinished = sum((queries for group, queries in after.items() if group not in kept), Counter())
    assert stage.search.queries(before) <= unfinished
    return printed


def ledger_lines(stage: Stage, name: str) -> int:
    return len(read_jsonl(stage.runs_dir / name / "ledger.jsonl"))


def stored_groups(stage: Stage, name: str, step: int) -> list[Path]:
    return list((stage.runs_dir / name / "trajectories").glob(f"step_{step:05d}.*/*.parquet"))


def test_killed_between_two_groups_it_samples_and_searches_only_the_unfinished_one(
    stage: Stage, undisturbed: Undisturbed
) -> None:
    expected = undisturbed()
    stage.engine.meet(None)
    process = stage.start("groups")
    stage.kill_when(process, lambda: len(stored_groups(stage, "groups", 2)) == 1)
    printed = go_on(stage, "groups")
    assert "1 finished groups are reused" in printed
    outcome(stage, "groups").assert_equal(expected)


def test_killed_between_the_optimiser_step_and_its_state_an_update_is_applied_once(
    stage: Stage, undisturbed: Undisturbed
) -> None:
    fault = kill_at("submit:save_state", nth=3)  # of step 2; the first one is of step 0
    after_a_kill(stage, "update", fault, Victim.FLOW).assert_equal(undisturbed())


@pytest.mark.faults
def test_with_engine_and_flow_killed_during_an_update_it_is_applied_once(
    stage: Stage, undisturbed: Undisturbed
) -> None:
    fault = kill_at("submit:forward_backward", nth=2, when=When.ANSWERED)
    after_a_kill(stage, "both", fault, Victim.BOTH).assert_equal(undisturbed())


@pytest.mark.faults
def test_when_the_engine_is_killed_after_saving_a_state_the_flow_goes_on_by_itself(
    stage: Stage, undisturbed: Undisturbed
) -> None:
    fault = kill_at("poll:save_state", nth=3, when=When.HANDLED)
    after_a_kill(stage, "engine", fault, Victim.ENGINE).assert_equal(undisturbed())


@pytest.mark.faults
@pytest.mark.parametrize("resume_every", [1, 2])
@pytest.mark.parametrize(
    ("fault", "victim"),
    [
        (kill_at("control:GET verify", 1), Victim.FLOW),
        (kill_at("submit:init_run", 1), Victim.ENGINE),
        (kill_at("submit:save_state", 1, When.ANSWERED), Victim.BOTH),
        (kill_at("submit:save_weights", 2), Victim.FLOW),
        (kill_at("sample", 1), Victim.BOTH),
        (kill_at("sample", 40), Victim.ENGINE),
        (kill_at("poll:forward_backward", 2), Victim.FLOW),
        (kill_at("poll:forward_backward", 3), Victim.ENGINE),
        (kill_at("submit:optimize_step", 3, When.HANDLED), Victim.FLOW),
        (kill_at("poll:optimize_step", 2, When.HANDLED), Victim.BOTH),
        (kill_at("submit:save_state", 2, When.HANDLED), Victim.BOTH),
        (kill_at("poll:save_state", 2, When.ANSWERED), Victim.FLOW),
        (kill_at("submit:save_weights", 4, When.HANDLED), Victim.FLOW),
        (kill_at("poll:save_weights", 4, When.HANDLED), Victim.ENGINE),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.kind}-{value.nth}-{value.when}",
)
def test_a_kill_at_any_part_of_a_step_changes_nothing(
    stage: Stage, undisturbed: Undisturbed, fault: Fault, victim: Victim, resume_every: int
) -> None:
    settings = ("--resume-every", str(resume_every))
    expected = undisturbed(*settings)
    name = f"part-{fault.kind}-{fault.nth}-{resume_every}".translate({ord(c): "-" for c in ": "})
    after_a_kill(stage, name, fault, victim, *settings).assert_equal(expected)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(30))
def test_a_kill_at_a_point_drawn_by_a_seed_changes_nothing(
    stage: Stage, undisturbed: Undisturbed, seed: int
) -> None:
    draw = random.Random(seed)
    settings = ("--resume-every", str(draw.choice([1, 1, 2])))
    expected = undisturbed(*settings)
    nth = draw.randint(1, expected.requests - 3)  # the last ones tidy up and say good-bye
    victim = draw.choice(list(Victim))
    fault = kill_at("*", nth, draw.choice(list(When)))
    if victim is Victim.ENGINE:
        settings += PATIENT
    after_a_kill(stage, f"seed-{seed}", fault, victim, *settings).assert_equal(expected)


@pytest.mark.faults
@pytest.mark.parametrize("step", [0, 1, 3])
def test_killed_between_the_ledger_and_prefect_s_own_record_a_step_is_not_applied_again(
    stage: Stage, undisturbed: Undisturbed, step: int
) -> None:
    expected, name = undisturbed(), f"ledger-{step}"
    stage.engine.meet(None)
    process = stage.start(name)
    stage.kill_when(process, lambda: ledger_lines(stage, name) > step)
    go_on(stage, name)
    outcome(stage, name).assert_equal(expected)


@pytest.mark.faults
def test_killed_again_and_again_it_gets_to_the_same_end(
    stage: Stage, undisturbed: Undisturbed
) -> None:
    expected = undisturbed()
    for kind, nth in (("sample", 9), ("sample", 30), ("submit:optimize_step", 1), ("poll:*", 3)):
        process = stage.start("again")
        fault = kill_at(kind, nth)
        stage.engine.meet(replace(fault, victims=(process.pid,)))
        stage.end(process, -signal.SIGKILL)
    go_on(stage, "again")
    outcome(stage, "again").assert_equal(expected)


@pytest.mark.faults
def test_finished_searches_are_not_paid_for_again_while_answers_are_kept(
    stage: Stage, undisturbed: Undisturbed
) -> None:
    """With --search-cache use, its default, that holds for unfinished groups too."""
    undisturbed()
    settings = ("--search-cache", "use")
    process = stage.start("kept", *settings)
    stage.engine.meet(replace(kill_at("sample", 40), victims=(process.pid,)))
    begun = stage.search.requests
    stage.end(process, -signal.SIGKILL)
    time.sleep(0.2)
    before = stage.search.requests
    paid = stage.search.queries(begun)
    assert before > begun
    stage.finish("kept", *settings)
    again = stage.search.queries(before)
    assert sum((again & paid).values()) <= 1, "only a search on its way may be repeated"


@pytest.mark.faults
@pytest.mark.parametrize("step", [1, 2])
def test_a_terminated_training_can_be_started_again(
    stage: Stage, undisturbed: Undisturbed, step: int
) -> None:
    expected, name = undisturbed(), f"terminated-{step}"
    stage.engine.meet(None)
    process = stage.start(name)
    deadline = time.monotonic() + 240
    while not stored_groups(stage, name, step):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.001)
    process.terminate()
    stage.end(process, None)
    assert process.returncode != 0
    go_on(stage, name)
    outcome(stage, name).assert_equal(expected)


@pytest.mark.faults
def test_killed_before_it_has_looked_at_groups_that_an_outage_spoiled_it_samples_them_anew(
    stage: Stage, undisturbed: Undisturbed
) -> None:
    expected = undisturbed()
    process = stage.start("spoiled")
    stage.engine.meet(Fault(Action.STATUS, "sample", count=10_000, status=503))
    stage.kill_when(process, lambda: len(stored_groups(stage, "spoiled", 1)) == 2)
    stage.engine.meet(None)
    stage.finish("spoiled")
    outcome(stage, "spoiled").assert_equal(expected)
