"""Errors of the engine, with the codes that PyTRIO's SDK knows or that are stable here.

An `EngineError` is either the answer of an HTTP request or the end of a failed event; the text
is for the person who reads it on the other side and never holds a key.
"""

from enum import StrEnum


class Code(StrEnum):
    """Stable error codes. The SDK retries by HTTP status, so none of these is retried but
    `INTERNAL_ERROR`."""

    UNAUTHORIZED = "unauthorized"
    """The key or the run's token is missing or wrong."""
    INVALID_BODY = "invalid_request_body"
    """The body cannot be parsed or lacks a field."""
    INVALID_QUERY = "invalid_query_params"
    """A query parameter is missing or out of range."""
    VALIDATION_FAILED = "validation_failed"
    """A value is out of range, or the request goes over a limit of the model."""
    NOT_FOUND = "not_found"
    """No such route."""
    MODEL_NOT_FOUND = "model_not_found"
    """This engine does not serve a base model of that name."""
    SESSION_NOT_FOUND = "service_session_not_found"
    """Unknown session, perhaps of an engine that has been restarted since."""
    SESSION_ENDED = "service_session_ended"
    """The session was closed; open a new one."""
    RUN_NOT_FOUND = "run_not_found"
    """Unknown run, perhaps of an engine that has been restarted since."""
    RUN_ENDED = "run_ended"
    """The run was closed with its session, or given up after a long silence."""
    EVENT_NOT_FOUND = "event_not_found"
    """Unknown event, or one so old that its result was dropped."""
    EVENT_EXISTS = "event_exists"
    """The event id is taken by an event of another run."""
    RUN_NOT_INITIALIZED = "run_not_initialized"
    """The run has not executed its `trainer.init_run` event."""
    RUN_INITIALIZED = "run_already_initialized"
    """A checkpoint can be bound to a run only before its first event."""
    CHECKPOINT_NOT_FOUND = "checkpoint_not_found"
    """Never saved, deleted, or expired."""
    CHECKPOINT_EXISTS = "checkpoint_exists"
    """The name is taken and the save did not ask for `overwrite`."""
    CHECKPOINT_INVALID_TYPE = "checkpoint_invalid_type"
    """Sampler weights cannot start a training run."""
    CHECKPOINT_INCOMPATIBLE = "checkpoint_incompatible"
    """The checkpoint does not fit the model or the LoRA settings of the run."""
    NON_FINITE_LOSS = "non_finite_loss"
    """The loss or a logprob became infinite or NaN; no gradient was kept."""
    NON_FINITE_GRADIENT = "non_finite_gradient"
    """A gradient became infinite or NaN; the gradients of the event were dropped."""
    INTERNAL_ERROR = "internal_error"
    """A defect of the engine; its log has the traceback."""


STATUS = {
    Code.UNAUTHORIZED: 401,
    Code.NOT_FOUND: 404,
    Code.MODEL_NOT_FOUND: 404,
    Code.SESSION_NOT_FOUND: 404,
    Code.RUN_NOT_FOUND: 404,
    Code.EVENT_NOT_FOUND: 404,
    Code.CHECKPOINT_NOT_FOUND: 404,
    Code.SESSION_ENDED: 409,
    Code.RUN_ENDED: 409,
    Code.EVENT_EXISTS: 409,
    Code.RUN_INITIALIZED: 409,
    Code.CHECKPOINT_EXISTS: 409,
    Code.INTERNAL_ERROR: 500,
}
"""HTTP status of a code; 400 for the others."""


class EngineError(Exception):
    """What went wrong, as the client is told."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """HTTP status of the answer."""
        return STATUS.get(self.code, 400)

    @property
    def body(self) -> dict[str, str]:
        """Body of the answer, and `error` of a failed event."""
        return {"code": str(self.code), "message": self.message}
