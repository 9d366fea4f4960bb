"""What the engine remembers while it lives: sessions, runs, events.

Used from the event loop only. The events of a run are executed one after another in the order in
which they were accepted, each once: an event id that comes again is answered with the status of
the first. Nothing here survives a restart; checkpoints do.
"""

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from searchr1.engine.config import KEPT_RESULTS
from searchr1.engine.errors import Code, EngineError
from searchr1.engine.model import LoraSettings, ServedModel
from searchr1.engine.trainer import TrainedModel
from searchr1.engine.wire import Envelope

logger = logging.getLogger(__name__)


class Status(StrEnum):
    """Life of a session or run."""

    RUNNING = "RUNNING"
    """In use, or ready to be."""
    ENDED = "ENDED"
    """Closed by its client, or given up after a long silence."""
    CANCELLED = "CANCELLED"
    """Closed by its client after an interrupt."""


class EventStatus(StrEnum):
    """Life of an event."""

    ACCEPTED = "accepted"
    """Waiting for its turn."""
    RUNNING = "running"
    """Being executed."""
    SUCCEEDED = "succeeded"
    """Done; `result` is there."""
    FAILED = "failed"
    """Done; `error` is there."""


@dataclass(slots=True, kw_only=True)
class Record:
    """What sessions and runs have in common. Times are seconds since the epoch."""

    cuid: str
    status: Status = Status.RUNNING
    created: float = field(default_factory=time.time)
    touched: float = field(default_factory=time.time)

    def touch(self) -> None:
        """Note that the client is alive."""
        self.touched = time.time()


@dataclass(slots=True, kw_only=True)
class Session(Record):
    """One ServiceClient."""

    training_runs: list[str] = field(default_factory=list)
    sampling_runs: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Event:
    """One accepted training event."""

    envelope: Envelope
    run: str
    status: EventStatus = EventStatus.ACCEPTED
    result: dict[str, object] = field(default_factory=dict)
    error: dict[str, str] = field(default_factory=dict)
    tokens: int = 0
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    def view(self) -> dict[str, object]:
        """The protocol's status response."""
        view: dict[str, object] = {
            "version": 1,
            "event_id": self.envelope.event_id,
            "type": self.envelope.type,
            "status": str(self.status),
        }
        if self.finished.is_set():
            train = self.tokens if self.envelope.type == "trainer.forward_backward" else 0
            view["usage"] = {
                "input_tokens": self.tokens,
                "output_tokens": 0,
                "train_tokens": train,
            }
            failed = self.status is EventStatus.FAILED
            view |= {"error": self.error} if failed else {"result": self.result}
        return view


class Outcome(NamedTuple):
    """What executing an event gives."""

    result: dict[str, object]
    tokens: int = 0
    """Tokens that it worked on."""


@dataclass(slots=True, kw_only=True)
class TrainingRun(Record):
    """One TrainingClient."""

    session: str
    index: int
    base: ServedModel
    lora: LoraSettings
    source_uri: str
    """State that the run starts from; empty for a fresh one."""
    restore_optimizer: bool
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    model: TrainedModel | None = None
    """None before the first event and after the end."""
    queue: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    events: OrderedDict[str, Event] = field(default_factory=OrderedDict)
    task: asyncio.Task[None] | None = None

    def submit(self, envelope: Envelope) -> Event:
        """Accept an event, or find it among those accepted before."""
        self.touch()
        known = self.events.get(envelope.event_id)
        if known is not None:
            return known
        if self.status is not Status.RUNNING:
            raise EngineError(Code.RUN_ENDED, f"Run {self.cuid} has ended; create a new one.")
        event = Event(envelope=envelope, run=self.cuid)
        self.events[envelope.event_id] = event
        self.queue.put_nowait(event)
        return event

    async def execute(self, perform: Callable[[Event], Awaitable[Outcome]]) -> None:
        """Execute the events in order, for ever. `perform` raises EngineError for a failure."""
        while True:
            event = await self.queue.get()
            event.status = EventStatus.RUNNING
            try:
                outcome = await perform(event)
            except EngineError as error:
                self._finish(event, EventStatus.FAILED, error=error)
            except Exception:  # boundary: one event's failure must not stall the run
                logger.exception("An event failed")
                error = EngineError(Code.INTERNAL_ERROR, "The engine failed; its log says why.")
                self._finish(event, EventStatus.FAILED, error=error)
            else:
                event.result, event.tokens = outcome.result, outcome.tokens
                self._finish(event, EventStatus.SUCCEEDED)

    def end(self, status: Status) -> None:
        """Stop executing, fail what is left, free the memory."""
        self.status = status
        if self.task is not None:
            self.task.cancel()
        error = EngineError(Code.RUN_ENDED, f"Run {self.cuid} ended before this event was done.")
        for event in list(self.events.values()):
            if not event.finished.is_set():
                self._finish(event, EventStatus.FAILED, error=error)
        self.model = None

    def _finish(self, event: Event, status: EventStatus, error: EngineError | None = None) -> None:
        event.status = status
        if error is not None:
            event.error = error.body
        event.envelope.payload = {}  # may be megabytes, and is not needed any more
        event.finished.set()
        finished = [key for key, other in self.events.items() if other.finished.is_set()]
        for key in finished[:-KEPT_RESULTS]:
            del self.events[key]


@dataclass(slots=True, kw_only=True)
class SamplingRun(Record):
    """One SamplingClient."""

    session: str
    index: int
    base: ServedModel
    source_uri: str
    source_cuid: str
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
