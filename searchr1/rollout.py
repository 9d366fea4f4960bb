"""Rollouts: how the trajectories of a question come about.

One trajectory is one coroutine: generate -> search -> observe -> generate, strictly serial inside
and independent of all others. Only the first turn of a group is shared, as one request.

What always holds: tokens are appended and never changed, so the prompt of every turn begins with
all tokens of the turn before it exactly as sampled; every trajectory ends with one `StopReason`;
and a trajectory that ends early keeps its tokens. Trouble of one trajectory (a failed search, a
sampler's bad answer) ends that trajectory. Anything that no trajectory can outlive (a fatal error,
an outage, a defect of the program) propagates and cancels the others.
"""

import asyncio
import hashlib
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from searchr1.chat import ChatFormat
from searchr1.errors import SettingsError
from searchr1.protocol import TurnKind, parse_turn
from searchr1.reward import Reward, score
from searchr1.sampler import Sample, Sampler, SamplingError, check_samples
from searchr1.search.base import Fault, SearchBackend, SearchFatalError
from searchr1.search.observation import MINIMUM_BUDGET, observe
from searchr1.trajectory import (
    Group,
    Question,
    SearchRecord,
    StopReason,
    Trajectory,
    TurnRecord,
)

T = TypeVar("T")

ANSWER_ROOM = 64
"""Tokens of a trajectory that an observation leaves free, so that an answer can follow it (and
so that there is always room to ask for one: see `ChatFormat.observation_overhead`)."""

_NO_REWARD = Reward(0.0, False, False, False, 0.0, False, None)
"""Of a trajectory that says nothing about the policy."""


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """Where a trajectory ends at the latest. Defaults are the seed's.

    Raises:
        SettingsError: a limit is too small to make sense.
    """

    max_search_calls: int = 4
    max_assistant_turns: int = 6
    max_trajectory_tokens: int = 8192
    """Prompt, turns and observations together."""
    max_assistant_tokens: int = 1024
    """Of one turn."""
    max_tool_response_tokens: int = 1024
    """Of one observation's text, without the chat structure around it."""

    def __post_init__(self) -> None:
        least = {
            "max_search_calls": 0,
            "max_assistant_turns": 1,
            "max_trajectory_tokens": 1,
            "max_assistant_tokens": 1,
            "max_tool_response_tokens": MINIMUM_BUDGET,
        }
        for name, minimum in least.items():
            if (value := getattr(self, name)) < minimum:
                flag = "--" + name.replace("_", "-")
                raise SettingsError(f"{flag} is {value}; it must be at least {minimum}.")


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """What all trajectories of a rollout share."""

    sampler: Sampler
    backend: SearchBackend
    chat: ChatFormat
    limits: RolloutLimits = RolloutLimits()
    seed: int | None = None
    """Of all sampling; None leaves randomness to the sampler. Whoever asks a question in several
    steps gives each step a seed of its own."""


async def rollout_groups(
    questions: Sequence[Question],
    group_size: int,
    context: RolloutContext,
    on_group: Callable[[Group], Awaitable[None] | None],
    max_in_flight: int | None = None,
) -> None:
    """Run the groups of `questions` concurrently, and keep none in memory: those of a large set
    would fill it.

    Args:
        questions: one group each.
        group_size: trajectories a group.
        context: sampler, back end, chat format, limits and seed.
        on_group: called (and awaited, if it is a coroutine function) with each group as soon as
            it is finished; what it raises stops the rollout.
        max_in_flight: most questions under way at once; None = all of them.

    Raises:
        SearchR1Error: no trajectory can go on (bad key, outage, a broken client). The others are
            cancelled and none is left running; groups handed to `on_group` are whole.
    """
    gate = asyncio.Semaphore(max_in_flight or max(len(questions), 1))

    async def run(question: Question) -> None:
        async with gate:
            group = await rollout_group(question, group_size, context)
        if inspect.isawaitable(handed := on_group(group)):
            await handed

    await _all_or_none(run(question) for question in questions)


