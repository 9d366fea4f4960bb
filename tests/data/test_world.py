"""The built-in world: made from a seed alone, every answer in its documents, splits that never
meet, and names that practice worlds never use."""

import hashlib
import re
from collections import Counter

import pytest

from searchr1.data.world import (
    DEMO_SEED,
    EVALUATION_COUNT,
    FIRST_PRACTICE_SEED,
    QUESTION_TYPES,
    TRAIN_COUNT,
    Chain,
    Kind,
    Split,
    World,
    build_world,
    chains,
    questions,
)
from searchr1.trajectory import Question

DOCUMENT_FORMS = (
    r"(?P<entity>.+) is a (?P<job>\w+) born in (?P<birthplace>\w+)\.",
    r"(?P<entity>.+) is a (?P<genre>\w+) written by (?P<author>\w+ \w+) in (?P<year>\d{4})\.",
    r"(?P<entity>.+) is a town in (?P<county>\w+) on the river (?P<river>\w+)\. "
    r"Its mayor is (?P<mayor>\w+ \w+)\.",
    r"(?P<entity>.+) is a river that flows into lake (?P<lake>\w+)\.",
    r"(?P<entity>.+) is a county\. Its capital is (?P<capital>\w+)\.",
)


@pytest.fixture(scope="module")
def world() -> World:
    return build_world(DEMO_SEED)


def read_facts(world: World) -> dict[tuple[str, str], str]:
    """What a reader learns from the documents: (relation, entity) to value."""
    facts: dict[tuple[str, str], str] = {}
    for document in world.documents:
        matches = [found for form in DOCUMENT_FORMS if (found := re.fullmatch(form, document.text))]
        assert len(matches) == 1, document.text
        stated = matches[0].groupdict()
        entity = stated.pop("entity")
        assert entity == document.title
        facts |= {(relation, entity): value for relation, value in stated.items()}
    return facts


QUESTION_FORMS = [
    (kind, re.compile(re.escape(phrasing).replace(r"\{\}", "(.+)")))
    for kind in QUESTION_TYPES
    for phrasing in kind.phrasings
]


def asked_chain(world: World, question: Question) -> Chain:
    """The chain that the text of a question asks for."""
    found = [
        Chain(kind, match[1])
        for kind, form in QUESTION_FORMS
        if (match := form.fullmatch(question.question)) and match[1] in world.entities[kind.subject]
    ]
    assert len(found) == 1, question
    return found[0]


def test_a_seed_gives_the_same_world_and_the_same_questions_again(world: World) -> None:
    again = build_world(DEMO_SEED)
    assert again == world
    for split in Split:
        assert questions(again, split, 40, seed=3) == questions(world, split, 40, seed=3)
        assert questions(world, split, 40, seed=4) != questions(world, split, 40, seed=3)
    assert build_world(DEMO_SEED + 1).facts != world.facts


def test_the_demo_world_is_the_one_that_published_figures_come_from(world: World) -> None:
    lines = [f"{each.document_id} {each.title} {each.text}" for each in world.documents]
    lines += [
        f"{each.question_id} {each.question} {each.answers}"
        for each in questions(world, Split.EVALUATION, EVALUATION_COUNT, seed=0)
    ]
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] == "e116a77497f20ed4"


def test_every_entity_but_a_lake_has_one_document_that_starts_with_its_name(world: World) -> None:
    documented = [name for kind in Kind if kind is not Kind.LAKE for name in world.entities[kind]]
    assert sorted(document.title for document in world.documents) == sorted(documented)
    assert len({document.document_id for document in world.documents}) == len(world.documents)
    assert all(document.text.startswith(document.title) for document in world.documents)


