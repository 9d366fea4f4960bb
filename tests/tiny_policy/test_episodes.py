"""Episodes: perfect ones score, and each poor habit shows as what it is."""

import random

import pytest

from searchr1.data.world import QUESTION_TYPES, Chain, Kind
from searchr1.protocol import TurnKind, parse_turn
from searchr1.reward import score
from searchr1.tiny_policy.episodes import (
    PERFECT,
    Habits,
    Message,
    deal_habits,
    episode,
    perfect_is_possible,
)
from searchr1.tiny_policy.examples import PracticeWorld

TWO_HOP = next(kind for kind in QUESTION_TYPES if len(kind.relations) == 2)


def turns(messages: list[Message]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "assistant"]


def play(practice: PracticeWorld, habits: Habits, seed: int = 0) -> tuple[list[Message], Chain]:
    chain = Chain(TWO_HOP, practice.world.entities[Kind.BOOK][0])
    rng = random.Random(seed)
    return episode(practice.world, practice.index, chain, habits, rng), chain


@pytest.mark.parametrize("kind", QUESTION_TYPES, ids=lambda kind: "-".join(kind.relations))
def test_the_perfect_episode_of_a_question_is_right(kind, practice: PracticeWorld) -> None:
    for entity in practice.world.entities[kind.subject][:5]:
        chain = Chain(kind, entity)
        messages = episode(practice.world, practice.index, chain, PERFECT, random.Random(0))
        *searches, final = turns(messages)
        assert [parse_turn(search).kind for search in searches] == [TurnKind.CALL] * len(
            kind.relations
        )
        reward = score(final, (practice.world.follow(chain)[-1],))
        assert (reward.reward, reward.valid_format, reward.em) == (1.0, True, True)
        assert perfect_is_possible(practice.world, practice.index, chain, 2)


def test_a_perfect_episode_reads_each_value_before_it_uses_it(practice: PracticeWorld) -> None:
    messages, chain = play(practice, PERFECT)
    author, birthplace = practice.world.follow(chain)
    first, second = (message["content"] for message in messages if message["role"] == "tool")
    assert author in first
    assert birthplace in second
    assert [parse_turn(turn).query for turn in turns(messages)[:2]] == [
        f"author {chain.entity}",
        f"birthplace {author}",
    ]


def test_without_searching_the_answer_is_unknown(practice: PracticeWorld) -> None:
    messages, _ = play(practice, Habits(searches=0.0))
    assert turns(messages) == ["Answer: unknown"]


def test_stopping_early_answers_with_the_first_value(practice: PracticeWorld) -> None:
    messages, chain = play(practice, Habits(goes_on=0.0))
    assert turns(messages)[-1] == f"Answer: {practice.world.follow(chain)[0]}"
    assert len(turns(messages)) == 2


def test_the_wrong_form_of_an_answer_is_malformed(practice: PracticeWorld) -> None:
    messages, chain = play(practice, Habits(answers_in_form=0.0))
    answer = practice.world.follow(chain)[-1]
    assert turns(messages)[-1] == f"The answer is {answer}."
    assert score(turns(messages)[-1], (answer,)).reward == pytest.approx(-0.1)


def test_a_query_without_the_name_is_followed_by_a_better_one_or_by_giving_up(
    practice: PracticeWorld,
) -> None:
    endings = set()
    for seed in range(20):
        messages, chain = play(practice, Habits(names_entity=0.0), seed)
        assert parse_turn(turns(messages)[0]).query == "author"
        endings.add(parse_turn(turns(messages)[1]).query)
    assert endings == {None, f"author {chain.entity}"}


def test_needless_repeats_search_for_the_same_twice(practice: PracticeWorld) -> None:
    messages, _ = play(practice, Habits(repeats=1.0))
    queries = [parse_turn(turn).query for turn in turns(messages)[:-1]]
    assert queries[0] == queries[1] and queries[2] == queries[3] and len(queries) == 4


@pytest.mark.parametrize("seed", range(5))
def test_most_types_of_question_are_dealt_bad_habits(seed: int) -> None:
    dealt = deal_habits(random.Random(seed))
    assert set(dealt) == set(QUESTION_TYPES)
    for source in ("one_hop", "two_hop"):
        habits = [habit for kind, habit in dealt.items() if kind.source == source]
        assert sum(habit.answers_in_form < 0.5 for habit in habits) > len(habits) / 2
        assert any(habit.answers_in_form > 0.5 for habit in habits)
        assert sum(habit.goes_on < 0.5 for habit in habits) > len(habits) / 2
        assert all(habit.searches > 0.8 and habit.names_entity > 0.8 for habit in habits)
