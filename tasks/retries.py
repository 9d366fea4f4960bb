"""How tasks are retried: by the class of the error, with backoff and jitter.

No task keeps its result with Prefect. What is finished stands in the ledger, the trajectory store
or the manifest, and each task looks there first: a second record could only disagree, as when a
run directory is restored from a backup.
"""

from typing import Any

from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task

from searchr1.errors import ErrorClass, classify


def only_retryable(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Prefect's `retry_condition_fn`: retry passing trouble, and nothing else. The state of a
    task that raised holds its exception as data."""
    error = state.data
    return isinstance(error, BaseException) and classify(error) is ErrorClass.RETRYABLE


def _retries(*delays: float) -> dict[str, Any]:
    return {
        "retries": len(delays),
        "retry_delay_seconds": list(delays),
        "retry_jitter_factor": 0.5,
        "retry_condition_fn": only_retryable,
        "cache_policy": NO_CACHE,
        "persist_result": False,
    }


RETRIES = _retries(5, 10, 20, 40, 80, 160)
"""Options for `@task`: about five minutes of retries, for what a person waits for."""
PATIENT_RETRIES = _retries(5, 10, 20, 40, 80, 160, *[600] * 12)
"""Options for `@task`: about two hours, for what trains or evaluates: most outages end sooner."""
