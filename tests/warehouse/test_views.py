"""The views against small cases worked by hand, and against the library's own rules."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from searchr1.advantage import group_advantages
from searchr1.datum import trajectory_rewards
from searchr1.evaluation import Metric, compare, items_from, summarise, wilson
from searchr1.runs import Run
from searchr1.trajectory import (
    Group,
    Question,
    SearchItem,
    SearchRecord,
    StopReason,
    Trajectory,
    TurnRecord,
)
from searchr1.warehouse import load, open_warehouse
from tests.synthetic_run import (
    Skill,
    make_questions,
    make_run,
    make_trajectory,
    start_run,
    with_stop,
    write_evaluation,
    write_step,
)

QUESTION = Question("q1", "Who wrote the book Amber Field?", ("Mara Lund", "Lund"), "hotpotqa")


def search(query: str, observation: str = "Nothing.", **values: Any) -> SearchRecord:
    """A search that shows `observation`."""
    defaults: dict = {
        "turn": 0,
        "query": query,
        "ok": True,
        "error": "",
        "items": (SearchItem("Title", observation, "https://example.org"),),
        "observation": observation,
        "seconds": 1.0,
        "cached": False,
        "cost": 0.0,
    }
    return SearchRecord(**(defaults | values))


def trajectory(
    searches: Sequence[SearchRecord] = (),
    *,
    question: Question = QUESTION,
    index: int = 0,
    reward: float = 0.0,
    stop: StopReason = StopReason.ANSWERED,
    em: bool = False,
    seconds: float = 5.0,
    sampling: float = 1.0,
) -> Trajectory:
    """A trajectory with these searches."""
    return Trajectory(
        question=question,
        index=index,
        tokens=(1, 2, 3, 4),
        loss_mask=(False, False, True, True),
        logprobs=(0.0, 0.0, -0.5, -1.5),
        turns=(TurnRecord(2, 4, "Answer: x", "answer", sampling),),
        searches=tuple(searches),
        stop_reason=stop,
        error="",
        final_text="Answer: x",
        answer="x",
        reward=reward,
        valid_format=reward >= 0,
        em=em,
        em_squad=em,
        f1=float(em),
        cover_em=em,
        seconds=seconds,
    )


class Warehouse:
    """A run whose steps a test writes, and its warehouse."""

    def __init__(self, runs_dir: Path) -> None:
        self.runs_dir = runs_dir
        self.run: Run = start_run(runs_dir)
        self._steps = 0

    def step(
        self, trajectories: Sequence[Trajectory], metrics: dict[str, float] | None = None
    ) -> None:
        """Write one more step."""
        self._steps += 1
        write_step(self.run, self._steps, trajectories, metrics=metrics)

    def ask(self, query: str) -> list[tuple]:
        """Load and query."""
        load(self.runs_dir)
        with open_warehouse(self.runs_dir) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """An empty run."""
    return Warehouse(tmp_path / "runs")


# ---- groups and advantages


def group_of(question_id: str, rewards: Sequence[float | None]) -> list[Trajectory]:
    """A group with these rewards; None is an environment error."""
    question = replace(QUESTION, question_id=question_id)
    return [
        trajectory(question=question, index=i, reward=reward, em=reward == 1.0)
        if reward is not None
        else trajectory(question=question, index=i, reward=-0.1, stop=StopReason.ENVIRONMENT_ERROR)
        for i, reward in enumerate(rewards)
    ]


def test_advantages_and_group_kinds_agree_with_the_training_code(warehouse: Warehouse) -> None:
    chance = random.Random(0)
    groups = {
        "seed-example": [1.0, 0.0, 0.0, -0.1, 1.0, 0.0, 0.0, -0.1],
        "eight-malformed": [-0.1] * 8,
        "all-right": [1.0] * 4,
        "too-few": [1.0, None, None],
        "only-errors": [None, None],
        "wrong-and-malformed": [0.0, -0.1],
        "valid-ones-equal": [1.0, 1.0, None],
    }
    for number in range(40):
        size = chance.randint(1, 8)
        groups[f"random-{number}"] = [chance.choice([1.0, 0.0, -0.1, None]) for _ in range(size)]
    made = {key: group_of(key, rewards) for key, rewards in groups.items()}
    warehouse.step([t for group in made.values() for t in group])
    stored = warehouse.ask("SELECT question_id, sample, advantage FROM trajectories")
    kinds = dict(warehouse.ask("SELECT question_id, kind FROM groups"))
    advantages = {(question, sample): advantage for question, sample, advantage in stored}
    for key, group in made.items():
        question = group[0].question
        expected = group_advantages(trajectory_rewards(Group(question, tuple(group))))
        found = tuple(advantages[key, index] for index in range(len(group)))
        assert found == pytest.approx(expected.values, abs=1e-12), key
        assert kinds[key] == expected.outcome.value, key
    # Exactly zero, not almost: eight rewards of -0.1 have no gradient.
    assert [advantages["eight-malformed", i] for i in range(8)] == [0.0] * 8


def test_degenerate_groups_are_split_into_all_right_and_all_wrong(warehouse: Warehouse) -> None:
    kinds = [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [1.0, None]]
    warehouse.step([t for n, rewards in enumerate(kinds) for t in group_of(f"q{n}", rewards)])
    rows = warehouse.ask(
        "SELECT groups, mixed, all_right, all_wrong, too_few, degenerate_rate "
        "FROM degenerate_groups"
    )
    assert rows == [(5, 1, 2, 1, 1, 0.8)]


def test_evaluations_have_no_advantage(warehouse: Warehouse) -> None:
    questions = make_questions(3, "dev")
    write_evaluation(warehouse.run, "base", questions, Skill.at(0), checkpoint="base", step=0)
    assert warehouse.ask("SELECT DISTINCT advantage FROM trajectories") == [(None,)]


# ---- searches


def test_repeated_and_nearly_repeated_queries_are_told_apart(warehouse: Warehouse) -> None:
    queries = [
        "Amber Field author",
        "amber  field, AUTHOR!",  # the same words in the same order
        "author Amber Field",  # other order
        "birthplace of Mara Lund",
        "where was the author of the novel Amber Field born",  # shares 3 of 10 words
    ]
    warehouse.step([trajectory([search(query) for query in queries])])
    rows = warehouse.ask("SELECT repeated, near_repeated FROM searches ORDER BY search")
    assert rows == [
        (False, False),
        (True, False),
        (False, True),
        (False, False),
        (False, False),
    ]
    (totals,) = warehouse.ask("SELECT searches, searches_repeated FROM trajectories")
    assert totals == (5, 2)


def test_first_query_overlap_is_the_share_of_its_words_in_the_question(
    warehouse: Warehouse,
) -> None:
    warehouse.step([trajectory([search("Amber Field author"), search("Lund")])])
    rows = warehouse.ask("SELECT first_query_overlap, query_words FROM query_behaviour")
    assert rows == [(pytest.approx(2 / 3), 2.0)]


@pytest.mark.parametrize(
    ("observation", "found"),
    [
        ("It was written by Mara Lund, in 1920.", True),
        ("MARA LUND", True),
        ("The Lund family", True),
        ("Lundby is a town", False),  # whole words only
        ("Mara and others", False),
        ("", False),
    ],
)
def test_an_answer_is_found_as_whole_words(
    warehouse: Warehouse, observation: str, found: bool
) -> None:
    warehouse.step([trajectory([search("x", observation)])])
    assert warehouse.ask("SELECT answer_in_observation FROM searches") == [(found,)]
    assert warehouse.ask("SELECT answer_in_evidence FROM trajectories") == [(found,)]


def test_answers_in_languages_without_spaces_are_found(warehouse: Warehouse) -> None:
    question = Question("q", "作者是谁?", ("鲁迅",), "nq")
    warehouse.step([trajectory([search("x", "狂人日记是鲁迅写的。")], question=question)])
    assert warehouse.ask("SELECT answer_in_observation FROM searches") == [(True,)]


def test_yes_and_no_prove_nothing(warehouse: Warehouse) -> None:
    question = Question("q", "Is it?", ("yes",), "hotpotqa")
    warehouse.step([trajectory([search("x", "yes it is")], question=question)])
    assert warehouse.ask("SELECT answer_in_observation FROM searches") == [(None,)]
    assert warehouse.ask("SELECT answer_in_evidence FROM trajectories") == [(None,)]
    assert warehouse.ask("FROM evidence_use") == []


def test_searches_after_the_answer_was_read_are_counted(warehouse: Warehouse) -> None:
    seen = "written by Mara Lund"
    warehouse.step([trajectory([search("a"), search("b", seen), search("c", seen), search("d")])])
    assert warehouse.ask("SELECT after_answer FROM searches ORDER BY search") == [
        (False,),
        (False,),
        (True,),
        (True,),
    ]
    assert warehouse.ask("SELECT searches_after_answer FROM trajectories") == [(2,)]
    assert warehouse.ask("SELECT after_answer_rate FROM search_behaviour") == [(0.5,)]


def test_evidence_use_names_the_four_cases(warehouse: Warehouse) -> None:
    seen, unseen = [search("a", "by Mara Lund")], [search("a", "nothing")]
    cases = [(seen, True), (seen, True), (seen, False), (unseen, True), (unseen, False)]
    warehouse.step([trajectory(searches, index=i, em=em) for i, (searches, em) in enumerate(cases)])
    rows = warehouse.ask(
        "SELECT found_and_used, found_not_used, right_without_evidence, not_found, used_when_found "
        "FROM evidence_use"
    )
    assert rows == [pytest.approx((0.4, 0.2, 0.2, 0.2, 2 / 3))]


def test_search_behaviour_is_split_by_hops(warehouse: Warehouse) -> None:
    one = replace(QUESTION, source="nq")
    world = replace(QUESTION, source="one_hop")
    unknown = replace(QUESTION, source="elsewhere")
    warehouse.step(
        [
            trajectory([search("a")], question=one, index=0),
            trajectory([], question=world, index=1),
            trajectory([search("a"), search("b")], index=2),
            trajectory([search("a")], question=unknown, index=3),
        ]
    )
    rows = warehouse.ask("SELECT hops, searches, no_search_rate FROM search_behaviour ORDER BY 1")
    assert rows == [("one hop", 0.5, 0.5), ("several hops", 2.0, 0.0), ("unknown", 1.0, 0.0)]


def test_search_health_counts_errors_by_kind(warehouse: Warehouse) -> None:
    failed = {"ok": False, "items": (), "observation": ""}
    searches = [
        search("a", seconds=1.0),
        search("b", seconds=3.0, cached=True, cost=0.5),
        search("c", error="timeout", seconds=60.0, **failed),
        search("d", error="rate_limited", **failed),
        search("e", error="bad_query", **failed),
        search("f", error="circuit_open", **failed),
        search("g", items=()),
    ]
    warehouse.step([trajectory(searches)])
    rows = warehouse.ask(
        "SELECT searches, success_rate, timeouts, rate_limited, bad_queries, other_errors, "
        "empty_rate, cached_rate, latency_max, usd FROM search_health"
    )
    assert rows == [pytest.approx((7, 3 / 7, 1, 1, 1, 1, 1 / 7, 1 / 7, 60.0, 0.5))]


# ---- steps


def test_reward_stands_beside_environment_errors(warehouse: Warehouse) -> None:
    good = [trajectory([search("a")], index=i, reward=1.0, em=True) for i in range(3)]
    failed = search("a", ok=False, error="timeout", items=(), observation="")
    bad = trajectory([failed], index=3, reward=-0.1, stop=StopReason.ENVIRONMENT_ERROR)
    warehouse.step([*good, bad])
    rows = warehouse.ask(
        "SELECT reward, reward_with_errors, environment_errors, search_error_rate "
        "FROM reward_and_environment"
    )
    assert rows == [pytest.approx((1.0, 2.9 / 4, 1, 0.25))]


def test_environment_trouble_shows_as_a_negative_correlation(warehouse: Warehouse) -> None:
    for failures in (0, 4, 1, 3):
        warehouse.step(
            [
                trajectory(
                    [search("a"), search("b", ok=i >= failures, error="timeout")],
                    index=i,
                    em=i >= failures,
                )
                for i in range(8)
            ]
        )
    rows = warehouse.ask(
        "SELECT correlation_over_20_steps FROM reward_and_environment ORDER BY step"
    )
    assert rows[0] == (None,)
    assert rows[-1][0] == pytest.approx(-1.0)


def test_stop_reasons_add_up(warehouse: Warehouse) -> None:
    stops = [StopReason.ANSWERED] * 3 + [StopReason.TURN_LIMIT]
    warehouse.step([trajectory(index=i, stop=stop) for i, stop in enumerate(stops)])
    rows = warehouse.ask("SELECT stop_reason, trajectories, share FROM stop_reasons")
    assert rows == [("answered", 3, 0.75), ("turn_limit", 1, 0.25)]


def test_slowest_trajectories_say_what_they_waited_for(warehouse: Warehouse) -> None:
    warehouse.step(
        [
            trajectory([search("slow one", seconds=50.0)], index=0, seconds=60.0),
            trajectory(index=1, seconds=40.0, sampling=39.0),
            trajectory(index=2, seconds=30.0, sampling=1.0),
        ]
    )
    rows = warehouse.ask("SELECT sample, mostly, longest_search FROM slowest_trajectories")
    assert rows == [
        (0, "searching", "slow one"),
        (1, "sampling", None),
        (2, "waiting for its turn", None),
    ]


def test_cost_time_and_warnings_come_from_the_ledger(warehouse: Warehouse) -> None:
    warehouse.step(
        [trajectory()],
        {"time/step_seconds": 12.5, "cost/total_usd": 0.25, "watchdog/entropy_gone": 1.0},
    )
    warehouse.step([trajectory()], {"watchdog/entropy_gone": 0.0})
    rows = warehouse.ask("SELECT step, step_seconds, total_usd FROM cost_and_time")
    assert rows[0] == (1, 12.5, 0.25)
    assert warehouse.ask("FROM collapse_warnings") == [("demo", 1, "watchdog/entropy_gone", 1.0)]


def test_mean_logprob_is_over_the_drawn_tokens(warehouse: Warehouse) -> None:
    warehouse.step([trajectory()])
    assert warehouse.ask("SELECT policy_tokens, mean_logprob FROM trajectories") == [(2, -1.0)]


# ---- evaluations


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with evaluations, an environment error among them."""
    runs_dir = tmp_path_factory.mktemp("evaluated") / "runs"
    run = make_run(runs_dir, steps=3, evaluation_questions=35)
    write_evaluation(
        run,
        "step_3",
        make_questions(35, "dev"),
        Skill.at(1),
        checkpoint="step_3",
        step=3,
        seed=3,
        search_errors=0.03,
    )
    load(runs_dir)
    return runs_dir


