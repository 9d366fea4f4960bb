"""What a rollout asks of its sampler, and what a bad answer spoils."""

import math

import pytest

from searchr1.datum import build_datum
from searchr1.rollout import RolloutContext, request_seed, rollout_group
from searchr1.sampler import Sample, SamplingError
from searchr1.trajectory import StopReason
from tests.rollout.setting import CHATS, END, QUESTION, TINY, call, setting
from tests.scripted import ScriptedBackend, ScriptedSampler, found


async def test_a_failed_first_request_spoils_its_group_only():
    _, _, context = setting([SamplingError("no answer in time")])

    group = await rollout_group(QUESTION, 3, context)

    assert [t.stop_reason for t in group.trajectories] == [StopReason.SAMPLING_ERROR] * 3
    assert [t.index for t in group.trajectories] == [0, 1, 2]
    assert {t.error for t in group.trajectories} == {"no answer in time"}
    assert not any(any(t.loss_mask) for t in group.trajectories)


async def test_a_failed_later_request_ends_one_trajectory_and_keeps_its_tokens():
    sampler, _, context = setting(
        [call("a"), SamplingError("no answer in time")], [call("b"), "Answer: Lisbon"]
    )

    broken, whole = (await rollout_group(QUESTION, 2, context)).trajectories

    assert broken.stop_reason is StopReason.SAMPLING_ERROR and not broken.valid
    assert list(broken.tokens) == next(
        request.prompt
        for request in sampler.requests[1:]
        if request.prompt[: broken.turns[0].end] == list(broken.tokens[: broken.turns[0].end])
    )
    assert whole.reward == 1.0


BAD_SAMPLES = [
    Sample((), ()),
    Sample((5, 6), (-0.1,)),
    Sample((5,), (math.nan,)),
    Sample((5,), (-math.inf,)),
    Sample((len(TINY),), (-0.1,)),
    Sample((-1,), (-0.1,)),
]


@pytest.mark.parametrize("bad", BAD_SAMPLES)
async def test_a_nonsensical_sample_ends_its_trajectory_and_no_other(bad):
    _, _, context = setting([bad], ["Answer: Lisbon"], [call("a"), bad])

    first, good, later = (await rollout_group(QUESTION, 3, context)).trajectories

    for broken in (first, later):
        assert broken.stop_reason is StopReason.SAMPLING_ERROR and broken.error
        assert broken.reward == 0.0 and build_datum(broken, 1.0) is None
    assert good.reward == 1.0
    assert len(first.turns) == 0 and len(later.turns) == 1


async def test_a_wrong_number_of_sequences_spoils_the_group():
    class Short(ScriptedSampler):
        async def sample(self, prompt, count, max_tokens, stop, seed):
            return (await super().sample(prompt, count, max_tokens, stop, seed))[1:]

    context = RolloutContext(
        Short(TINY, [["Answer: Lisbon"]] * 2), ScriptedBackend(found), CHATS[id(TINY)]
    )

    group = await rollout_group(QUESTION, 2, context)

    assert [t.stop_reason for t in group.trajectories] == [StopReason.SAMPLING_ERROR] * 2


async def test_the_first_turn_of_a_group_is_one_request():
    sampler, _, context = setting(
        ["Answer: Lisbon"], [call("a"), "Answer: Porto"], ["It is Lisbon."]
    )

    group = await rollout_group(QUESTION, 3, context)

    assert [request.count for request in sampler.requests] == [3, 1]
    assert {tuple(request.stop) for request in sampler.requests} == {(END,)}
    assert [t.index for t in group.trajectories] == [0, 1, 2]
    assert [t.reward for t in group.trajectories] == [1.0, 0.0, -0.1]
    assert group.question is QUESTION


async def test_a_rerun_asks_for_the_same_randomness_and_no_two_requests_for_equal_ones():
    async def seeds(seed: int | None) -> list[int | None]:
        sampler, _, context = setting(
            [call("a"), call("b"), "Answer: Lisbon"], [call("c"), "Answer: Lisbon"], seed=seed
        )
        await rollout_group(QUESTION, 2, context)
        return sorted((request.seed for request in sampler.requests), key=str)

    first = await seeds(7)
    assert first == await seeds(7)
    assert len(set(first)) == 4
    assert not set(first) & set(await seeds(8))
    assert await seeds(None) == [None] * 4


def test_seeds_are_stable_across_versions_and_fit_31_bits():
    assert request_seed(7, "q1", None, 0) == 894148002
    assert request_seed(7, "q1", 0, 1) == 1474951911
    assert all(0 <= (request_seed(7, "q", 0, turn) or 0) < 2**31 for turn in range(100))
