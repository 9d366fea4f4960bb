"""The SDK's errors as errors of this package, by class.

From the measured behaviour of the SDK: its own `retryable` flag cannot be trusted alone, since a
bare 400 carries it as well, and a connection cut inside an answer does not.
"""

import pytrio as trio
from pydantic import ValidationError
from pytrio.errors.actor import ActorAPIError
from pytrio.errors.event import EventFailedError

from searchr1.errors import FatalError, RetryableError, SearchR1Error

NOT_THE_PROTOCOL = "PyTRIO's answer is not what its protocol says."
_TRANSIENT_STATUS = {0, 408, 425, 429}
"""Beside 5xx."""
_NEVER_STATUS = {501, 505}
"""What the service does not do at all."""
_UNKNOWN_OBJECT = 404
FATAL_CODES = {
    "unauthorized": "the API key is not accepted. Set PYTRIO_API_KEY, or run `trio login`.",
    "auth.missing_api_key": "no API key is set. Set PYTRIO_API_KEY, or run `trio login`.",
    "api_key_expired": "the API key has expired. Make a new one and set PYTRIO_API_KEY.",
    "api_key_revoked": "the API key was revoked. Make a new one and set PYTRIO_API_KEY.",
    "api_key_disabled": "the API key is disabled. Ask the workspace's administrator.",
    "forbidden": "this key may not do that. Ask the workspace's administrator.",
    "billing_insufficient_balance": "the balance is used up. Add credits, then start the run "
    "again; it goes on where it stopped.",
    "model_not_found": "the service does not offer this model. Choose another with --base-model.",
    "checkpoint_not_found": "the saved weights are gone. Choose another checkpoint.",
    "validation.training_sample_too_long": "a trajectory is longer than the service trains. Start "
    "a new run with a lower --max-trajectory-tokens, from a checkpoint with --fork-from.",
    "checkpoint_invalid_type": "these weights cannot be used that way: training goes on from a "
    "state, not from sampler weights.",
}
_REFUSED_EVENTS = ("validation_failed", "invalid_request_")
"""How the codes of events begin that will fail again."""
_FATAL_STATUS = {
    401: "unauthorized",
    402: "billing_insufficient_balance",
    403: "forbidden",
}


class PolicyUnavailable(RetryableError):
    """The service, or the live client, cannot be used right now; a new client may."""


class ClientLost(PolicyUnavailable):
    """The service no longer knows the live client's run: whatever is asked of it will fail."""


class AnswerLost(PolicyUnavailable):
    """No answer came in time, or none that can be read, and the SDK does not ask again by itself.
    What changes nothing at the service, like a sample, can be asked for again."""


class PolicyRefused(FatalError):
    """The service will not do this until a person changes something."""


def translate(error: Exception) -> Exception:
    """The error of this package that stands for an SDK error; the same error when it is a defect
    of the program. Server text is left out of the message: codes and statuses are enough."""
    if isinstance(error, SearchR1Error):
        return error
    if isinstance(error, TimeoutError):
        return AnswerLost("PyTRIO did not answer in time; the request was given up.")
    if isinstance(error, ValidationError):  # the SDK lets its own parsing errors through
        return AnswerLost(NOT_THE_PROTOCOL)
    if not isinstance(error, trio.PyTrioError):
        return error
    code = _FATAL_STATUS.get(error.status_code, error.code)
    code = error.code if error.code in FATAL_CODES else code
    what = f"PyTRIO {error.operation or 'request'} failed ({error.code}, HTTP {error.status_code})"
    if code in FATAL_CODES:
        return PolicyRefused(f"{what}: {FATAL_CODES[code]}")
    if error.code.startswith("validation.") or error.code.startswith("dependency."):
        return error
    remedy = "a new client will be opened from the last saved state."
    if error.status_code == _UNKNOWN_OBJECT or error.code == "training.run_broken":
        return ClientLost(f"{what}; {remedy}")
    if isinstance(error, ActorAPIError) and not error.status_code and not error.retryable:
        return AnswerLost(f"{what}; its answer did not arrive whole.")
    if isinstance(error, EventFailedError):
        passing = not error.code.startswith(_REFUSED_EVENTS)
    else:
        passing = error.status_code in _TRANSIENT_STATUS or error.status_code >= 500
    if passing and error.status_code not in _NEVER_STATUS:
        return PolicyUnavailable(f"{what}; {remedy}")
    return PolicyRefused(f"{what}: the service does not accept this request.")
