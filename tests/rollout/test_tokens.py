"""What becomes of the tokens: prompts, mask, logprobs, datum."""

from itertools import pairwise

import pytest

from searchr1.datum import build_datum
from searchr1.sampler import Sample
from searchr1.trajectory import StopReason
from tests.rollout.setting import CHATS, END, LINE_BREAK, QUESTION, QWEN, TINY, call, only, setting


@pytest.mark.parametrize("tokenizer", [TINY, QWEN], ids=["tiny", "qwen3.5"])
@pytest.mark.parametrize("returned", [0, 1, 2])
async def test_three_turns_token_by_token(tokenizer, returned):
    chat = CHATS[id(tokenizer)]
    lines = ["First.\n\n" + call("Portugal"), call("capital"), "Answer: Lisbon"]
    sampler, _, context = setting(lines, tokenizer=tokenizer, ending=chat.closing[:returned])

    trajectory = await only(context)

    first, second, third = (list(sampler.samples[0, turn].tokens) for turn in range(3))
    closing = list(chat.closing[returned:])
    prompt = chat.first_prompt(QUESTION.question)
    parts = [
        (prompt, False),
        (first, True),
        (closing + chat.observe("- about Portugal"), False),
        (second, True),
        (closing + chat.observe("- about capital"), False),
        (third, True),
    ]
    positions = [(token, drawn) for tokens, drawn in parts for token in tokens]
    assert list(zip(trajectory.tokens, trajectory.loss_mask, strict=True)) == positions
    drawn_logprobs = [logprob for turn in range(3) for logprob in sampler.samples[0, turn].logprobs]
    paired = zip(trajectory.logprobs, trajectory.loss_mask, strict=True)
    assert [logprob for logprob, drawn in paired if drawn] == drawn_logprobs
    paired = zip(trajectory.logprobs, trajectory.loss_mask, strict=True)
    assert all(logprob == 0.0 for logprob, drawn in paired if not drawn)


async def test_every_prompt_begins_with_all_tokens_of_the_turn_before_as_sampled():
    sampler, _, context = setting([call("a") + "\n\n", call("b"), "Answer: Lisbon"])

    await only(context)

    prompts = [request.prompt for request in sampler.requests]
    for turn, (prompt, following) in enumerate(pairwise(prompts)):
        before = prompt + list(sampler.samples[0, turn].tokens)
        assert following[: len(before)] == before
        assert following[len(before) :][0] == LINE_BREAK


async def test_turn_records_point_at_the_tokens_that_were_drawn():
    sampler, _, context = setting(["Hm. " + call("a"), "Answer: Lisbon"])

    trajectory = await only(context)

    assert [turn.kind for turn in trajectory.turns] == ["call", "answer"]
    assert [turn.text for turn in trajectory.turns] == ["Hm. " + call("a"), "Answer: Lisbon"]
    for number, turn in enumerate(trajectory.turns):
        assert trajectory.tokens[turn.start : turn.end] == sampler.samples[0, number].tokens
        assert all(trajectory.loss_mask[turn.start : turn.end])
    assert sum(trajectory.loss_mask) == sum(turn.end - turn.start for turn in trajectory.turns)


async def test_the_datum_of_a_rollout_trains_each_drawn_token_with_its_logprob():
    sampler, _, context = setting([call("a"), call("b"), "Answer: Lisbon"], ending=())

    datum = build_datum(await only(context), 0.5)

    assert datum is not None
    trained = datum.advantages == 0.5
    drawn = [sampler.samples[0, turn] for turn in range(3)]
    assert datum.target_tokens[trained].tolist() == [t for sample in drawn for t in sample.tokens]
    assert datum.logprobs[trained].tolist() == [lp for sample in drawn for lp in sample.logprobs]
    assert not datum.logprobs[~trained].any() and not datum.advantages[~trained].any()
    # The end that the sampler did not return is there for the next turn, and not in the loss.
    end = len(sampler.requests[0].prompt) + len(drawn[0].tokens)
    assert datum.target_tokens[end - 1] == END and datum.advantages[end - 1] == 0.0


async def test_special_tokens_inside_a_turn_stay_in_tokens_and_text():
    marker = TINY.convert_tokens_to_ids("<|im_start|>")
    tokens = (*TINY.encode("Lis"), marker, *TINY.encode("bon"))
    _, _, context = setting([Sample(tokens, (-0.5,) * len(tokens))])

    trajectory = await only(context)

    assert trajectory.tokens[-len(tokens) :] == tokens
    assert trajectory.final_text == "Lis<|im_start|>bon"
    assert trajectory.stop_reason is StopReason.INVALID_TURN
