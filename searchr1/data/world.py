"""The built-in world: invented people, books, towns, rivers and counties, and questions about them.

A world is made from a seed alone, without I/O: documents of a sentence or two, and one- and
two-hop questions whose every hop is stated by one document. It lets a newcomer train and evaluate
without a data set or a search service, and it lets tests know every right answer.

What always holds:

- The same seed gives the same world, and the same arguments the same questions in the same order.
- A chain (an entity and the relations followed from it) belongs to one split, in all phrasings.
- Names in worlds with a seed below `FIRST_PRACTICE_SEED` never occur in worlds at or above it.
  A policy made from practice worlds alone meets every name of the others, and with it every
  question used for reinforcement learning or evaluation, for the first time.
"""

import hashlib
import random
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from searchr1.data import world_vocabulary as vocabulary
from searchr1.data.world_vocabulary import QUESTION_TYPES, Kind, QuestionType, Relation
from searchr1.trajectory import Question

DEMO_SEED = 17
"""The world of the local profile; nothing was ever tuned on it."""
FIRST_PRACTICE_SEED = 1000
"""Worlds from here on are for making the tiny policy."""
TRAIN_COUNT = 600
"""Training questions that the local profile prepares."""
EVALUATION_COUNT = 70
"""Questions of the evaluation set: 35 one-hop and 35 two-hop."""


class Split(StrEnum):
    """Which questions; no chain is in both."""

    TRAIN = "train"
    """Four fifths of the chains, 60% two-hop questions."""
    EVALUATION = "evaluation"
    """One fifth of the chains, one- and two-hop questions in equal numbers."""


class Chain(NamedTuple):
    """What a question asks, apart from its phrasing: a type, and the entity it starts from."""

    type: QuestionType
    entity: str


@dataclass(frozen=True, slots=True)
class Document:
    """One entity's facts; the title is the entity's name and starts the text."""

    document_id: str
    title: str
    text: str


class WorldSize(NamedTuple):
    """How many entities of each kind."""

    person: int = 60
    book: int = 50
    town: int = 40
    river: int = 25
    county: int = 15
    lake: int = 15


_FULL_SIZE = WorldSize()


@dataclass(frozen=True, slots=True)
class World:
    """An invented world. `facts` maps (relation, entity) to the value."""

    seed: int
    entities: Mapping[Kind, tuple[str, ...]]
    facts: Mapping[tuple[Relation, str], str]
    documents: tuple[Document, ...]

    def follow(self, chain: Chain) -> tuple[str, ...]:
        """The value reached at each hop of `chain`; the last one is the answer."""
        values: list[str] = []
        for relation in chain.type.relations:
            values.append(self.facts[relation, values[-1] if values else chain.entity])
        return tuple(values)


def is_reserved(name: str) -> bool:
    """Whether `name` is kept for worlds below `FIRST_PRACTICE_SEED`: one name in five is."""
    return zlib.crc32(name.encode()) % 5 == 0


def build_world(seed: int, size: WorldSize = _FULL_SIZE) -> World:
    """The world of `seed`, with `size` entities."""
    rng = random.Random(seed)
    entities = _entities(rng, size, reserved=seed < FIRST_PRACTICE_SEED)
    facts = _facts(rng, entities)
    return World(seed, entities, facts, _documents(entities, facts))


def chains(world: World, split: Split) -> dict[QuestionType, list[Chain]]:
    """The chains of `split` by question type, in an order that depends on the world only.

    One fifth of every type's chains (rounded) are for evaluation.
    """
    found: dict[QuestionType, list[Chain]] = {}
    for kind in QUESTION_TYPES:
        every = [Chain(kind, entity) for entity in world.entities[kind.subject]]
        every.sort(key=lambda chain: _digest(world.seed, *chain.type.relations, chain.entity))
        held_out = round(len(every) / 5)
        found[kind] = every[:held_out] if split is Split.EVALUATION else every[held_out:]
    return found


def questions(world: World, split: Split, count: int, seed: int) -> list[Question]:
    """`count` questions of `split`, no chain twice, shuffled; `seed` chooses among the chains.

    Question types are represented as evenly as their number of chains allows.

    Raises:
        ValueError: the split holds fewer chains than asked for.
    """
    split = Split(split)
    rng = random.Random(seed)
    two_hop = round(count * (0.6 if split is Split.TRAIN else 0.5))
    by_type = chains(world, split)
    chosen: list[Chain] = []
    for source, wanted in (("one_hop", count - two_hop), ("two_hop", two_hop)):
        pools = [pool for kind, pool in by_type.items() if kind.source == source]
        available = sum(map(len, pools))
        if wanted > available:
            raise ValueError(
                f"{count} {split} questions need {wanted} of source {source}, but the world of "
                f"seed {world.seed} has {available}; ask for fewer questions"
            )
        chosen += _evenly(pools, wanted, rng)
    rng.shuffle(chosen)
    return [as_question(world, chain, rng.choice(chain.type.phrasings)) for chain in chosen]


