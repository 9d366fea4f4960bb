"""What a training or an evaluation will take, before anything is started: for `--dry-run`, and for
the first step under `--max-cost`.

Two kinds of figures stand side by side. `most` follows from the limits in the settings and cannot
be passed, retries after an outage apart. `low` to `high` is what to expect: from the last steps of
the run, if it has any, or else from assumptions about the policy (`Habits`) that are printed with
the figures. No assumption is made about prices. All money is in US dollars.
"""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from searchr1.budget import Prices, Usage, dollars, price
from searchr1.config import EvalSettings, ServiceKind, TrainSettings, WorkSettings
from searchr1.policy import SAMPLING_IN_FLIGHT
from searchr1.search.settings import CacheMode, SearchBackendName
from searchr1.tiny_policy import MODEL_NAME

MEASURED_STEPS = 5
"""Last steps of a run that stand for those to come."""
DEEPSEEK_SEARCH_USD = 0.75 / 1000
"""Price list of the DeepSeek search API: US dollars a search that has results."""
FRAME_TOKENS = 20
"""Chat structure around an observation; Qwen3.5's is 17 tokens."""
WIDTH = 80
"""Columns of the text for a person."""
TRAINED_SHARE = (0.3, 1.0)
"""Share of trajectories that give a datum: those of degenerate groups do not."""


class Figure(NamedTuple):
    """An expected range, and what the limits allow at most (infinite: no limit speaks of it)."""

    low: float
    high: float
    most: float = math.inf

    def times(self, count: int) -> "Figure":
        """For so many of them."""
        return Figure(self.low * count, self.high * count, self.most * count if count else 0.0)


class Habits(NamedTuple):
    """What is assumed of a policy and whoever runs it, low to high."""

    about: str
    """For a person: whose habits, and how sure they are."""
    first_prompt: tuple[float, float]
    """Tokens of system prompt, tool description and question."""
    searches: tuple[float, float]
    """A trajectory."""
    turn_tokens: tuple[float, float]
    """Sampled in a turn."""
    observation_tokens: tuple[float, float]
    """Of a search's results, with the chat structure around them."""
    turn_seconds: tuple[float, float]
    """For the sampling requests of a turn, all trajectories together."""
    search_seconds: tuple[float, float]
    """For a search that is not cached."""
    update_seconds: tuple[float, float]
    """For 1,000 training tokens."""


CHAT_MODEL = Habits(
    about="a chat model on a service; its speed is a guess",
    first_prompt=(300, 700),
    searches=(1.5, 3.0),
    turn_tokens=(30, 150),
    observation_tokens=(120, 650),
    turn_seconds=(2, 15),
    search_seconds=(0.5, 5),
    update_seconds=(0.2, 1.5),
)
"""Tokens: Qwen3.5's tokenizer on the default prompt, a search call, a one-line answer, and three
results of 100 to 800 characters. Searches: published runs of Qwen3.5-4B went from 1.8 to 2.8 a
question."""

