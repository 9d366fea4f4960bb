"""From trajectories to training data."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchr1.advantage import GroupOutcome
from searchr1.datum import Fate, build_batch, build_datum, trajectory_rewards
from searchr1.trajectory import Group, Question, StopReason, Trajectory

QUESTION = Question("q1", "What is the capital of Portugal?", ("Lisbon",), "nq")


def trajectory(
    reward: float = 1.0,
    stop_reason: StopReason = StopReason.ANSWERED,
    tokens: tuple[int, ...] = (1, 2, 40, 41, 99, 5, 6, 42),
    drawn: str = "..xx...x",
    logprobs: tuple[float, ...] = (0.0, 0.0, -0.3, -0.2, 0.0, 0.0, 0.0, -0.1),
) -> Trajectory:
    """A prompt of two tokens, a turn of two, a closing token that the sampler left out, an
    observation of two, and a turn of one."""
    return Trajectory(
        question=QUESTION,
        index=0,
        tokens=tokens,
        loss_mask=tuple(mark == "x" for mark in drawn),
        logprobs=logprobs,
        turns=(),
        searches=(),
        stop_reason=stop_reason,
        error="",
        final_text="",
        answer=None,
        reward=reward,
        valid_format=True,
        em=reward == 1.0,
        em_squad=False,
        f1=0.0,
        cover_em=False,
        seconds=0.0,
    )


def long_trajectory(length: int, reward: float) -> Trajectory:
    """One with `length` input tokens, all but the prompt's single one drawn."""
    return trajectory(
        reward,
        tokens=tuple(range(length + 1)),
        drawn="." + "x" * length,
        logprobs=(0.0, *[-0.5] * length),
    )


def group(*rewards: float | None) -> Group:
    """A reward of None stands for a trajectory that an environment error ended."""
    return Group(
        QUESTION,
        tuple(
            trajectory(0.0, StopReason.ENVIRONMENT_ERROR) if reward is None else trajectory(reward)
            for reward in rewards
        ),
    )


def test_all_arrays_are_shifted_once_and_aligned_token_by_token():
    datum = build_datum(trajectory(), 0.5)

    assert datum is not None
    assert datum.input_tokens.tolist() == [1, 2, 40, 41, 99, 5, 6]
    assert datum.target_tokens.tolist() == [2, 40, 41, 99, 5, 6, 42]
    assert datum.logprobs.tolist() == [0.0, -0.3, -0.2, 0.0, 0.0, 0.0, -0.1]
    assert datum.advantages.tolist() == [0.0, 0.5, 0.5, 0.0, 0.0, 0.0, 0.5]


def test_a_token_that_was_never_drawn_has_no_logprob_even_if_one_is_claimed():
    claimed = trajectory(logprobs=(-9.0,) * 8)

    datum = build_datum(claimed, 0.5)

    assert datum is not None
    assert datum.logprobs.tolist() == [0.0, -9.0, -9.0, 0.0, 0.0, 0.0, -9.0]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 99), st.booleans(), st.floats(-9, -0.01)), max_size=30))
def test_every_drawn_token_but_a_first_is_trained_with_its_own_logprob(positions):
    tokens, drawn, logprobs = zip(*positions, strict=True) if positions else ((), (), ())
    made = replace(trajectory(), tokens=tokens, loss_mask=drawn, logprobs=logprobs)

    datum = build_datum(made, -0.25)

    expected = [(token, lp) for token, mask, lp in positions[1:] if mask]
    if not expected:
        assert datum is None
        return
    assert datum is not None
    trained = datum.advantages != 0
    found = zip(datum.target_tokens[trained], datum.logprobs[trained], strict=True)
    assert list(found) == expected
    assert {len(array) for array in datum} == {len(positions) - 1}
    assert (datum.input_tokens[1:] == datum.target_tokens[:-1]).all()


@pytest.mark.parametrize("drawn", ["........", "x......."])
def test_a_trajectory_without_a_trainable_token_has_no_datum(drawn):
    assert build_datum(trajectory(drawn=drawn), 0.5) is None


def test_an_empty_trajectory_has_no_datum():
    assert build_datum(trajectory(tokens=(), drawn="", logprobs=()), 0.5) is None


@pytest.mark.parametrize("reason", [StopReason.ENVIRONMENT_ERROR, StopReason.SAMPLING_ERROR])
def test_a_trajectory_that_is_not_valid_has_no_datum(reason):
    assert build_datum(trajectory(stop_reason=reason), 0.5) is None


