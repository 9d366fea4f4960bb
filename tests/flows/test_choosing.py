"""Which policies are evaluated, and how, when a person leaves it open."""

from pathlib import Path

from flows.eval_flow import chosen_policies, of_the_run

import pytest

from searchr1.config import EvalSettings, resolve
from searchr1.errors import SettingsError
from searchr1.runs import Run
from tests.synthetic_run import Skill, make_questions, make_run, start_run, write_evaluation

QUESTIONS = make_questions(28)
EASY = make_questions(28, "easy")
GOOD, FAIR, POOR = Skill.at(1), Skill.at(0.5), Skill.at(0)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Checkpoints step_3 and step_6, each with an evaluation on 28 questions."""
    return make_run(tmp_path, steps=6, save_every=3)


def chosen(run: Run, ckpts: str) -> list[str]:
    settings = resolve(EvalSettings, {"ckpts": ckpts, "base_model": "tiny"})
    return [policy.label for policy in chosen_policies(run, settings)]


def test_names_latest_and_best_are_policies_once_each_after_the_base(run):
    assert chosen(run, "all") == ["base", "step_3", "step_6"]
    assert chosen(run, "step_6,latest,base") == ["base", "step_6"]
    assert chosen(run, "latest,step_3") == ["base", "step_6", "step_3"]


def test_the_best_has_the_highest_score(tmp_path):
    for better, worse in (("step_3", "step_6"), ("step_6", "step_3")):
        run = make_run(tmp_path, better, save_every=3, evaluation_questions=7)
        for label, skill in ((better, GOOD), (worse, POOR)):
            step = int(label.removeprefix("step_"))
            # Later than the evaluations of the run itself.
            write_evaluation(run, f"{label}.b", QUESTIONS, skill, checkpoint=label, step=step + 60)
        assert chosen(run, "best") == ["base", better]


def test_a_score_on_other_questions_or_of_another_model_does_not_make_the_best(run):
    for step, skill in ((3, FAIR), (6, POOR)):
        label = f"step_{step}"
        write_evaluation(run, f"{label}.b", QUESTIONS, skill, checkpoint=label, step=step + 60)
    write_evaluation(run, "step_6.easy", EASY, GOOD, checkpoint="step_6", step=70)
    write_evaluation(run, "step_9", QUESTIONS, GOOD, checkpoint="step_9", step=0)
    assert chosen(run, "best") == ["base", "step_3"]


def test_without_an_evaluated_checkpoint_there_is_no_best(tmp_path):
    run = start_run(tmp_path)
    write_evaluation(run, "base", QUESTIONS, GOOD, checkpoint="base", step=0)
    with pytest.raises(SettingsError, match="--ckpts all"):
        chosen(run, "best")


def test_what_is_not_said_is_as_in_the_training_of_the_run(tmp_path):
    prices = {"price_sample_tokens": 2.5}
    start_run(tmp_path, max_search_calls=2, temperature=0.7, learning_rate=1e-3, **prices)
    unsaid = of_the_run(resolve(EvalSettings, {"runs_dir": tmp_path}))
    assert unsaid["max_search_calls"] == 2
    assert unsaid["policy_service"] == "embedded"
    assert unsaid["price_sample_tokens"] == 2.5
    assert resolve(EvalSettings, unsaid).max_search_calls == 2
    assert not {"temperature", "learning_rate", "max_steps", "runs_dir"} & set(unsaid)
    assert of_the_run(resolve(EvalSettings, {"runs_dir": tmp_path, "profile": "local"})) == {}


def test_checkpoints_are_not_compared_with_another_base_model(run):
    given = {"ckpts": "step_3", "profile": "deepseek"}
    with pytest.raises(SettingsError, match="Qwen"):
        chosen_policies(run, resolve(EvalSettings, given))
