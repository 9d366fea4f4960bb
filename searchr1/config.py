"""Settings: one typed model is flow parameter, command line and profile alike.

A value is taken from the first of: what the person set, the profile (`profiles/*.toml`), the
model's default. `resolve` does that; everything wrong is found there, before anything is started
or paid for, in a message that names the field.
"""

import argparse
import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, CliSettingsSource, PydanticBaseSettingsSource

from searchr1.budget import Prices
from searchr1.data.settings import PREPARATION_FIELDS, DataSettings
from searchr1.errors import SettingsError
from searchr1.search.settings import OPERATIONAL_FIELDS, SearchSettings
from searchr1.tracking import SwanlabMode


class Profile(StrEnum):
    """A named set of settings."""

    LOCAL = "local"
    """No key, no GPU: the embedded engine, the tiny policy, the built-in world."""
    WIKIPEDIA = "wikipedia"
    """PyTRIO and English Wikipedia as the search engine."""
    DEEPSEEK = "deepseek"
    """PyTRIO and the DeepSeek Search API: the published settings."""


class ServiceKind(StrEnum):
    """Who samples and trains."""

    EMBEDDED = "embedded"
    """An engine of our own on this machine, started and stopped with the run."""
    PYTRIO = "pytrio"
    """The service at PYTRIO_BASE_URL (default https://pytrio.com), with PYTRIO_API_KEY."""


QuestionSet = Literal["dev70", "dev500", "full"]
"""The fixed evaluation sets (`searchr1.data`)."""


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True)


class PolicySettings(_Settings):
    """Which model, and who runs it."""

    profile: Profile = Profile.LOCAL
    """Named set of settings to start from."""
    policy_service: ServiceKind = ServiceKind.PYTRIO
    """Who samples and trains: embedded or pytrio."""
    base_model: str = "Qwen/Qwen3.5-4B"
    """Model to start from; for the embedded engine a name or a folder that transformers loads."""
    runs_dir: Path = Path("runs")
    """Folder of all runs, of the warehouse and of the embedded engine's checkpoints."""
    sample_timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds to wait for one sampling request. It is asked up to three times when no answer comes
    or none that can be read."""
    service_retry_seconds: Annotated[float, Field(gt=0)] = 900.0
    """Seconds for which a request to PyTRIO that fails for passing reasons is repeated, before the
    task fails and is retried with a new client."""
    service_timeout: Annotated[float, Field(gt=0)] = 7200.0
    """Seconds to wait for one operation of training, such as a pass over a step's datums, before
    the task fails and is retried with a new client. Waiting for capacity counts."""


class RolloutSettings(_Settings):
    """What a trajectory may do."""

    system_prompt: str | None = None
    """Instruction to the policy; unset = the built-in one for Qwen3.5."""
    max_search_calls: Annotated[int, Field(ge=0)] = 4
    """Searches a trajectory may make."""
    max_assistant_turns: Annotated[int, Field(ge=1)] = 6
    """Turns a trajectory may take."""
    max_trajectory_tokens: Annotated[int, Field(ge=16)] = 8192
    """Tokens of a whole trajectory, prompt and observations included."""
    max_assistant_tokens: Annotated[int, Field(ge=1)] = 1024
    """Tokens of one turn."""
    max_tool_response_tokens: Annotated[int, Field(ge=16)] = 1024
    """Tokens of one observation."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Sampling temperature; 0 = greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus sampling; 1 = off."""


class PrepareSettings(DataSettings, _Settings):
    """Settings of prepare-data."""

    profile: Profile = Profile.LOCAL
    """Named set of settings to start from."""


class WorkSettings(PolicySettings, RolloutSettings, SearchSettings, DataSettings):
    """What training and evaluation have in common."""


class OnCollapse(StrEnum):
    """What to do when training seems to collapse."""

    WARN = "warn"
    """Say so, mark the step, and go on."""
    STOP = "stop"
    """Stop before the next step; everything so far is kept."""


