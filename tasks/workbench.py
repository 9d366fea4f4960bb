"""The open workbench of the flow that calls a task.

Live connections cannot be parameters of a task: they are neither typed data nor worth showing.
The flow puts them here; its tasks, which run in the same context, find them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from searchr1.config import EvalSettings, TrainSettings
from searchr1.data import BatchSchedule
from searchr1.errors import RetryableError
from searchr1.policy import PolicySession
from searchr1.runs import Run
from searchr1.workbench import Workbench


@dataclass(frozen=True)
class Training:
    """Everything a step needs."""

    run: Run
    settings: TrainSettings
    digest: str
    bench: Workbench
    session: PolicySession
    schedule: BatchSchedule


@dataclass(frozen=True)
class Evaluating:
    """Everything the evaluation of a policy needs."""

    run: Run
    settings: EvalSettings
    bench: Workbench


current_training: ContextVar[Training] = ContextVar("current_training")
current_evaluating: ContextVar[Evaluating] = ContextVar("current_evaluating")


@contextmanager
def reopening(training: Training) -> Iterator[None]:
    """Passing trouble inside leaves the live client in doubt: it is dropped, so that the retry
    opens a new one from a saved state."""
    try:
        yield
    except RetryableError:
        training.session.discard()
        raise