@pytest.mark.parametrize("seed", [DEMO_SEED, 3, 999])
def test_every_question_is_answered_by_walking_the_documents(seed: int) -> None:
    world = build_world(seed)
    facts = read_facts(world)
    for split, count in ((Split.TRAIN, TRAIN_COUNT), (Split.EVALUATION, EVALUATION_COUNT)):
        for question in questions(world, split, count, seed=1):
            chain = asked_chain(world, question)
            value = chain.entity
            for relation in chain.type.relations:
                value = facts[relation, value]
            assert question.answers == (value,)
            assert question.source == ("one_hop", "two_hop")[len(chain.type.relations) - 1]


def test_no_chain_is_in_both_splits_whatever_the_seeds(world: World) -> None:
    asked = {
        split: {
            asked_chain(world, question)
            for seed in range(5)
            for question in questions(world, split, count, seed)
        }
        for split, count in ((Split.TRAIN, TRAIN_COUNT), (Split.EVALUATION, 120))
    }
    assert asked[Split.TRAIN] and asked[Split.EVALUATION]
    assert not asked[Split.TRAIN] & asked[Split.EVALUATION]


def test_the_splits_share_out_all_chains(world: World) -> None:
    for kind in QUESTION_TYPES:
        train, evaluation = (chains(world, split)[kind] for split in Split)
        assert sorted(chain.entity for chain in [*train, *evaluation]) == sorted(
            world.entities[kind.subject]
        )


def test_the_evaluation_set_is_half_two_hop_and_represents_all_types(world: World) -> None:
    held_out = questions(world, Split.EVALUATION, EVALUATION_COUNT, seed=0)
    assert Counter(question.source for question in held_out) == {"one_hop": 35, "two_hop": 35}
    types = Counter(asked_chain(world, question).type for question in held_out)
    assert set(types) == set(QUESTION_TYPES)
    assert max(types.values()) <= 5


def test_the_training_set_is_three_fifths_two_hop_without_repetition(world: World) -> None:
    train = questions(world, Split.TRAIN, TRAIN_COUNT, seed=0)
    assert Counter(question.source for question in train) == {"one_hop": 240, "two_hop": 360}
    assert len({asked_chain(world, question) for question in train}) == TRAIN_COUNT
    assert len({question.question_id for question in train}) == TRAIN_COUNT


def test_both_phrasings_of_every_type_are_used(world: World) -> None:
    train = questions(world, Split.TRAIN, TRAIN_COUNT, seed=0)
    for kind in QUESTION_TYPES:
        entities = world.entities[kind.subject]
        for phrasing in kind.phrasings:
            texts = {phrasing.format(entity) for entity in entities}
            assert any(question.question in texts for question in train), phrasing


def test_a_question_keeps_its_id_and_different_questions_have_different_ones(world: World) -> None:
    by_id: dict[str, Question] = {}
    for seed in range(3):
        for question in questions(world, Split.TRAIN, TRAIN_COUNT, seed):
            assert by_id.setdefault(question.question_id, question) == question
    assert all(
        re.fullmatch(rf"world-{question.source}-[0-9a-f]{{12}}", question_id)
        for question_id, question in by_id.items()
    )


def test_asking_for_more_questions_than_there_are_says_how_many_there_are(world: World) -> None:
    with pytest.raises(ValueError, match="has 76; ask for fewer"):
        questions(world, Split.EVALUATION, 400, seed=0)


def test_names_of_worlds_for_training_and_evaluation_never_occur_in_practice_worlds() -> None:
    def names(seeds: range) -> set[str]:
        found: set[str] = set()
        for seed in seeds:
            entities = build_world(seed).entities
            for kind in Kind:
                found.update(entities[kind])
            # A given name or a surname alone is a name to copy, too.
            found.update(word for person in entities[Kind.PERSON] for word in person.split())
        return found

    for practice in (FIRST_PRACTICE_SEED, 1_000_000, 4_000_000):
        assert not names(range(DEMO_SEED, DEMO_SEED + 12)) & names(range(practice, practice + 12))
    assert not names(range(999, 1000)) & names(range(1000, 1020))
