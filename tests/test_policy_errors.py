"""The class of an SDK error decides what happens; the SDK's own flag is not trusted alone."""

import traceback

import pytest
import pytrio
from pytrio.errors.actor import ActorAPIError, ActorEventSubmitError
from pytrio.errors.base import ValidationError
from pytrio.errors.control import ControlAPIError
from pytrio.errors.event import EventFailedError

from searchr1.errors import ErrorClass, classify
from searchr1.policy import SamplingOptions, ServiceSampler
from searchr1.policy_errors import FATAL_CODES, ClientLost, PolicyRefused, translate
from searchr1.sampler import SamplingError

RETRYABLE, FATAL, PROGRAMMING = ErrorClass.RETRYABLE, ErrorClass.FATAL, ErrorClass.PROGRAMMING


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ControlAPIError("x", status_code=401, code="unauthorized"), FATAL),
        (ControlAPIError("x", status_code=401), FATAL),
        (ControlAPIError("x", status_code=402), FATAL),
        (ControlAPIError("x", status_code=403, code="forbidden"), FATAL),
        (ControlAPIError("x", status_code=404, code="model_not_found"), FATAL),
        (ControlAPIError("x", status_code=400), FATAL),  # the SDK calls this one retryable
        (ControlAPIError("x", status_code=422), FATAL),
        (ControlAPIError("x", status_code=429), RETRYABLE),
        (ControlAPIError("x", status_code=503, code="service_unavailable"), RETRYABLE),
        (ControlAPIError("x", status_code=0), RETRYABLE),
        (ControlAPIError("x", status_code=425), RETRYABLE),
        (ControlAPIError("x", status_code=524), RETRYABLE),
        (ControlAPIError("x", status_code=501), FATAL),
        (ActorAPIError("x", status_code=404, code="run_not_found"), RETRYABLE),
        (ActorAPIError("x", status_code=0, code="actor.invalid_response"), RETRYABLE),
        (ActorAPIError("x", status_code=0, code="actor.sampling.total_timeout"), RETRYABLE),
        (ActorEventSubmitError("x", status_code=500), RETRYABLE),
        (pytrio.PyTrioError("x", code="training.run_broken"), RETRYABLE),
        (EventFailedError("event_x", "internal_error", "x"), RETRYABLE),
        (EventFailedError("event_x", "billing_insufficient_balance", "x"), FATAL),
        (EventFailedError("event_x", "validation_failed", "x"), FATAL),
        (EventFailedError("event_x", "invalid_request_body", "x"), FATAL),
        (ValidationError("x", code="validation.training_sample_too_long"), FATAL),
        (ValidationError("x", code="validation.token_id_out_of_range"), PROGRAMMING),
        (TimeoutError(), RETRYABLE),
        (ZeroDivisionError(), PROGRAMMING),
    ],
)
def test_an_error_has_the_class_that_its_status_and_code_call_for(error, expected):
    assert classify(translate(error)) is expected


def sampler(error: Exception) -> ServiceSampler:
    """One whose service answers with an error."""

    class Client:
        async def sample_async(self, *_: object, **__: object) -> None:
            raise error

    return ServiceSampler(Client(), SamplingOptions(1.0, 1.0, 5.0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (ActorAPIError("x", status_code=404, code="run_not_found"), True),
        (pytrio.PyTrioError("x", code="training.run_broken"), True),
        (ActorAPIError("x", status_code=503), False),
        (ActorAPIError("x", status_code=0, retryable=True), False),
    ],
)
async def test_a_lost_client_is_not_the_fault_of_one_sample(error, lost):
    with pytest.raises(ClientLost if lost else SamplingError):
        await sampler(error).sample([1], 1, 1, [], None)


async def test_the_servers_text_is_in_no_traceback():
    refusal = ActorAPIError("key sk-12345 is bad", status_code=401, details={"key": "sk-12345"})
    with pytest.raises(PolicyRefused) as refused:
        await sampler(refusal).sample([1], 1, 1, [], None)
    assert "sk-12345" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize("code", FATAL_CODES)
def test_a_fatal_error_says_what_to_do_and_repeats_no_server_text(code):
    message = str(translate(ControlAPIError("key sk-12345 is bad", status_code=400, code=code)))
    assert FATAL_CODES[code] in message
    assert "sk-12345" not in message