def connect(runs_dir: Path) -> duckdb.DuckDBPyConnection:
    """A connection to its warehouse."""
    return open_warehouse(runs_dir)


def test_the_comparison_agrees_with_the_statistics_of_the_library(evaluated: Path) -> None:
    run = Run.open(evaluated, "demo")
    stored = {
        name: [t for group in run.evaluation(name, name).groups() for t in group.trajectories]
        for name in ("base", "step_3")
    }
    items = {name: items_from(trajectories) for name, trajectories in stored.items()}
    assert any(not item.valid for item in items["step_3"])
    with connect(evaluated) as connection:
        rows = {
            row[0]: row[1:]
            for row in connection.execute(
                "SELECT evaluation, em_macro, em_squad_macro, f1_macro, cover_em_macro, "
                "format_rate, format_low, format_high, searches, turns, tokens, no_search_rate, "
                "search_success_rate, invalid, gained, lost FROM comparison"
            ).fetchall()
        }
    for name, found in rows.items():
        summary = summarise(items[name])
        macro, overall = summary.macro, summary.overall
        assert found[:12] == pytest.approx(
            (
                macro[Metric.EM].value,
                macro[Metric.EM_SQUAD].value,
                macro[Metric.F1].value,
                macro[Metric.COVER_EM].value,
                *overall[Metric.VALID_FORMAT],
                overall[Metric.SEARCHES].value,
                overall[Metric.TURNS].value,
                overall[Metric.TOKENS].value,
                overall[Metric.NO_SEARCH].value,
                overall[Metric.SEARCH_SUCCESS].value,
            )
        ), name
        assert found[12] == summary.invalid
    paired = compare(items["base"], items["step_3"])
    assert rows["step_3"][13:] == (len(paired.gained), len(paired.lost))
    assert rows["base"][13:] == (None, None)


