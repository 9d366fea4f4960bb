"""Whatever the service answers, a training ends as if nothing had happened, or stops at once and
says what to do."""

from collections.abc import Callable

import pytest

from tests.faults.fault import Action, Fault, When
from tests.faults.outcome import Outcome, outcome
from tests.faults.stage import Stage

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]
Undisturbed = Callable[..., Outcome]

REQUESTS = {
    "control:POST sampling-runs": 2,
    "sample": 20,
    "submit:forward_backward": 2,
    "submit:save_state": 2,
    "poll:optimize_step": 2,
}
"""What is spoiled: a kind of request, and which one of it."""
LASTING = 4
"""As many failures in a row outlast the SDK's own repetitions (see --service-retry-seconds)."""


def through(stage: Stage, name: str, fault: Fault) -> Outcome:
    """The outcome of a training that meets `fault` and goes on by itself."""
    name = "".join(c if c.isalnum() else "-" for c in name)
    process = stage.start(name)
    stage.engine.meet(fault)
    printed = stage.end(process, 0)
    assert stage.engine.hits() >= 1, printed
    return outcome(stage, name)


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize(
    "fault",
    [
        Fault(Action.STATUS, "", status=429, code="too_many_requests"),
        Fault(Action.STATUS, "", status=500),
        Fault(Action.DROP, ""),
        Fault(Action.HANG, ""),
        Fault(Action.CUT, ""),
        Fault(Action.WRONG, ""),
    ],
    ids=lambda fault: f"{fault.action}{fault.status if fault.action is Action.STATUS else ''}",
)
def test_a_spoiled_answer_changes_nothing(
    stage: Stage, undisturbed: Undisturbed, fault: Fault, kind: str
) -> None:
    expected = undisturbed()
    spoiled = Fault(fault.action, kind, REQUESTS[kind], status=fault.status, code=fault.code)
    name = f"{fault.action}{fault.status}-{kind}"
    through(stage, name, spoiled).assert_equal(expected)


@pytest.mark.parametrize("kind", REQUESTS)
def test_an_outage_that_outlasts_the_sdk_changes_nothing(
    stage: Stage, undisturbed: Undisturbed, kind: str
) -> None:
    fault = Fault(Action.STATUS, kind, REQUESTS[kind], count=LASTING, status=503)
    through(stage, f"outage-{kind}", fault).assert_equal(undisturbed())


@pytest.mark.parametrize(
    "kind", ["submit:forward_backward", "submit:optimize_step", "submit:save_state", "sample"]
)
def test_what_the_service_did_though_its_answer_was_lost_is_not_done_twice(
    stage: Stage, undisturbed: Undisturbed, kind: str
) -> None:
    fault = Fault(Action.DROP, kind, 2, when=When.HANDLED)
    through(stage, f"lost-{kind}", fault).assert_equal(undisturbed())


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (401, "unauthorized", "control:POST sampling-runs", "PYTRIO_API_KEY"),
        (402, "billing_insufficient_balance", "submit:optimize_step", "Add credits"),
        (402, "billing_insufficient_balance", "sample", "Add credits"),
        (403, "forbidden", "poll:forward_backward", "administrator"),
    ],
)
def test_a_refusal_stops_the_training_at_once_and_it_goes_on_when_it_is_settled(
    stage: Stage, undisturbed: Undisturbed, status: int, code: str, kind: str, words: str
) -> None:
    expected = undisturbed()
    name = f"refused-{status}-{kind[0]}"
    process = stage.start(name)
    stage.engine.meet(Fault(Action.STATUS, kind, 2, count=10_000, status=status, code=code))
    printed = stage.end(process, 1)
    last = printed.strip().splitlines()[-1]
    assert last.startswith("Error: ") and words in last
    assert "Retries" not in printed and "Retry" not in printed, "it was not at once"
    stage.engine.meet(None)
    stage.finish(name)
    outcome(stage, name).assert_equal(expected)
