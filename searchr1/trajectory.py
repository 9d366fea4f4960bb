"""The typed data that travels: questions, turns, searches, trajectories.

Token-level arrays of a trajectory are aligned: `tokens[t]`, `loss_mask[t]` and `logprobs[t]`
speak of the same position, T positions in all. A position with `loss_mask` False was not drawn
by the policy (prompt, closing tokens that the sampler left out, observations) and has logprob 0.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class StopReason(StrEnum):
    """Why a trajectory ended. Every trajectory has exactly one."""

    ANSWERED = "answered"
    """The last turn holds exactly one well-formed answer line."""
    NO_ANSWER = "no_answer"
    """The last turn makes no call and holds no well-formed answer line."""
    INVALID_TURN = "invalid_turn"
    """The last turn is malformed: a broken or second call, an answer beside a call."""
    SEARCH_LIMIT = "search_limit"
    """The policy called for one search more than allowed."""
    TURN_LIMIT = "turn_limit"
    """The last turn allowed was still a call."""
    TOKEN_LIMIT = "token_limit"
    """A token limit cut the last turn off, or left no room for another turn."""
    ENVIRONMENT_ERROR = "environment_error"
    """A search failed for reasons outside of the policy; not counted in baseline or loss."""
    SAMPLING_ERROR = "sampling_error"
    """The sampler failed or answered nonsense; not counted in baseline or loss."""

    @property
    def valid(self) -> bool:
        """Whether the trajectory says something about the policy."""
        return self not in (StopReason.ENVIRONMENT_ERROR, StopReason.SAMPLING_ERROR)


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its accepted answers."""

    question_id: str
    question: str
    answers: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One assistant generation inside a trajectory: positions [start, end) of its tokens."""

    start: int
    end: int
    text: str
    kind: str
    """"call", "answer" or "invalid" (see `searchr1.protocol.parse_turn`)."""
    seconds: float


@dataclass(frozen=True, slots=True)
class SearchItem:
    """One result of a search, as the policy saw it."""

    title: str
    text: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """One search inside a trajectory and what came back."""

    turn: int
    """Index of the turn that called for it."""
    query: str
    ok: bool
    error: str
    """Kind of the error (`searchr1.search.SearchErrorKind`), empty when `ok`."""
    items: tuple[SearchItem, ...]
    observation: str
    """The text that was shown to the policy."""
    seconds: float
    cached: bool
    cost: float
    """US dollars."""
    joined: bool = False
    """Shared the answer of an identical query in flight."""
    requests: int = 0
    """Requests sent to the service, retries included."""
    rate_limited: int = 0
    """How many of them were answered with "too many"."""
    timeouts: int = 0
    """How many of them had no answer in time."""
    waited: float = 0.0
    """Seconds of `seconds` spent on our own limits."""
    dropped: int = 0
    """Rows of the answer that held no text."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Turns and searches for one question, with every token (T of them)."""

    question: Question
    index: int
    """Place in its group, 0-based."""
    tokens: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    logprobs: tuple[float, ...]
    turns: tuple[TurnRecord, ...]
    searches: tuple[SearchRecord, ...]
    stop_reason: StopReason
    error: str
    """For a person: what went wrong, empty unless `stop_reason` is an error."""
    final_text: str
    answer: str | None
    reward: float
    """See `searchr1.reward`; 0.0, like all that follows it, if the trajectory is not valid."""
    valid_format: bool
    em: bool
    em_squad: bool
    f1: float
    cover_em: bool
    seconds: float

    @property
    def valid(self) -> bool:
        """Whether it may enter baseline and loss."""
        return self.stop_reason.valid


@dataclass(frozen=True, slots=True)
class Group:
    """The trajectories of one question in one step."""

    question: Question
    trajectories: tuple[Trajectory, ...] = field(default_factory=tuple)
