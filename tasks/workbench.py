"""The open workbench of the flow that calls a task.

Live connections cannot be parameters of a task: they are neither typed data nor worth showing.
The flow puts them here; its tasks, which run in the same context, find them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import cached_property

from searchr1.config import EvalSettings, TrainSettings, digest
from searchr1.data import BatchSchedule
from searchr1.policy import PolicySession
from searchr1.policy_errors import PolicyUnavailable
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

    @cached_property
    def questions_digest(self) -> str:
        """Of the questions that are asked, in order, with their answers: scores under answers that
        were corrected since are other scores."""
        return digest({"questions": [asdict(question) for question in self.bench.questions]})


_training: ContextVar[Training] = ContextVar("training")
_evaluating: ContextVar[Evaluating] = ContextVar("evaluating")
# Reached by functions alone: flows and tasks that go to other processes are pickled with the
# globals that they name, and a ContextVar cannot be.


def train_on(training: Training) -> None:
    """What the tasks that are called from here on find."""
    _training.set(training)


def current_training() -> Training:
    """The training of the flow that calls this task."""
    return _training.get()


def evaluate_on(evaluating: Evaluating) -> None:
    """What the tasks that are called from here on find."""
    _evaluating.set(evaluating)


def current_evaluating() -> Evaluating:
    """The evaluation of the flow that calls this task."""
    return _evaluating.get()


@contextmanager
def reopening(training: Training) -> Iterator[None]:
    """Trouble with the service inside leaves the live client in doubt: it is dropped, so that the
    retry opens a new one from a saved state. A search outage says nothing about it."""
    try:
        yield
    except PolicyUnavailable:
        training.session.discard()
        raise
