"""Supervised training shows the observations that rollouts will show."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from searchr1.data.world import DEMO_SEED, Split, build_world, chains
from searchr1.search.index import open_index
from searchr1.search.observation import render_items
from searchr1.tiny_policy.episodes import perfect_is_possible, query_for
from searchr1.tiny_policy.retrieval import RESULTS, WorldIndex
from searchr1.trajectory import SearchItem


def test_observations_are_those_of_the_local_back_end(tmp_path: Path) -> None:
    world = build_world(DEMO_SEED)
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(json.dumps(asdict(each)) for each in world.documents))
    local, _ = open_index(corpus, tmp_path)
    index = WorldIndex(world)
    queries = [query_for(relation, entity) for relation, entity in world.facts]
    for query in [*queries, "river", "mayor of the capital", "born in", "zzz", "", "?!"]:
        found = local.search(query, RESULTS)
        lines = render_items([SearchItem(each.title, each.text) for each in found])
        assert index.observe(query) == "\n".join(lines), query


def test_a_search_without_a_hit_says_so() -> None:
    assert WorldIndex(build_world(3)).observe("zzz") == "- no results"


@pytest.mark.parametrize("seed", [DEMO_SEED, 7, 1234])
def test_a_query_of_relation_and_entity_shows_the_value(seed: int) -> None:
    world = build_world(seed)
    index = WorldIndex(world)
    for split in Split:
        for of_type in chains(world, split).values():
            for chain in of_type:
                assert perfect_is_possible(world, index, chain, RESULTS), chain
