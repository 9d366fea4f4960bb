"""A fault that the harness's engine meets on purpose, as data that travels to its process.

A request has a kind:

    sample                          a sampling request
    submit:forward_backward         an event; also init_run, optimize_step, save_state, save_weights
    poll:forward_backward           the question how that event stands
    control:POST training-runs      anything else below /api, by method and resource
    heartbeat, telemetry, probe     background traffic, which no kill point counts
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from fnmatch import fnmatch
from typing import Any, Self

BACKGROUND = ("heartbeat", "telemetry", "probe")


class Action(StrEnum):
    """What happens to a request."""

    KILL = "kill"
    """SIGKILL to the victims, and no answer."""
    STATUS = "status"
    """An HTTP error."""
    DROP = "drop"
    """The connection is closed without an answer."""
    HANG = "hang"
    """No answer, ever."""
    CUT = "cut"
    """The connection is closed in the middle of the answer's body."""
    WRONG = "wrong"
    """200 with a body that is not what the protocol says."""


class When(StrEnum):
    """At which point of a request."""

    ARRIVES = "arrives"
    """Before the engine has seen it."""
    HANDLED = "handled"
    """The engine has done it, and its answer is lost."""
    ANSWERED = "answered"
    """The answer has been sent."""


ENGINE = 0
"""Stands for the engine's own process among the victims."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The `nth` request whose kind matches `kind`, and `count` - 1 more of them."""

    action: Action
    kind: str
    """A pattern, as file names have; "*" is everything but background traffic."""
    nth: int = 1
    count: int = 1
    when: When = When.ARRIVES
    victims: tuple[int, ...] = ()
    """Process ids, for KILL."""
    status: int = 500
    code: str = "internal_error"
    """The body's error code, for STATUS."""

    def concerns(self, kind: str) -> bool:
        """Whether requests of this kind are counted."""
        return kind not in BACKGROUND and fnmatch(kind, self.kind)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(
            **{
                **values,
                "action": Action(values["action"]),
                "when": When(values["when"]),
                "victims": tuple(values["victims"]),
            }
        )
