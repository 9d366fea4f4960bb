"""When too much failed for outside reasons, the step is tried again with what is sound."""

from tasks.spoiled import refuse_spoiled

import pytest

from searchr1.budget import Usage, usage
from searchr1.policy_errors import PolicyUnavailable
from searchr1.search import SearchOutage
from searchr1.trajectory import Group, Question, StopReason
from searchr1.trajectory_store import TrajectoryStore
from tests.trajectories import group, search, trajectory

SOUND = group(1.0, 0.0)


def stored(tmp_path, *groups: Group) -> TrajectoryStore:
    store = TrajectoryStore(tmp_path / "step_00001.parquet", "trio://r/training_states/s0")
    for one in groups:
        store.write(one)
    return store


def failed_group(reason: StopReason, searches, name: str = "world-9", size: int = 1) -> Group:
    question = Question(name, "?", ("a",), "one_hop")
    trajectories = [trajectory(i, 0.0, reason, searches, question) for i in range(size)]
    return Group(question, tuple(trajectories))


def searching(good: int) -> Group:
    question = Question("world-8", "?", ("a",), "one_hop")
    return Group(question, (trajectory(0, 1.0, searches=(search(),) * good, question=question),))


def test_more_failed_searches_than_allowed_keep_the_sound_groups_only(tmp_path):
    searches = (search(), search(False, "timeout"))
    failed = failed_group(StopReason.ENVIRONMENT_ERROR, searches, size=2)
    store = stored(tmp_path, SOUND, searching(7), failed)
    thrown_away: list[Usage] = []
    with pytest.raises(SearchOutage):
        refuse_spoiled(store, 0.1, on_spoiled=thrown_away.append)
    assert {group.question.question_id for group in store.groups()} == {"world-1", "world-8"}
    assert thrown_away == [usage([failed])]


def test_a_few_failed_searches_are_left_to_the_baseline_to_leave_out(tmp_path):
    failed = failed_group(StopReason.ENVIRONMENT_ERROR, (search(False, "timeout"),))
    store = stored(tmp_path, SOUND, searching(9), failed)
    refuse_spoiled(store, 0.1)
    assert len(list(store.groups())) == 3


def test_an_open_circuit_spoils_a_step_however_few_its_searches(tmp_path):
    failed = failed_group(StopReason.ENVIRONMENT_ERROR, (search(False, "circuit_open"),))
    store = stored(tmp_path, SOUND, failed)
    with pytest.raises(SearchOutage):
        refuse_spoiled(store, 0.1)
    assert {group.question.question_id for group in store.groups()} == {"world-1"}


def test_trajectories_that_could_not_be_sampled_ask_for_a_new_client(tmp_path):
    store = stored(tmp_path, SOUND, failed_group(StopReason.SAMPLING_ERROR, ()))
    with pytest.raises(PolicyUnavailable, match="1 of 3"):
        refuse_spoiled(store, 0.1)
    assert {group.question.question_id for group in store.groups()} == {"world-1"}
