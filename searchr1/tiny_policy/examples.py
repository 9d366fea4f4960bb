"""Token sequences for supervised training, with a weight for the prediction of every token.

Two kinds: episodes in the chat template, and lists of facts. A list of facts is documents followed
by lines "relation entity value" about them; it is nearly all copying, the skill that takes longest.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from transformers import PreTrainedTokenizerFast

from searchr1.data.world import (
    QUESTION_TYPES,
    Kind,
    QuestionType,
    World,
    WorldSize,
    build_world,
)
from searchr1.tiny_policy.episodes import (
    SEARCH_TOOL,
    Habits,
    Message,
    draw_chain,
    episode,
    habits_for,
    perfect_is_possible,
)
from searchr1.tiny_policy.retrieval import RESULTS, WorldIndex

PRACTICE_SIZE = WorldSize(person=45, book=38, town=30, river=18, county=11, lake=11)
READ_WEIGHT = 0.1
"""For text that the policy reads: questions, observations, documents."""
WRITE_WEIGHT = 1.0
"""For text that it has to write, the end of the turn included."""
_LIVE_WORLDS = 8
_ASSISTANT_TURN = re.compile(r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)", re.DOTALL)
_SYSTEM_TURN = re.compile(r"<\|im_start\|>system\n.*?<\|im_end\|>", re.DOTALL)
_LISTED_KINDS = (Kind.PERSON, Kind.BOOK, Kind.TOWN, Kind.TOWN, Kind.RIVER, Kind.COUNTY)


class Example(NamedTuple):
    """T tokens, and T weights: of predicting each token from those before it."""

    tokens: list[int]
    weights: list[float]


@dataclass(frozen=True)
class Mixture:
    """Shares of what a stage of training shows."""

    fact_lists: float
    """Lists of facts, among all examples."""
    system_prompt: float
    """Episodes that begin with the system prompt and the tool."""
    single_result: float
    """Episodes whose searches return one document instead of two: shorter, easier to copy from."""
    habits: Mapping[QuestionType, Habits] | None = None
    """The episodes' habits; None for perfect episodes."""


class PracticeWorld:
    """A world with what making examples of it takes."""

    def __init__(self, seed: int) -> None:
        self.world: World = build_world(seed, PRACTICE_SIZE)
        self.index = WorldIndex(self.world)

    @cached_property
    def texts(self) -> dict[str, str]:
        """Document text by entity."""
        return {document.title: document.text for document in self.world.documents}

    @cached_property
    def stated(self) -> dict[str, list[tuple[str, str]]]:
        """(relation, value) pairs by entity."""
        pairs: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for (relation, entity), value in self.world.facts.items():
            pairs[entity].append((relation, value))
        return pairs


def episode_example(
    tokenizer: PreTrainedTokenizerFast, messages: Sequence[Message], system_prompt: bool
) -> Example:
    """An episode as the chat template renders it, with or without its system prompt and tool."""
    text = tokenizer.apply_chat_template(
        list(messages if system_prompt else messages[1:]),
        tools=[SEARCH_TOOL] if system_prompt else None,
        tokenize=False,
    )
    assert isinstance(text, str)
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    per_character = [READ_WEIGHT] * len(text)
    for pattern, part, weight in ((_SYSTEM_TURN, 0, 0.0), (_ASSISTANT_TURN, 1, WRITE_WEIGHT)):
        for found in pattern.finditer(text):
            start, end = found.span(part)
            per_character[start:end] = [weight] * (end - start)
    return Example(
        tokens=encoding["input_ids"],
        weights=[per_character[start] for start, _ in encoding["offset_mapping"]],
    )


def fact_list_example(
    tokenizer: PreTrainedTokenizerFast, practice: PracticeWorld, rng: random.Random
) -> Example:
    """Three documents, then up to six of their facts in any order, a line each."""
    entities: list[str] = []
    kind = rng.choice(_LISTED_KINDS)
    same_kind = 2 if rng.random() < 0.6 else 1  # two of a kind: which one is meant matters
    entities += rng.sample(practice.world.entities[kind], same_kind)
    while len(entities) < 3:
        other = rng.choice(practice.world.entities[rng.choice(_LISTED_KINDS)])
        if other not in entities:
            entities.append(other)
    rng.shuffle(entities)
    facts = [
        (relation, entity, value)
        for entity in entities
        for relation, value in practice.stated[entity]
    ]
    rng.shuffle(facts)
    pieces = [(f"- {practice.texts[entity]}\n", READ_WEIGHT) for entity in entities]
    for relation, entity, value in facts[:6]:
        pieces.append((relation, 2 * READ_WEIGHT))
        pieces.append((f" {entity} {value}\n", WRITE_WEIGHT))
    tokens: list[int] = []
    weights: list[float] = []
    for text, weight in pieces:
        new = tokenizer(text, add_special_tokens=False)["input_ids"]
        tokens += new
        weights += [weight] * len(new)
    return Example(tokens, weights)


def examples(
    tokenizer: PreTrainedTokenizerFast,
    mixture: Mixture,
    batch_size: int,
    seeds: Iterator[int],
    rng: random.Random,
) -> Iterator[list[Example]]:
    """Endless batches drawn from `mixture`, sorted by length.

    Every batch retires one of a few live worlds and takes a new one from `seeds`, so that no
    world stays for long and there is nothing to learn by heart.
    """
    worlds = [PracticeWorld(next(seeds)) for _ in range(_LIVE_WORLDS)]
    oldest = 0
    while True:
        worlds[oldest] = PracticeWorld(next(seeds))
        oldest = (oldest + 1) % _LIVE_WORLDS
        batch = [_draw(tokenizer, mixture, rng.choice(worlds), rng) for _ in range(batch_size)]
        yield sorted(batch, key=lambda example: len(example.tokens))


def _draw(
    tokenizer: PreTrainedTokenizerFast,
    mixture: Mixture,
    practice: PracticeWorld,
    rng: random.Random,
) -> Example:
    if rng.random() < mixture.fact_lists:
        return fact_list_example(tokenizer, practice, rng)
    results = 1 if rng.random() < mixture.single_result else RESULTS
    two_hop = rng.random() < 0.6
    types = [kind for kind in QUESTION_TYPES if (len(kind.relations) == 2) is two_hop]
    chain = draw_chain(practice.world, rng, types)
    while not perfect_is_possible(practice.world, practice.index, chain, results):
        chain = draw_chain(practice.world, rng, types)
    messages = episode(
        practice.world,
        practice.index,
        chain,
        habits_for(chain, mixture.habits),
        rng,
        results,
    )
    return episode_example(tokenizer, messages, rng.random() < mixture.system_prompt)
