"""How tasks are retried: by the class of the error, with backoff and jitter."""

from typing import Any

from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task, exponential_backoff

from searchr1.errors import ErrorClass, classify


def only_retryable(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Prefect's `retry_condition_fn`: retry passing trouble, and nothing else. The state of a
    task that raised holds its exception as data."""
    error = state.data
    return isinstance(error, BaseException) and classify(error) is ErrorClass.RETRYABLE


RETRIES: dict[str, Any] = {
    "retries": 6,
    "retry_delay_seconds": exponential_backoff(backoff_factor=5),
    "retry_jitter_factor": 0.5,
    "retry_condition_fn": only_retryable,
}
"""Options for `@task`: up to 6 retries after about 5, 10, 20, 40, 80 and 160 seconds."""
