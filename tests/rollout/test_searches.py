"""What the policy sees of its searches, and whose fault a failed one is."""

import pytest

from searchr1.rollout import rollout_group
from searchr1.search.base import Fault, SearchErrorKind, SearchFatalError
from searchr1.trajectory import StopReason
from tests.rollout.setting import QUESTION, TINY, call, only, setting
from tests.scripted import failed, found


async def test_a_search_is_recorded_as_the_policy_saw_it():
    result = found("Lisbon is the capital.", "It lies on the Tagus.")
    _, _, context = setting([call("capital"), "Answer: Lisbon"], answer=lambda query: result)

    trajectory = await only(context)

    (search,) = trajectory.searches
    assert (search.turn, search.query, search.ok, search.error) == (0, "capital", True, "")
    assert search.items == result.items
    assert search.observation == "- Lisbon is the capital.\n- It lies on the Tagus."
    assert (search.seconds, search.cost, search.cached) == (0.25, 0.001, False)
    assert search.observation in TINY.decode(list(trajectory.tokens))


async def test_a_search_without_results_is_shown_as_such():
    _, _, context = setting([call("a"), "Answer: Lisbon"], answer=lambda query: found())

    trajectory = await only(context)

    assert trajectory.searches[0].items == ()
    assert "- no results" in TINY.decode(list(trajectory.tokens))


@pytest.mark.parametrize("kind", [kind for kind in SearchErrorKind if kind.fault is Fault.POLICY])
async def test_a_policys_own_error_is_shown_to_it_and_counts_as_a_search(kind):
    _, _, context = setting(
        [call("a"), call("b")], answer=lambda query: failed(kind), max_search_calls=1
    )

    trajectory = await only(context)

    assert trajectory.stop_reason is StopReason.SEARCH_LIMIT
    assert trajectory.searches[0].error == kind.value and not trajectory.searches[0].ok
    assert trajectory.searches[0].observation == "- error: it did not work"


@pytest.mark.parametrize(
    "kind", [kind for kind in SearchErrorKind if kind.fault is Fault.ENVIRONMENT]
)
async def test_an_environment_error_ends_one_trajectory_and_keeps_its_tokens(kind):
    _, _, context = setting(
        [call("good"), call("bad")],
        [call("other"), "Answer: Lisbon"],
        answer=lambda query: failed(kind) if query == "bad" else found(query),
    )

    broken, whole = (await rollout_group(QUESTION, 2, context)).trajectories

    assert broken.stop_reason is StopReason.ENVIRONMENT_ERROR and not broken.valid
    assert kind.value in broken.error and "it did not work" in broken.error
    assert [search.error for search in broken.searches] == ["", kind.value]
    assert (broken.reward, broken.valid_format, broken.em) == (0.0, False, False)
    assert len(broken.turns) == 2 and broken.turns[1].end == len(broken.tokens)
    assert broken.final_text == call("bad")
    assert whole.stop_reason is StopReason.ANSWERED and whole.reward == 1.0


@pytest.mark.parametrize("kind", [kind for kind in SearchErrorKind if kind.fault is Fault.FATAL])
async def test_a_fatal_search_error_stops_the_rollout(kind):
    _, _, returned = setting([call("a")], answer=lambda query: failed(kind))

    with pytest.raises(SearchFatalError) as stopped:
        await only(returned)
    assert stopped.value.kind is kind
