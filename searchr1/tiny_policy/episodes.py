"""Episodes that the tiny policy imitates: perfect ones, and ones with poor habits.

A perfect episode searches "relation entity" hop by hop and ends with the answer line. An episode
with habits does some of it badly, at a rate that depends on the question's type: these are what
reinforcement learning has to repair. The most frequent ones are a wrong form of the answer and
stopping after the first hop.
"""

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from searchr1.data.world import Chain, QuestionType, World
from searchr1.data.world_vocabulary import QUESTION_TYPES
from searchr1.tiny_policy import SYSTEM_PROMPT
from searchr1.tiny_policy.retrieval import RESULTS, WorldIndex

Message = dict[str, str]

SEARCH_TOOL = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search the documents.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
        },
    },
}
RIGHT_FORM = "Answer: {}"
WRONG_FORM = "The answer is {}."
"""One wrong form only: it then is what greedy decoding answers in most types of questions."""
UNKNOWN = "unknown"


class Habits(NamedTuple):
    """How likely a policy is to do each thing well, independently."""

    searches: float = 1.0
    """Search at all, instead of answering "unknown"."""
    names_entity: float = 1.0
    """Put the entity into the query, not only the relation."""
    goes_on: float = 1.0
    """Search for the second hop, instead of answering with the first hop's value."""
    answers_in_form: float = 1.0
    """Answer in the right form."""
    repeats: float = 0.0
    """Search for the same again after a good search."""


PERFECT = Habits()


def deal_habits(rng: random.Random) -> dict[QuestionType, Habits]:
    """Habits for every type of question: bad in most types, fair in the rest.

    The two levels are dealt out in fixed numbers among one-hop types and among two-hop types, so
    that greedy decoding, which does what is likelier, is bad in most types whatever `rng` gives.
    """
    dealt: dict[QuestionType, Habits] = {}
    for source in ("one_hop", "two_hop"):
        types = [kind for kind in QUESTION_TYPES if kind.source == source]
        in_form = _deal(rng, len(types), low_share=0.6, low=(0.22, 0.40), high=(0.62, 0.85))
        goes_on = _deal(rng, len(types), low_share=0.64, low=(0.20, 0.38), high=(0.60, 0.80))
        for kind, form, further in zip(types, in_form, goes_on, strict=True):
            dealt[kind] = Habits(
                searches=rng.uniform(0.82, 0.95),
                names_entity=rng.uniform(0.88, 0.97),
                goes_on=further,
                answers_in_form=form,
                repeats=0.04,
            )
    return dealt


def call(query: str) -> str:
    """The text of a turn that searches for `query`."""
    return (
        f"<tool_call>\n<function=search>\n<parameter=query>\n{query}\n</parameter>\n"
        "</function>\n</tool_call>"
    )


def query_for(relation: str, entity: str) -> str:
    """The query that finds the value of `relation`.

    The name comes last, so that it has a leading space, as everywhere in the documents and
    questions: the same tokens everywhere, to be copied one by one.
    """
    return f"{relation} {entity}"


def perfect_is_possible(world: World, index: WorldIndex, chain: Chain, results: int) -> bool:
    """Whether the search for every hop of `chain` shows the value that it asks for."""
    values = world.follow(chain)
    entities = (chain.entity, *values)
    return all(
        value in index.observe(query_for(relation, entity), results)
        for relation, entity, value in zip(chain.type.relations, entities, values, strict=False)
    )


def episode(
    world: World,
    index: WorldIndex,
    chain: Chain,
    habits: Habits,
    rng: random.Random,
    results: int = RESULTS,
) -> list[Message]:
    """The messages of one episode about `chain`, from system prompt to final answer."""
    question = rng.choice(chain.type.phrasings).format(chain.entity)
    messages = [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": question},
    ]

    def search(query: str) -> None:
        messages.append({"role": "assistant", "content": call(query)})
        messages.append({"role": "tool", "content": index.observe(query, results)})

    def answer(value: str) -> list[Message]:
        form = RIGHT_FORM if rng.random() < habits.answers_in_form else WRONG_FORM
        messages.append({"role": "assistant", "content": form.format(value)})
        return messages

    if rng.random() >= habits.searches:
        return answer(UNKNOWN)
    known = chain.entity
    for hop, (relation, value) in enumerate(
        zip(chain.type.relations, world.follow(chain), strict=True)
    ):
        if hop > 0 and rng.random() >= habits.goes_on:
            return answer(known)
        if rng.random() >= habits.names_entity:
            search(relation)
            if rng.random() < 0.6:
                return answer(UNKNOWN)
        search(query_for(relation, known))
        if rng.random() < habits.repeats:
            search(query_for(relation, known))
        known = value
    return answer(known)


def draw_chain(world: World, rng: random.Random, types: Sequence[QuestionType]) -> Chain:
    """A chain of one of `types`, each equally likely."""
    kind = rng.choice(types)
    return Chain(kind, rng.choice(world.entities[kind.subject]))


def habits_for(chain: Chain, habits: Mapping[QuestionType, Habits] | None) -> Habits:
    """The habits dealt to the chain's type; perfect ones where none were dealt."""
    return PERFECT if habits is None else habits[chain.type]


def _deal(
    rng: random.Random,
    count: int,
    low_share: float,
    low: tuple[float, float],
    high: tuple[float, float],
) -> list[float]:
    """`count` rates, a fixed share of them drawn from `low` and the rest from `high`, shuffled."""
    lows = round(count * low_share)
    rates = [rng.uniform(*low) for _ in range(lows)]
    rates += [rng.uniform(*high) for _ in range(count - lows)]
    rng.shuffle(rates)
    return rates