@pytest.mark.parametrize("part", ["tokens", "loss_mask", "logprobs"])
def test_arrays_of_different_length_are_a_defect_and_raise(part):
    broken = replace(trajectory(), **{part: getattr(trajectory(), part)[:-1]})

    with pytest.raises(ValueError, match="as many"):
        build_datum(broken, 0.5)


def test_rewards_of_invalid_trajectories_are_none():
    assert trajectory_rewards(group(1.0, None, -0.1)) == [1.0, None, -0.1]


def test_the_step_is_the_mean_over_all_valid_trajectories_whatever_gave_no_datum():
    mixed = group(1.0, 0.0, None, None)
    batch = build_batch([mixed, group(0.0, 0.0, 0.0, 0.0)])

    # The service averages over the two datums; two of six valid trajectories gave one.
    of_datums = np.mean([datum.advantages.max() for datum in batch.datums[:1]]) / 2
    assert of_datums == pytest.approx(0.5 / 6)
    assert [datum.advantages[1] for datum in batch.datums] == pytest.approx([0.5 / 3, -0.5 / 3])


def test_groups_without_gradient_are_skipped_and_counted_by_what_they_tell():
    batch = build_batch(
        [group(1.0, 1.0), group(-0.1, -0.1, -0.1), group(0.0, None), group(1.0, 0.0, None)]
    )

    assert dict(batch.outcomes) == {
        GroupOutcome.MIXED: 1,
        GroupOutcome.ALL_RIGHT: 1,
        GroupOutcome.ALL_WRONG: 1,
        GroupOutcome.ALL_EQUAL: 0,
        GroupOutcome.TOO_FEW: 1,
    }
    assert (batch.groups, batch.degenerate_groups, batch.trajectories) == (4, 3, 10)
    assert batch.fates[Fate.INVALID] == 2
    assert batch.fates[Fate.DEGENERATE] == 6
    assert batch.fates[Fate.TRAINED] == len(batch.datums) == 2


def test_the_baseline_is_the_questions_own():
    assert build_batch([group(1.0, 1.0), group(0.0, 0.0)]).datums == ()


def test_an_advantage_of_exactly_zero_is_not_paid_for():
    batch = build_batch([group(1.0, 0.0, 0.5)])

    assert batch.fates[Fate.ZERO_ADVANTAGE] == 1
    assert [datum.advantages[1] for datum in batch.datums] == pytest.approx([1 / 3, -1 / 3])


def test_an_over_long_trajectory_is_skipped_and_the_others_keep_their_advantages():
    long, short, shorter = (
        long_trajectory(9000, 1.0),
        long_trajectory(300, 0.0),
        long_trajectory(200, -0.1),
    )
    batch = build_batch([Group(QUESTION, (long, short, shorter))], max_tokens=8192)

    assert [len(datum.input_tokens) for datum in batch.datums] == [300, 200]
    assert batch.fates[Fate.OVER_LONG] == 1
    assert [datum.advantages[0] for datum in batch.datums] == pytest.approx(
        [-0.3 * 2 / 3, -0.4 * 2 / 3]
    )
    assert (batch.tokens, batch.loss_tokens) == (500, 500)


def test_the_limit_counts_the_tokens_that_are_sent():
    exactly = Group(QUESTION, (long_trajectory(20, 1.0), long_trajectory(20, 0.0)))

    assert len(build_batch([exactly], max_tokens=20).datums) == 2
    assert build_batch([exactly], max_tokens=19).datums == ()


def test_a_mixed_groups_member_without_drawn_tokens_counts_as_untrainable():
    cut = trajectory(-0.1, StopReason.TOKEN_LIMIT, tokens=(1, 2), drawn="..", logprobs=(0.0, 0.0))
    batch = build_batch([Group(QUESTION, (trajectory(1.0), cut))])

    assert batch.fates[Fate.UNTRAINABLE] == 1
    assert len(batch.datums) == 1


def test_loss_tokens_are_those_the_policy_drew():
    batch = build_batch([group(1.0, 0.0)])

    assert (batch.tokens, batch.loss_tokens) == (14, 6)


def test_nothing_to_train_is_an_empty_batch_and_no_error():
    for groups in ([], [group()], [group(None, None)]):
        batch = build_batch(groups)
        assert (batch.datums, batch.tokens, batch.loss_tokens) == ((), 0, 0)
