"""What a tiny policy does on held-out questions, without rolling anything out.

A perfect episode is put through the model once. Where the most likely token is the episode's own at
every place that the policy writes, greedy decoding would produce that very episode; the share of
such episodes is greedy exact match, but for right answers reached in another way.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from searchr1.data.world import Split, build_world, chains
from searchr1.tiny_policy.episodes import PERFECT, episode
from searchr1.tiny_policy.examples import WRITE_WEIGHT, Example, episode_example
from searchr1.tiny_policy.retrieval import WorldIndex
from searchr1.tiny_policy.supervised import pad

MONITOR_SEED = 7
"""A world of held-out names for watching the training; never used to report results."""


class Behaviour(NamedTuple):
    """Shares of held-out questions, greedily."""

    one_hop: float
    """One-hop questions answered right, in the right form."""
    two_hop: float
    """Two-hop questions answered right, in the right form."""
    in_form: float
    """Final turns, after a perfect history, that start in the right form."""
    goes_on: float
    """Two-hop questions where, after a perfect first search, another search follows."""
    searches: float
    """First turns, all of them: the search for the right relation of the right entity."""

    def __str__(self) -> str:
        return (
            f"right {self.one_hop:.2f} one-hop, {self.two_hop:.2f} two-hop; answers in the right "
            f"form {self.in_form:.2f}; goes on to the second hop {self.goes_on:.2f}; first search "
            f"right {self.searches:.2f}"
        )


@torch.no_grad()
def measure(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, seed: int = MONITOR_SEED
) -> Behaviour:
    """The behaviour of `model` on the evaluation chains of the world of `seed`."""
    world = build_world(seed)
    index = WorldIndex(world)
    rng = random.Random(0)
    right: dict[str, list[bool]] = {"one_hop": [], "two_hop": []}
    in_form: list[bool] = []
    goes_on: list[bool] = []
    searches: list[bool] = []
    model.eval()
    for kind, held_out in chains(world, Split.EVALUATION).items():
        episodes = [
            episode_example(tokenizer, episode(world, index, chain, PERFECT, rng), True)
            for chain in held_out
        ]
        for turns in _turns_as_predicted(model, episodes):
            right[kind.source].append(all(all(turn) for turn in turns))
            in_form.append(turns[-1][0])
            searches.append(all(turns[0]))
            if kind.source == "two_hop":
                goes_on.append(turns[1][0])
    return Behaviour(
        one_hop=_share(right["one_hop"]),
        two_hop=_share(right["two_hop"]),
        in_form=_share(in_form),
        goes_on=_share(goes_on),
        searches=_share(searches),
    )


def _turns_as_predicted(
    model: Qwen3ForCausalLM, episodes: Sequence[Example]
) -> list[list[list[bool]]]:
    """For every episode and turn, whether each token of the turn is the most likely one."""
    tokens, weights = pad(episodes)
    predicted = model(input_ids=tokens, use_cache=False).logits[:, :-1].argmax(-1)
    agrees, written = predicted == tokens[:, 1:], weights[:, 1:] == WRITE_WEIGHT
    result: list[list[list[bool]]] = []
    for row in range(len(episodes)):
        turns: list[list[bool]] = []
        inside = False
        for same, own in zip(agrees[row].tolist(), written[row].tolist(), strict=True):
            if own and not inside:
                turns.append([])
            if own:
                turns[-1].append(same)
            inside = own
        result.append(turns)
    return result


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values)