TINY_POLICY = Habits(
    about="the tiny policy on two processor cores, as measured",
    first_prompt=(50, 75),
    searches=(1.0, 2.5),
    turn_tokens=(8, 16),
    observation_tokens=(35, 65),
    turn_seconds=(0.8, 5),
    search_seconds=(0.001, 0.05),
    update_seconds=(0.2, 1.5),
)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a number of trajectories will take."""

    title: str
    questions: int
    trajectories: int
    searches: Figure
    prompt_tokens: Figure
    sampled_tokens: Figure
    train_tokens: Figure
    seconds: Figure
    cost: Figure
    """Free where the settings give no price."""
    basis: str
    """For a person: where the expected ranges come from."""


def training(settings: TrainSettings, history: Sequence[Mapping[str, float]] = ()) -> Forecast:
    """What the steps that are left will take. `history` has the metrics of the run's finished
    steps, in order."""
    steps = max(0, settings.max_steps - len(history))
    one = _step(settings)
    if history:
        one = _as_measured(one, history[-MEASURED_STEPS:], _prices(settings))
    return _repeated(one, steps, f"training, {steps} of {settings.max_steps} steps")


def evaluation(settings: WorkSettings, questions: int, policies: int, samples: int = 1) -> Forecast:
    """What it will take to evaluate `policies` policies, the base model included, on `questions`
    questions with `samples` trajectories each."""
    at_once = EvalSettings.model_fields["batch_size"].default
    if isinstance(settings, EvalSettings):
        at_once = settings.batch_size
    one = _assumed(settings, questions, samples, at_once * samples, trained=False)
    return _repeated(one, policies, f"evaluation of {policies} policies")


def kept_checkpoints(settings: TrainSettings) -> int:
    """Checkpoints that a whole training keeps: what is evaluated after it, beside the base."""
    return math.ceil(settings.max_steps / settings.save_every)


def first_step_cost(settings: TrainSettings) -> float:
    """What the first step may cost: the high end of what is expected. See `budget.would_pass`."""
    return _step(settings).cost.high


def search_price(settings: WorkSettings) -> float:
    """US dollars a search that has results and is not answered from the cache."""
    if settings.search_cache is CacheMode.REPLAY:
        return 0.0
    deepseek = settings.search_backend is SearchBackendName.DEEPSEEK
    default = DEEPSEEK_SEARCH_USD if deepseek else 0.0
    return default if settings.search_cost is None else settings.search_cost


def text(forecasts: Sequence[Forecast], settings: WorkSettings) -> str:
    """The forecasts as a table for a person, at most 80 columns wide, with what they rest on."""
    lines = [line for forecast in forecasts for line in (*_table(forecast), "")]
    notes = list(dict.fromkeys(forecast.basis for forecast in forecasts))
    if settings.policy_service is ServiceKind.PYTRIO and not _prices(settings).priced:
        notes.append(
            "Money is that of searches alone: no price of the policy service is set. To see the "
            "whole, give --price-train-tokens, --price-sample-tokens and --price-prompt-tokens "
            "(US dollars a million tokens) from the service's price list."
        )
    if search_price(settings):
        notes.append("Searches that are answered from the cache cost nothing.")
    return "\n".join(
        [*lines, *(textwrap.fill(note, WIDTH, break_on_hyphens=False) for note in notes)]
    )


def _table(forecast: Forecast) -> list[str]:
    questions, trajectories = forecast.questions, forecast.trajectories
    rows: list[tuple[str, Figure, Callable[[float], str]]] = [
        ("searches", forecast.searches, _count),
        ("prompt tokens", forecast.prompt_tokens, _count),
        ("sampled tokens", forecast.sampled_tokens, _count),
        ("training tokens", forecast.train_tokens, _count),
        ("money", forecast.cost, dollars),
        ("time", forecast.seconds, duration),
    ]
    return [
        f"{forecast.title}: {questions:,} questions, {trajectories:,} trajectories",
        f"  {'':<16} {'expected':<32} at most",
        *(
            f"  {name:<16} {show(figure.low) + ' to ' + show(figure.high):<32} "
            f"{show(figure.most) if math.isfinite(figure.most) else 'no limit'}"
            for name, figure, show in rows
            if figure.most
        ),
    ]


def _count(number: float) -> str:
    """To three digits, which is more than an estimate is worth."""
    places = max(0, len(str(int(number))) - 3)
    return f"{round(number, -places):,.0f}"


def duration(seconds: float) -> str:
    """A length of time as a person reads it."""
    minutes = seconds / 60
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def _prices(settings: WorkSettings) -> Prices:
    return Prices.model_validate(settings.model_dump(include=set(Prices.model_fields)))


def _step(settings: TrainSettings) -> Forecast:
    questions, size = settings.questions_per_batch, settings.group_size
    return _assumed(settings, questions, size, questions * size, trained=True)


def _assumed(
    settings: WorkSettings, questions: int, size: int, at_once: int, *, trained: bool
) -> Forecast:
    """Forecast of `questions` groups of `size` trajectories, `at_once` of them in flight."""
    habits = TINY_POLICY if settings.base_model == MODEL_NAME else CHAT_MODEL
    low, high = (
        _expected(settings, habits, end, questions, size, at_once, trained) for end in (0, 1)
    )
    # A turn that is not the last is a call whose search is made, so turns exceed searches by one.
    searches = min(settings.max_search_calls, settings.max_assistant_turns - 1)
    length, count = settings.max_trajectory_tokens, questions * size
    sampled = min((searches + 1) * settings.max_assistant_tokens, length)
    most = _Amounts(
        searches=count * searches,
        prompt=questions * length * (1 + size * searches),
        sampled=count * sampled,
        trained=count * (length - 1) if trained else 0,
        seconds=math.inf,
    )
    ends = [end.within(most) for end in (low, high)] + [most]
    prices, search = _prices(settings), search_price(settings)
    return Forecast(
        title="",
        questions=questions,
        trajectories=count,
        searches=Figure(*(end.searches for end in ends)),
        prompt_tokens=Figure(*(end.prompt for end in ends)),
        sampled_tokens=Figure(*(end.sampled for end in ends)),
        train_tokens=Figure(*(end.trained for end in ends)),
        seconds=Figure(*(end.seconds for end in ends)),
        cost=Figure(*(end.cost(search, prices) for end in ends)),
        basis=_basis(habits),
    )


class _Amounts(NamedTuple):
    """One end of an expectation, or the bound."""

    searches: float
    prompt: float
    sampled: float
    trained: float
    seconds: float

    def within(self, most: "_Amounts") -> "_Amounts":
        """Nothing is expected beyond the limits."""
        return _Amounts(*(min(pair) for pair in zip(self, most, strict=True)))

    def cost(self, search: float, prices: Prices) -> float:
        """US dollars, at `search` a search."""
        tokens = (round(count) for count in (self.prompt, self.sampled, self.trained))
        return price(Usage(self.searches * search, *tokens), prices).total


def _expected(
    settings: WorkSettings,
    habits: Habits,
    end: int,
    questions: int,
    size: int,
    at_once: int,
    trained: bool,
) -> _Amounts:
    """The low (`end` 0) or high (1) end of what is expected of `questions` groups."""
    count, length = questions * size, settings.max_trajectory_tokens
    searches = min(
        habits.searches[end], settings.max_search_calls, settings.max_assistant_turns - 1
    )
    turn = min(habits.turn_tokens[end], settings.max_assistant_tokens)
    seen = min(habits.observation_tokens[end], settings.max_tool_response_tokens + FRAME_TOKENS)
    first = min(habits.first_prompt[end], length)
    # The prompt of turn k, counted from 0, is the first prompt and k turns with their results.
    later = searches * first + (turn + seen) * searches * (searches + 1) / 2
    whole = min(first + (searches + 1) * turn + searches * seen, length)
    tokens = count * (whole - 1) * TRAINED_SHARE[end] if trained else 0.0

    waves = max(1.0, count / min(at_once, SAMPLING_IN_FLIGHT))
    allowed, each = settings.search_defaults, habits.search_seconds[end]
    searching = max(searches * waves, count * searches / allowed.concurrency) * each
    if allowed.requests_per_minute:
        searching = max(searching, count * searches * 60 / allowed.requests_per_minute)
    sampling = (searches + 1) * habits.turn_seconds[end] * waves
    return _Amounts(
        searches=count * searches,
        prompt=questions * (first + size * min(later, searches * length)),
        sampled=count * min((searches + 1) * turn, length),
        trained=tokens,
        seconds=sampling + searching + tokens / 1000 * habits.update_seconds[end],
    )


def _basis(habits: Habits) -> str:
    def span(values: tuple[float, float]) -> str:
        return f"{values[0]:g} to {values[1]:g}"

    return (
        f"Assumed ({habits.about}): {span(habits.searches)} searches a trajectory; tokens: "
        f"{span(habits.first_prompt)} of first prompt, {span(habits.turn_tokens)} a turn, "
        f"{span(habits.observation_tokens)} a search's results; seconds: "
        f"{span(habits.turn_seconds)} a turn, {span(habits.search_seconds)} a search, "
        f"{span(habits.update_seconds)} for 1,000 training tokens."
    )


def _as_measured(one: Forecast, steps: Sequence[Mapping[str, float]], prices: Prices) -> Forecast:
    """The forecast of a step with the ranges of `steps`, as far as their records have them."""

    def range_of(metric: str, assumed: Figure) -> Figure:
        values = [step[metric] for step in steps if metric in step]
        return Figure(min(values), max(values), assumed.most) if values else assumed

    used = [
        Usage(
            step.get("cost/search_usd", 0.0),
            round(step.get("cost/prompt_tokens", 0.0)),
            round(step.get("cost/sampled_tokens", 0.0)),
            round(step.get("train/tokens_per_rollout_batch", 0.0)),
        )
        for step in steps
    ]
    costs = [price(usage, prices).total for usage in used]
    return replace(
        one,
        searches=range_of("search/searches", one.searches),
        prompt_tokens=range_of("cost/prompt_tokens", one.prompt_tokens),
        sampled_tokens=range_of("cost/sampled_tokens", one.sampled_tokens),
        train_tokens=range_of("train/tokens_per_rollout_batch", one.train_tokens),
        seconds=range_of("time/step_seconds", one.seconds),
        cost=Figure(min(costs), max(costs), one.cost.most),
        basis=f"Measured in the last {len(steps)} steps of this run.",
    )


def _repeated(one: Forecast, count: int, title: str) -> Forecast:
    return Forecast(
        title=title,
        questions=one.questions * count,
        trajectories=one.trajectories * count,
        searches=one.searches.times(count),
        prompt_tokens=one.prompt_tokens.times(count),
        sampled_tokens=one.sampled_tokens.times(count),
        train_tokens=one.train_tokens.times(count),
        seconds=one.seconds.times(count),
        cost=one.cost.times(count),
        basis=one.basis,
    )
