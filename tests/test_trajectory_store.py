"""Groups on disk are whole or absent, and come back as they were."""

import pytest

from searchr1.trajectory import Group, Question, StopReason
from searchr1.trajectory_store import TrajectoryStore
from tests.trajectories import group, search, trajectory

OTHER = Question("world-2", "?", ("x", "y"), "two_hop")


def store(tmp_path, policy_ref="trio://r/training_states/s0") -> TrajectoryStore:
    return TrajectoryStore(tmp_path / "step_00001.parquet", policy_ref)


def stored(kept: TrajectoryStore) -> dict[str, Group]:
    return {group.question.question_id: group for group in kept.groups()}


def test_groups_come_back_as_they_were(tmp_path):
    whole = group(1.0, 0.0)
    failed = trajectory(2, 0.0, StopReason.ENVIRONMENT_ERROR, (search(), search(False, "timeout")))
    written = type(whole)(whole.question, (*whole.trajectories, failed))
    store(tmp_path).write(written)
    assert stored(store(tmp_path)) == {"world-1": written}


def test_finishing_merges_in_order_and_leaves_one_file(tmp_path):
    first, second = group(1.0), group(0.0, question=OTHER)
    for one in (second, first):
        store(tmp_path).write(one)
    store(tmp_path).finish(["world-1", "world-2"])
    assert list(store(tmp_path).groups()) == [first, second]
    assert list(store(tmp_path).groups(["world-2"])) == [second]
    assert [path.name for path in tmp_path.iterdir()] == ["step_00001.parquet"]
    assert list(stored(store(tmp_path))) == ["world-1", "world-2"]


def test_finishing_twice_changes_nothing(tmp_path):
    store(tmp_path).write(group(1.0))
    store(tmp_path).finish(["world-1"])
    before = (tmp_path / "step_00001.parquet").read_bytes()
    store(tmp_path).write(group(0.0))  # left behind by a kill between merging and removing
    store(tmp_path).finish(["world-1"])
    assert stored(store(tmp_path)) == {"world-1": group(1.0)}
    assert (tmp_path / "step_00001.parquet").read_bytes() == before


def test_a_missing_group_is_an_error_and_nothing_is_merged(tmp_path):
    store(tmp_path).write(group(1.0))
    with pytest.raises(KeyError):
        store(tmp_path).finish(["world-1", "world-2"])
    assert not store(tmp_path).finished
    assert stored(store(tmp_path)) == {"world-1": group(1.0)}


def test_questions_without_a_group_are_missing_before_and_after_merging(tmp_path):
    kept = store(tmp_path)
    kept.write(group(1.0))
    questions = [OTHER, group(1.0).question]
    assert kept.missing(questions) == [OTHER]
    kept.finish(["world-1"])
    assert store(tmp_path).missing(questions) == [OTHER]


def test_groups_of_another_policy_are_not_taken_up(tmp_path):
    store(tmp_path, "trio://r/training_states/other").write(group(1.0))
    assert stored(store(tmp_path)) == {}
    assert store(tmp_path).missing([group(1.0).question]) != []


def test_a_half_written_part_is_not_seen(tmp_path):
    kept = store(tmp_path)
    kept.write(group(1.0))
    part = next(kept.parts.glob("*.parquet"))
    (kept.parts / f".{part.name}.abc.part").write_bytes(part.read_bytes()[:40])
    assert stored(kept) == {"world-1": group(1.0)}


def test_a_discarded_group_is_gone(tmp_path):
    store(tmp_path).write(group(1.0))
    store(tmp_path).discard("world-1")
    assert stored(store(tmp_path)) == {}