def as_question(world: World, chain: Chain, phrasing: str) -> Question:
    """The question that asks for the end of `chain`; its id is derived from its content."""
    text, answer = phrasing.format(chain.entity), world.follow(chain)[-1]
    source = chain.type.source
    question_id = f"world-{source}-{_digest(world.seed, text, answer)[:12]}"
    return Question(question_id=question_id, question=text, answers=(answer,), source=source)


def _evenly(pools: list[list[Chain]], count: int, rng: random.Random) -> list[Chain]:
    """`count` chains, one from each pool in turn; a pool that is used up is passed over."""
    shuffled = [rng.sample(pool, len(pool)) for pool in pools]
    rng.shuffle(shuffled)  # which types are represented once more than others
    chosen: list[Chain] = []
    while len(chosen) < count:
        for pool in shuffled:
            if pool and len(chosen) < count:
                chosen.append(pool.pop())
    return chosen


def _digest(*parts: object) -> str:
    return hashlib.blake2b("\n".join(map(str, parts)).encode(), digest_size=16).hexdigest()


def _entities(rng: random.Random, size: WorldSize, reserved: bool) -> dict[Kind, tuple[str, ...]]:
    """Names of every kind, all different. Given names and surnames are reserved one by one."""

    def pick(draw: Callable[[], str]) -> str:
        while is_reserved(name := draw()) is not reserved:
            pass
        return name

    def word(endings: Sequence[str]) -> str:
        return pick(lambda: rng.choice(vocabulary.STEMS) + rng.choice(endings))

    def person() -> str:
        return f"{word(vocabulary.GIVEN_ENDINGS)} {word(vocabulary.SURNAME_ENDINGS)}"

    def book() -> str:
        adjectives, nouns = vocabulary.TITLE_ADJECTIVES, vocabulary.TITLE_NOUNS
        return pick(lambda: f"The {rng.choice(adjectives)} {rng.choice(nouns)}")

    def distinct(draw: Callable[[], str], count: int) -> tuple[str, ...]:
        names: dict[str, None] = {}
        while len(names) < count:
            names[draw()] = None
        return tuple(names)

    places = {
        kind: distinct(lambda endings=endings: word(endings), getattr(size, kind))
        for kind, endings in vocabulary.PLACE_ENDINGS.items()
    }
    people, books = distinct(person, size.person), distinct(book, size.book)
    return {Kind.PERSON: people, Kind.BOOK: books, **places}


def _facts(
    rng: random.Random, entities: Mapping[Kind, tuple[str, ...]]
) -> dict[tuple[Relation, str], str]:
    """A value for every relation of every entity, drawn independently; only capitals differ.

    With one town the capital of two counties, a search for that town's own county would show the
    two counties instead of the town.
    """
    choices: dict[Kind, dict[Relation, Sequence[str]]] = {
        Kind.PERSON: {
            Relation.BIRTHPLACE: entities[Kind.TOWN],
            Relation.JOB: vocabulary.JOBS,
        },
        Kind.BOOK: {
            Relation.AUTHOR: entities[Kind.PERSON],
            Relation.YEAR: vocabulary.YEARS,
            Relation.GENRE: vocabulary.GENRES,
        },
        Kind.TOWN: {
            Relation.RIVER: entities[Kind.RIVER],
            Relation.COUNTY: entities[Kind.COUNTY],
            Relation.MAYOR: entities[Kind.PERSON],
        },
        Kind.RIVER: {Relation.LAKE: entities[Kind.LAKE]},
    }
    facts = {
        (relation, entity): rng.choice(values)
        for kind, relations in choices.items()
        for entity in entities[kind]
        for relation, values in relations.items()
    }
    counties = entities[Kind.COUNTY]
    capitals = rng.sample(entities[Kind.TOWN], len(counties))
    for county, capital in zip(counties, capitals, strict=True):
        facts[Relation.CAPITAL, county] = capital
    return facts


_TEXTS = {
    Kind.PERSON: "{name} is a {job} born in {birthplace}.",
    Kind.BOOK: "{name} is a {genre} written by {author} in {year}.",
    Kind.TOWN: "{name} is a town in {county} on the river {river}. Its mayor is {mayor}.",
    Kind.RIVER: "{name} is a river that flows into lake {lake}.",
    Kind.COUNTY: "{name} is a county. Its capital is {capital}.",
}


def _documents(
    entities: Mapping[Kind, tuple[str, ...]], facts: Mapping[tuple[Relation, str], str]
) -> tuple[Document, ...]:
    stated: dict[str, dict[str, str]] = {}
    for (relation, entity), value in facts.items():
        stated.setdefault(entity, {})[relation] = value
    return tuple(
        Document(
            document_id=f"{kind}-{re.sub('[^a-z]+', '-', name.lower())}",
            title=name,
            text=text.format(name=name, **stated[name]),
        )
        for kind, text in _TEXTS.items()
        for name in entities[kind]
    )