async def rollout_group(question: Question, group_size: int, context: RolloutContext) -> Group:
    """The trajectories of one question: a shared first request, then each on its own.

    Raises:
        SearchR1Error: as `rollout_groups`.
    """
    started = time.monotonic()
    prompt = context.chat.first_prompt(question.question)
    drafts = [_Draft(question, index, started, list(prompt)) for index in range(group_size)]
    room = context.limits.max_trajectory_tokens - len(prompt)
    if room <= 0:
        return Group(question, tuple(draft.finish(StopReason.TOKEN_LIMIT) for draft in drafts))
    try:
        samples = await context.sampler.sample(
            prompt,
            group_size,
            min(context.limits.max_assistant_tokens, room),
            context.chat.stop_ids,
            request_seed(context.seed, question.question_id, index=None, turn=0),
        )
        if len(samples) != group_size:
            raise SamplingError(f"the sampler returned {len(samples)} of {group_size} sequences")
    except SamplingError as error:
        failed = [draft.finish(StopReason.SAMPLING_ERROR, str(error)) for draft in drafts]
        return Group(question, tuple(failed))
    seconds = time.monotonic() - started
    trajectories = await _all_or_none(
        _run(draft, sample, seconds, context) for draft, sample in zip(drafts, samples, strict=True)
    )
    return Group(question, tuple(trajectories))