def test_gained_and_lost_name_the_questions_of_the_library(evaluated: Path) -> None:
    run = Run.open(evaluated, "demo")
    base, after = (
        items_from(t for group in run.evaluation(n, n).groups() for t in group.trajectories)
        for n in ("base", "step_3")
    )
    paired = compare(base, after)
    with connect(evaluated) as connection:
        rows = connection.execute("SELECT change, question_id FROM gained_lost").fetchall()
    assert sorted(q for change, q in rows if change == "gained") == list(paired.gained)
    assert sorted(q for change, q in rows if change == "lost") == list(paired.lost)


def test_scores_by_source_have_wilsons_interval(evaluated: Path) -> None:
    with connect(evaluated) as connection:
        rows = connection.execute(
            "SELECT em, em_low, em_high, questions FROM comparison_by_source"
        ).fetchall()
    assert len(rows) == 14
    for em, low, high, questions in rows:
        assert (em, low, high) == pytest.approx(tuple(wilson(round(em * questions), questions)))


def test_the_learning_curve_has_training_and_evaluation(evaluated: Path) -> None:
    with connect(evaluated) as connection:
        rows = connection.execute(
            "SELECT phase, step, evaluation, trajectories FROM learning_curve"
        ).fetchall()
    assert rows == [
        ("train", 1, None, 16),
        ("train", 2, None, 16),
        ("train", 3, None, 16),
        ("evaluation", 0, "base", 35),
        ("evaluation", 3, "step_3", 35),
    ]