class TrainSettings(WorkSettings, Prices):
    """Settings of train."""

    run_name: str | None = None
    """Name of the run; a run of that name is taken up where it stopped. Unset = a new run."""
    max_steps: Annotated[int, Field(ge=1)] = 20
    """Steps to train in all."""
    questions_per_batch: Annotated[int, Field(ge=1)] = 8
    """Questions a step."""
    group_size: Annotated[int, Field(ge=2)] = 8
    """Trajectories a question."""
    save_every: Annotated[int, Field(ge=1)] = 5
    """Keep a checkpoint every so many steps; the last step is always kept."""
    resume_every: Annotated[int, Field(ge=1)] = 1
    """Save the state every so many steps; after a crash the steps since are applied again from
    their stored trajectories, without sampling or searching."""
    lora_rank: Annotated[int, Field(ge=4, le=64)] = 32
    """Rank of the trained adapter."""
    train_unembed: bool = True
    """Whether the adapter covers the output embedding too."""
    resume_state: str | None = None
    """Saved state (trio://…) for a new run to start from instead of a fresh adapter."""
    fork_from: Annotated[str, Field(pattern=r"^[^:]+:[^:]+$")] | None = None
    """Checkpoint of another run for a new run to start from, as RUN:step_10."""
    learning_rate: Annotated[float, Field(gt=0)] = 4e-5
    """Adam's learning rate."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Adam's decay of the mean."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    """Adam's decay of the variance."""
    adam_eps: Annotated[float, Field(gt=0)] = 1e-8
    """Adam's epsilon."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay."""
    grad_clip_norm: Annotated[float, Field(ge=0)] = 0.0
    """Clip the gradient to this norm; 0 = off."""
    seed: int = 42
    """Order of the questions, initial adapter, sampling where the service honours seeds."""
    max_cost: Annotated[float, Field(gt=0)] | None = None
    """US dollars: stop before the step that would bring the run over it. Start again with more
    to go on."""
    on_collapse: OnCollapse = OnCollapse.WARN
    """What to do when training seems to collapse: warn or stop."""
    dry_run: bool = False
    """Print the resolved settings and an estimate of tokens, searches, time and money; start
    nothing."""
    swanlab_project: str = "search-r1"
    """SwanLab project."""
    swanlab_mode: SwanlabMode = SwanlabMode.ONLINE
    """Where metrics go: online, offline or disabled."""


class TaskRunnerKind(StrEnum):
    """What runs the shards of an evaluation."""

    THREADS = "threads"
    """Threads of this process."""
    DASK = "dask"
    """Processes of a Dask cluster on this machine (extra dask)."""
    RAY = "ray"
    """Processes of Ray on this machine (extra ray)."""


class EvalSettings(WorkSettings, Prices):
    """Settings of eval."""

    run: str | None = None
    """Run whose checkpoints are evaluated; unset = the latest."""
    ckpts: str = "all"
    """Checkpoints, separated by commas: step_10,step_20, latest, best (by the evaluations so far),
    or all. The base model is always evaluated with them."""
    model_path: str | None = None
    """Saved weights (trio://…) to evaluate instead of a run's checkpoints."""
    question_set: QuestionSet = "dev70"
    """Prepared evaluation set."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Only the first so many questions of the set."""
    samples: Annotated[int, Field(ge=1)] = 1
    """Trajectories a question."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """Sampling temperature; 0 = greedy."""
    batch_size: Annotated[int, Field(ge=1)] = 64
    """Questions in flight at once, in each shard."""
    shards: Annotated[int, Field(ge=1)] = 1
    """Tasks side by side that an evaluation is split into, each with its own connections."""
    task_runner: TaskRunnerKind = TaskRunnerKind.THREADS
    """What runs the shards: threads, dask or ray."""
    seed: int = 42
    """Sampling seed, where the service honours seeds."""
    output: Path | None = None
    """Folder for the results as JSONL too, one file an evaluated policy: a line a question, and a
    summary line last."""
    force_mixed: bool = False
    """Compare with the base model's evaluation in another search environment, instead of
    evaluating the base model in this one. Such a comparison is labelled everywhere: the difference
    is not the policy's alone."""


class PipelineSettings(TrainSettings):
    """Settings of train-search-r1: those of training, and of the evaluation after it."""

    question_set: QuestionSet = "dev70"
    """Prepared evaluation set."""
    eval_temperature: Annotated[float, Field(ge=0)] = 0.0
    """Sampling temperature of the evaluation; 0 = greedy."""