def request_seed(seed: int | None, question_id: str, index: int | None, turn: int) -> int | None:
    """The seed of one sampling request, 0 <= seed < 2**31: the same for the same arguments in
    every process, and unrelated for different ones. `index` None is the request that the
    trajectories of a group share."""
    if seed is None:
        return None
    digest = hashlib.sha256(repr((seed, question_id, index, turn)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


@dataclass(slots=True)
class _Draft:
    """A trajectory in the making; its arrays grow together."""

    question: Question
    index: int
    started: float
    tokens: list[int]
    """Begins as the first prompt."""
    loss_mask: list[bool] = field(init=False)
    logprobs: list[float] = field(init=False)
    turns: list[TurnRecord] = field(default_factory=list)
    searches: list[SearchRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loss_mask = [False] * len(self.tokens)
        self.logprobs = [0.0] * len(self.tokens)

    def append_drawn(self, sample: Sample) -> None:
        """Add tokens that the policy drew."""
        self.tokens += sample.tokens
        self.loss_mask += [True] * len(sample.tokens)
        self.logprobs += sample.logprobs

    def append_given(self, tokens: Sequence[int]) -> None:
        """Add tokens that the policy did not draw."""
        self.tokens += tokens
        self.loss_mask += [False] * len(tokens)
        self.logprobs += [0.0] * len(tokens)

    def finish(self, reason: StopReason, error: str = "") -> Trajectory:
        """The trajectory as it stands, scored by its last turn."""
        final_text = self.turns[-1].text if self.turns else ""
        reward = score(final_text, self.question.answers) if reason.valid else _NO_REWARD
        return Trajectory(
            question=self.question,
            index=self.index,
            tokens=tuple(self.tokens),
            loss_mask=tuple(self.loss_mask),
            logprobs=tuple(self.logprobs),
            turns=tuple(self.turns),
            searches=tuple(self.searches),
            stop_reason=reason,
            error=error,
            final_text=final_text,
            seconds=time.monotonic() - self.started,
            **reward._asdict(),
        )


class _EnvironmentFailed(Exception):
    """A search failed for reasons outside of the policy."""


async def _run(
    draft: _Draft, sample: Sample, seconds: float, context: RolloutContext
) -> Trajectory:
    """One trajectory from its first sample (drawn in `seconds`) to its end."""
    limits = context.limits
    try:
        while True:
            room = limits.max_trajectory_tokens - len(draft.tokens)
            asked = min(limits.max_assistant_tokens, room)
            if draft.turns:
                sample, seconds = await _sample(draft, asked, context)
            _check(sample, context.chat)
            reason = await _take_turn(draft, sample, seconds, asked, context)
            if reason is not None:
                return draft.finish(reason)
    except SamplingError as error:
        return draft.finish(StopReason.SAMPLING_ERROR, str(error))
    except _EnvironmentFailed as error:
        return draft.finish(StopReason.ENVIRONMENT_ERROR, str(error))


async def _sample(draft: _Draft, max_tokens: int, context: RolloutContext) -> tuple[Sample, float]:
    """One continuation of the draft's tokens, and the seconds that it took."""
    started = time.monotonic()
    seed = request_seed(
        context.seed, draft.question.question_id, draft.index, turn=len(draft.turns)
    )
    samples = await context.sampler.sample(
        draft.tokens.copy(), 1, max_tokens, context.chat.stop_ids, seed
    )
    check_samples(samples, 1)
    return samples[0], time.monotonic() - started


def _check(sample: Sample, chat: ChatFormat) -> None:
    """Raise SamplingError unless the policy can be judged and trained by `sample`. An empty one
    cannot be told from a service's broken answer, and holds nothing to train."""
    check_samples([sample], 1)
    if not sample.tokens:
        raise SamplingError("the sampler returned an empty sequence")
    if not all(0 <= token < chat.vocabulary_size for token in sample.tokens):
        raise SamplingError("the sampler returned a token that is not in the vocabulary")


async def _take_turn(
    draft: _Draft, sample: Sample, seconds: float, asked: int, context: RolloutContext
) -> StopReason | None:
    """Add a turn and, if it is a call, its observation. The reason if the trajectory ends."""
    limits, chat = context.limits, context.chat
    text = chat.text(sample.tokens)
    turn = parse_turn(text)
    start = len(draft.tokens)
    draft.append_drawn(sample)
    draft.turns.append(TurnRecord(start, len(draft.tokens), text, turn.kind.value, seconds))

    if turn.answer is not None:
        return StopReason.ANSWERED
    if turn.query is None:
        if len(sample.tokens) >= asked and not chat.ended(sample.tokens):
            return StopReason.TOKEN_LIMIT  # cut off in the middle: what is missing is room
        invalid = turn.kind is TurnKind.INVALID
        return StopReason.INVALID_TURN if invalid else StopReason.NO_ANSWER
    if len(draft.searches) >= limits.max_search_calls:
        return StopReason.SEARCH_LIMIT
    if len(draft.turns) >= limits.max_assistant_turns:
        return StopReason.TURN_LIMIT

    # Before the search is paid for: can its result be shown, and answered to?
    room = limits.max_trajectory_tokens - len(draft.tokens)
    room -= chat.observation_overhead + ANSWER_ROOM
    if room < MINIMUM_BUDGET:
        return StopReason.TOKEN_LIMIT
    budget = min(limits.max_tool_response_tokens, room)
    observation = await _search(draft, turn.query, budget, context)
    draft.append_given(chat.close(sample.tokens))
    draft.append_given(chat.observe(observation))
    return None


async def _search(draft: _Draft, query: str, budget: int, context: RolloutContext) -> str:
    """Search, record it, and return what the policy reads of it, at most `budget` tokens.

    Raises:
        _EnvironmentFailed: there is nothing to read.
        SearchFatalError: no search can go through.
    """
    result = await context.backend.search(query)
    fault = None if result.error is None else result.error.fault
    if result.error is not None and fault is Fault.FATAL:
        raise SearchFatalError(result.error, result.message)
    failed = fault is Fault.ENVIRONMENT
    seen = None if failed else observe(result, budget, context.chat.encode, context.chat.markers)
    draft.searches.append(
        SearchRecord(
            turn=len(draft.turns) - 1,
            query=query,
            ok=result.ok,
            error="" if result.error is None else result.error.value,
            items=() if seen is None else result.items[: seen.items],
            observation="" if seen is None else seen.text,
            seconds=result.seconds,
            cached=result.cached,
            cost=result.cost,
            joined=result.joined,
            requests=result.requests,
            rate_limited=result.rate_limited,
            timeouts=result.timeouts,
            waited=result.waited,
            dropped=result.dropped,
        )
    )
    if seen is None:
        raise _EnvironmentFailed(f"search failed ({result.error}): {result.message}")
    return seen.text


async def _all_or_none(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run concurrently and return all results in order. The first failure cancels the others,
    waits for them, and is raised as it is, not wrapped in a group."""
    failure: Exception | None = None
    tasks: list[asyncio.Task[T]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(coroutine) for coroutine in coroutines]
    except ExceptionGroup as errors:  # boundary: the task group wraps what a trajectory raised
        failure = errors.exceptions[0]
    if failure is not None:  # raised outside of the handler, so that it keeps its own cause
        raise failure
    return [task.result() for task in tasks]
