"""Trajectories side by side: order, bounds, failure, cancelling."""

import asyncio

import pytest

from searchr1.errors import FatalError
from searchr1.rollout import RolloutContext, rollout_group, rollout_groups
from searchr1.sampler import Sample
from searchr1.search.base import SearchErrorKind, SearchFatalError, SearchOutage, SearchResult
from searchr1.trajectory import Group, Question
from tests.rollout.setting import CHATS, END, QUESTION, TINY, call, setting
from tests.scripted import Line, ScriptedBackend, found


async def test_no_trajectory_waits_for_another():
    def quick(plan: str) -> list[Line]:
        return [plan + call("quick"), call("quick"), "Answer: Lisbon"]

    slow: list[Line] = [call("slow"), "Answer: Lisbon"]
    _, backend, context = setting(slow, quick("One. "), quick("Two. "))
    release = asyncio.Event()
    done: list[str] = []

    async def search(query: str) -> SearchResult:
        if query == "slow":
            await release.wait()
        done.append(query)
        if done.count("quick") == 4:
            release.set()
        return found(query)

    backend.search = search

    group = await asyncio.wait_for(rollout_group(QUESTION, 3, context), 10)

    assert done == ["quick"] * 4 + ["slow"]
    assert [len(t.turns) for t in group.trajectories] == [2, 3, 3]


class ManyQuestions:
    """A sampler for several questions at once: a call, then an answer."""

    def __init__(self) -> None:
        self.open = 0
        self.most_open = 0

    async def sample(self, prompt, count, max_tokens, stop, seed):
        first = count > 1
        self.open += first
        self.most_open = max(self.most_open, self.open)
        await asyncio.sleep(0.001)
        question = TINY.decode(prompt).split("number ")[1][0]
        text = call(question) if first else "Answer: Lisbon"
        tokens = (*TINY.encode(text), END)
        return [Sample(tokens, (-0.1,) * len(tokens))] * count


def questions(count: int) -> list[Question]:
    return [Question(f"q{n}", f"What is number {n}?", ("Lisbon",), "nq") for n in range(count)]


async def test_groups_are_handed_over_as_they_finish():
    backend = ScriptedBackend(found, delay=lambda query: 0.2 if query == "0" else 0.0)
    context = RolloutContext(ManyQuestions(), backend, CHATS[id(TINY)])
    handed: list[Group] = []

    async def keep(group: Group) -> None:
        await asyncio.sleep(0)
        handed.append(group)

    await rollout_groups(questions(4), 2, context, keep)

    names = [group.question.question_id for group in handed]
    assert sorted(names[:3]) == ["q1", "q2", "q3"] and names[3] == "q0"
    assert all(t.reward == 1.0 for group in handed for t in group.trajectories)


async def test_a_plain_function_may_take_the_groups_too():
    context = RolloutContext(ManyQuestions(), ScriptedBackend(found), CHATS[id(TINY)])
    handed: list[Group] = []

    await rollout_groups(questions(3), 2, context, handed.append)

    assert {group.question.question_id for group in handed} == {"q0", "q1", "q2"}


async def test_questions_in_flight_are_bounded():
    sampler = ManyQuestions()
    backend = ScriptedBackend(found, delay=lambda query: 0.005)
    context = RolloutContext(sampler, backend, CHATS[id(TINY)])

    def finished(group: Group) -> None:
        sampler.open -= 1

    await rollout_groups(questions(8), 2, context, finished, max_in_flight=2)

    assert sampler.most_open == 2
    assert backend.most_running <= 4


async def test_no_questions_give_no_groups():
    context = RolloutContext(ManyQuestions(), ScriptedBackend(found), CHATS[id(TINY)])

    handed: list[Group] = []
    await rollout_groups([], 2, context, handed.append)
    assert handed == []


@pytest.mark.parametrize(
    "error",
    [
        SearchFatalError(SearchErrorKind.NO_BALANCE, "The balance is used up."),
        SearchOutage("Too many searches failed."),
        FatalError("The key is not accepted."),
        KeyError("a defect"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_no_trajectory_can_outlive_propagates_unwrapped_and_leaves_nothing_running(
    error,
):
    cause = ValueError("what lay behind it")
    error.__cause__ = cause

    def answer(query: str) -> SearchResult:
        if query == "1":
            raise error
        return found(query)

    backend = ScriptedBackend(answer, delay=lambda query: {"0": 0.0, "1": 0.05}.get(query, 60.0))
    context = RolloutContext(ManyQuestions(), backend, CHATS[id(TINY)])
    handed: list[str] = []
    before = asyncio.all_tasks()

    with pytest.raises(type(error)) as raised:
        await asyncio.wait_for(
            rollout_groups(
                questions(4), 2, context, lambda group: handed.append(group.question.question_id)
            ),
            10,
        )

    assert raised.value is error and raised.value.__cause__ is cause
    assert handed == ["q0"]
    assert backend.running == 0
    assert asyncio.all_tasks() == before


async def test_what_the_receiver_of_a_group_raises_stops_the_rollout():
    backend = ScriptedBackend(found, delay=lambda query: 0.0 if query == "0" else 60.0)
    context = RolloutContext(ManyQuestions(), backend, CHATS[id(TINY)])

    def refuse(group: Group) -> None:
        raise SearchOutage("Too many searches failed.")

    with pytest.raises(SearchOutage):
        await asyncio.wait_for(rollout_groups(questions(3), 2, context, refuse), 10)
    assert backend.running == 0


async def test_a_cancelled_rollout_cancels_its_trajectories():
    backend = ScriptedBackend(found, delay=lambda query: 60.0)
    context = RolloutContext(ManyQuestions(), backend, CHATS[id(TINY)])
    running = asyncio.create_task(rollout_groups(questions(2), 2, context, lambda group: None))
    while backend.running < 4:
        await asyncio.sleep(0.001)

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert backend.running == 0