class AnalyseSettings(_Settings):
    """Settings of analyse."""

    runs_dir: Path = Path("runs")
    """Folder of all runs."""
    run: str | None = None
    """Run to report on; unset = the latest."""


OPERATIONAL = (
    OPERATIONAL_FIELDS
    | PREPARATION_FIELDS
    | {
        "profile",
        "runs_dir",
        "run_name",
        "max_steps",
        "save_every",
        "resume_every",
        "max_cost",
        "on_collapse",
        "dry_run",
        "price_train_tokens",
        "price_sample_tokens",
        "price_prompt_tokens",
        "sample_timeout",
        "service_retry_seconds",
        "service_timeout",
        "swanlab_project",
        "swanlab_mode",
    }
)
"""Settings that may change within a run: they do not decide what a step does. How the questions
were prepared is among them, as a run knows its questions by their checksum."""

S = TypeVar("S", bound=BaseModel)


def identity(settings: BaseModel) -> dict[str, Any]:
    """The settings that decide what a step does, as JSON values."""
    return settings.model_dump(mode="json", exclude=set(OPERATIONAL))


def digest(values: Mapping[str, Any]) -> str:
    """Short hex digest of JSON values."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def profile_values(profile: Profile) -> dict[str, Any]:
    """The values that a profile sets."""
    text = (resources.files("searchr1") / "profiles" / f"{profile}.toml").read_text("utf-8")
    return tomllib.loads(text)


def resolve(model: type[S], given: Mapping[str, Any]) -> S:
    """Settings from what a person has `given` (None = not given), the profile, and the defaults.

    A profile may speak of settings that this model does not have; a person may not. Raises
    SettingsError listing every wrong field.
    """
    explicit = {name: value for name, value in given.items() if value is not None}
    try:
        profile = Profile(explicit.get("profile", Profile.LOCAL))
    except ValueError as error:
        raise SettingsError(
            f"profile '{explicit['profile']}' is not known; choose one of {', '.join(Profile)}."
        ) from error
    values = profile_values(profile)
    base = {name: value for name, value in values.items() if name in model.model_fields}
    try:
        return model.model_validate(base | explicit)
    except ValidationError as error:
        raise _wrong(error) from error


def _wrong(error: ValidationError) -> SettingsError:
    """One line a wrong field, as the person typed it."""
    lines = [
        f"  --{'.'.join(map(str, problem['loc'])).replace('_', '-')}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False)
    ]
    return SettingsError("some settings are wrong:\n" + "\n".join(lines))


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help for a person: a short usage line, choices as they are typed."""

    def add_usage(self, usage, actions, groups, prefix=None):
        super().add_usage("%(prog)s [--setting VALUE ...]", [], [], prefix)

    def format_help(self) -> str:
        return re.sub(
            r"\{[A-Z_,]+\}|\(default:\s+[A-Z]+\)",
            lambda m: m.group().lower(),
            super().format_help(),
        )


def from_command_line(
    model: type[BaseModel], arguments: Sequence[str] | None = None, about: str | None = None
) -> dict[str, Any]:
    """What a person set on the command line, by field. Flags are the fields' names with dashes;
    `--help`, which begins with `about`, and mistakes in a flag's name print and exit.

    Raises SettingsError naming the flags whose values are wrong.
    """

    class CommandLine(model, BaseSettings):  # pyright: ignore[reportGeneralTypeIssues]
        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], **_: PydanticBaseSettingsSource
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return ()

    CommandLine.__doc__ = about or model.__doc__
    source = CliSettingsSource(
        CommandLine,
        cli_prog_name=Path(sys.argv[0]).name,
        cli_parse_args=True if arguments is None else list(arguments),
        cli_kebab_case="no_enums",
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        formatter_class=_Help,
    )
    try:
        parsed = CommandLine(_cli_settings_source=source)  # pyright: ignore[reportCallIssue]
    except ValidationError as error:
        raise _wrong(error) from error
    return {name: getattr(parsed, name) for name in parsed.model_fields_set}