def test_other_environments_are_compared_only_when_forced(warehouse: Warehouse) -> None:
    questions = make_questions(7, "dev")
    common: dict[str, Any] = {"step": 1, "environment": {"search_backend": "other"}}
    run = warehouse.run
    write_evaluation(run, "base", questions, Skill.at(0), checkpoint="base", step=0)
    write_evaluation(run, "plain", questions, Skill.at(1), checkpoint="a", **common)
    write_evaluation(
        run, "forced", questions, Skill.at(1), checkpoint="b", forced_mixed=True, **common
    )
    rows = warehouse.ask(
        "SELECT evaluation, same_environment, compared FROM evaluation_pairs ORDER BY 1"
    )
    assert rows == [("forced", False, True), ("plain", False, False)]
    compared = warehouse.ask("SELECT DISTINCT evaluation FROM paired_questions")
    assert compared == [("forced",)]
    flags = warehouse.ask(
        "SELECT evaluation, same_environment, forced_mixed FROM comparison ORDER BY 1"
    )
    assert flags == [("base", True, False), ("forced", False, True), ("plain", False, False)]


def test_a_sampling_error_is_no_wrong_answer(warehouse: Warehouse) -> None:
    chance = random.Random(0)
    good, other = (
        make_trajectory(QUESTION, index, Skill(1, 1, 1), chance, search_errors=0)
        for index in range(2)
    )
    warehouse.step([good, with_stop(other, StopReason.SAMPLING_ERROR)])
    rows = warehouse.ask("SELECT correct, trajectories FROM learning_curve")
    assert rows == [(float(good.em), 2)]
