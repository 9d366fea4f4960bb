"""Training examples: weight on what the policy writes, and worlds that do not stay."""

import itertools
import random

import pytest
from transformers import PreTrainedTokenizerFast

from searchr1.data.world import QUESTION_TYPES, Chain
from searchr1.tiny_policy.episodes import PERFECT, episode
from searchr1.tiny_policy.examples import (
    READ_WEIGHT,
    WRITE_WEIGHT,
    Mixture,
    PracticeWorld,
    episode_example,
    examples,
    fact_list_example,
)


def text_of_weight(
    tokenizer: PreTrainedTokenizerFast, tokens: list[int], weights: list[float], weight: float
) -> str:
    kept = [token for token, own in zip(tokens, weights, strict=True) if own == weight]
    return str(tokenizer.decode(kept))


@pytest.mark.parametrize("system_prompt", [True, False])
def test_turns_weigh_most_and_the_system_prompt_nothing(
    tokenizer: PreTrainedTokenizerFast, practice: PracticeWorld, system_prompt: bool
) -> None:
    kind = QUESTION_TYPES[-1]
    chain = Chain(kind, practice.world.entities[kind.subject][0])
    messages = episode(practice.world, practice.index, chain, PERFECT, random.Random(0))
    tokens, weights = episode_example(tokenizer, messages, system_prompt)
    written = text_of_weight(tokenizer, tokens, weights, WRITE_WEIGHT)
    assert written == "".join(
        f"{message['content']}<|im_end|>" for message in messages if message["role"] == "assistant"
    )
    read = text_of_weight(tokenizer, tokens, weights, READ_WEIGHT)
    assert all(message["content"] in read for message in messages if message["role"] == "tool")
    unweighted = text_of_weight(tokenizer, tokens, weights, 0.0)
    assert (messages[0]["content"] in unweighted) is system_prompt
    assert (messages[0]["content"] in tokenizer.decode(tokens)) is system_prompt


def test_a_list_of_facts_repeats_what_its_documents_say(
    tokenizer: PreTrainedTokenizerFast, practice: PracticeWorld
) -> None:
    for seed in range(10):
        tokens, _ = fact_list_example(tokenizer, practice, random.Random(seed))
        lines = str(tokenizer.decode(tokens)).splitlines()
        documents, facts = lines[:3], lines[3:]
        assert facts
        for line in facts:
            relation, rest = line.split(" ", 1)
            stated = [
                value
                for (of_relation, entity), value in practice.world.facts.items()
                if of_relation == relation and rest == f"{entity} {value}"
            ]
            assert len(stated) == 1, line
            assert any(stated[0] in document for document in documents)


def test_a_world_is_taken_for_every_batch_and_stays_for_a_few(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    taken: list[int] = []

    def seeds():
        for seed in itertools.count(2_000_000):
            taken.append(seed)
            yield seed

    mixture = Mixture(fact_lists=0.5, system_prompt=0.5, single_result=0.5)
    batches = examples(tokenizer, mixture, 4, seeds(), random.Random(0))
    for batch in itertools.islice(batches, 3):
        lengths = [len(example.tokens) for example in batch]
        assert len(lengths) == 4 and lengths == sorted(lengths)
    assert taken == list(range(2_000_000, 2_000_000 + 8 + 3))
