"""Settings come from the person, then the profile, then the defaults; mistakes are named."""

import pytest

from searchr1.config import (
    EvalSettings,
    PipelineSettings,
    Profile,
    TrainSettings,
    digest,
    from_command_line,
    identity,
    profile_values,
    resolve,
)
from searchr1.errors import SettingsError
from searchr1.tiny_policy import MODEL_NAME, SYSTEM_PROMPT


def test_what_a_person_sets_wins_over_the_profile_and_the_profile_over_the_default():
    assert resolve(TrainSettings, {}).learning_rate == 3e-3
    assert resolve(TrainSettings, {"learning_rate": 1e-3}).learning_rate == 1e-3
    assert resolve(TrainSettings, {"profile": "deepseek"}).learning_rate == 4e-5
    assert resolve(TrainSettings, {"learning_rate": None}).learning_rate == 3e-3


def test_the_deepseek_profile_has_the_seeds_settings():
    settings = resolve(TrainSettings, {"profile": "deepseek"})
    assert settings.base_model == "Qwen/Qwen3.5-4B"
    assert (settings.lora_rank, settings.learning_rate) == (32, 4e-5)
    assert (settings.beta1, settings.beta2, settings.seed) == (0.9, 0.95, 42)
    assert (settings.questions_per_batch, settings.group_size) == (8, 8)
    assert (settings.max_search_calls, settings.max_assistant_turns) == (4, 6)
    assert settings.max_trajectory_tokens == 8192
    assert settings.max_assistant_tokens == settings.max_tool_response_tokens == 1024
    assert (settings.temperature, settings.top_p) == (1.0, 1.0)


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("model", [TrainSettings, EvalSettings, PipelineSettings])
def test_every_profile_is_valid_for_every_flow(profile, model):
    assert resolve(model, {"profile": profile}).profile == profile


@pytest.mark.parametrize("profile", Profile)
def test_a_profile_names_no_setting_that_does_not_exist(profile):
    assert set(profile_values(profile)) <= set(PipelineSettings.model_fields)


def test_evaluation_is_greedy_unless_asked_otherwise():
    assert resolve(EvalSettings, {}).temperature == 0.0


def test_every_wrong_field_is_named_as_it_is_typed():
    with pytest.raises(SettingsError) as caught:
        resolve(TrainSettings, {"max_steps": 0, "top_p": 3, "no_such": 1})
    for flag in ("--max-steps", "--top-p", "--no-such"):
        assert flag in str(caught.value)


def test_an_unknown_profile_lists_those_there_are():
    with pytest.raises(SettingsError, match="local, wikipedia, deepseek"):
        resolve(TrainSettings, {"profile": "nowhere"})


def test_the_command_line_returns_only_what_was_typed():
    typed = from_command_line(TrainSettings, ["--max-steps", "7", "--no-train-unembed"])
    assert typed == {"max_steps": 7, "train_unembed": False}


def test_a_wrong_value_on_the_command_line_names_its_flag():
    with pytest.raises(SettingsError, match="--group-size"):
        from_command_line(TrainSettings, ["--group-size", "1"])


@pytest.mark.parametrize("flag", ["max_steps", "save_every", "run_name", "search_concurrency"])
def test_operational_settings_leave_the_identity_of_a_run_alone(flag):
    given = {"run_name": "other"} if flag == "run_name" else {flag: 9}
    assert identity(resolve(TrainSettings, given)) == identity(resolve(TrainSettings, {}))


@pytest.mark.parametrize("given", [{"learning_rate": 1e-4}, {"group_size": 4}, {"seed": 1}])
def test_settings_that_decide_what_a_step_does_change_the_digest(given):
    changed, plain = resolve(TrainSettings, given), resolve(TrainSettings, {})
    assert digest(identity(changed)) != digest(identity(plain))


def test_every_setting_tells_a_person_what_it_is():
    silent = [n for n, info in PipelineSettings.model_fields.items() if not info.description]
    assert silent == []


def test_the_local_profile_speaks_to_the_tiny_policy_as_it_was_taught():
    local = profile_values(Profile.LOCAL)
    assert (local["base_model"], local["system_prompt"]) == (MODEL_NAME, SYSTEM_PROMPT)
