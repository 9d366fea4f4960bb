"""What the Prefect server does by itself: python deployments/automations.py

Creates or brings up to date, as often as it is called:

- "searchr1: dead runs": a flow run that gives no sign of life is marked Crashed. Without it a run
  whose machine or worker died stays Running for ever, and the next one waits for it for ever.
- "searchr1: failed runs", only with --notify: a message when a run of a deployment fails.

Only flows and deployments of this project are concerned; others on the same server are not.
"""

import argparse
from datetime import timedelta
from enum import StrEnum

import tasks  # noqa: F401  (settles Prefect's environment before Prefect is imported)

# isort: split
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ActionTypes, CallWebhook, ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import Automation, AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectNotFound

from deployments.catalog import CATALOG, HEARTBEAT_SECONDS
from deployments.server import require_server

SILENCE = timedelta(seconds=200)
"""Without a sign of life for so long a run counts as dead. Longer than Prefect's own time between
signs of life, 180 s, so that a run that was started without this project's setting lives too."""

FLOW_RUN = ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"})
SUBJECT = "{{ flow.name }}: run {{ flow_run.name }} {{ flow_run.state.name }}"
BODY = (
    "Run {{ flow_run.name }} of {{ flow.name }} is {{ flow_run.state.name }}.\n"
    "{{ flow_run.state.message }}\n"
    "Look: {{ flow_run|ui_url }}\n"
    "When the cause is gone, go on where it stopped: prefect flow-run retry {{ flow_run.id }}"
)


class Change(StrEnum):
    """What happens to an automation."""

    CREATED = "created"
    """The server did not have it."""
    UPDATED = "updated"
    """The server had another version of it."""
    UNCHANGED = "unchanged"
    """The server has it as it should be."""


def _ours(role: str) -> ResourceSpecification:
    """What an event is related to: a flow, or a deployment, with one of this project's names."""
    return ResourceSpecification(
        {"prefect.resource.role": role, "prefect.resource.name": list(CATALOG)}
    )


def dead_runs(silence: timedelta = SILENCE) -> AutomationCore:
    """The automation that marks runs Crashed that sent a heartbeat, and then nothing at all for
    `silence`."""
    return AutomationCore(
        name="searchr1: dead runs",
        description=(
            f"No sign of life for {silence.total_seconds():.0f} s (a run gives one every "
            f"{HEARTBEAT_SECONDS} s): the run is marked Crashed, so that the next one can start."
        ),
        trigger=EventTrigger(
            match=FLOW_RUN,
            match_related=_ours("flow"),
            for_each={"prefect.resource.id"},
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.*"},
            posture=Posture.Proactive,
            threshold=1,
            within=silence,
        ),
        actions=[
            ChangeFlowRunState(
                name="Crashed",
                state=StateType.CRASHED,
                force=False,
                message=(
                    f"No sign of life for {silence.total_seconds():.0f} s: its process, worker "
                    "or machine is gone. Go on where it stopped: prefect flow-run retry"
                ),
            )
        ],
    )


def failed_runs(action: ActionTypes) -> AutomationCore:
    """The automation that takes `action` when a run of a deployment ends badly. Flows within the
    flow of a deployment, and flows started by hand, are left out: their failure is seen there."""
    return AutomationCore(
        name="searchr1: failed runs",
        description="A message when a run of a deployment fails, crashes or times out.",
        trigger=EventTrigger(
            match=FLOW_RUN,
            match_related=_ours("deployment"),
            for_each={"prefect.resource.id"},
            expect={f"prefect.flow-run.{state}" for state in ("Failed", "Crashed", "TimedOut")},
            posture=Posture.Reactive,
            threshold=1,
        ),
        actions=[action],
    )


def notification(client: SyncPrefectClient, block: str) -> ActionTypes:
    """The action that sends a message through a saved block, TYPE/NAME as `prefect block ls`
    shows it. Ends the program when there is no such block."""
    type_slug, _, name = block.partition("/")
    try:
        document = client.read_block_document_by_name(name, type_slug, include_secrets=False)
    except ObjectNotFound:
        raise SystemExit(
            f"Error: there is no block '{block}'. Save one in the UI under Blocks, for example of "
            "type Slack Webhook, and give it as TYPE/NAME, as `prefect block ls` shows it."
        ) from None
    if type_slug == "webhook":
        payload = f'{{"subject": "{SUBJECT}", "run": "{{{{ flow_run.id }}}}"}}'
        return CallWebhook(block_document_id=document.id, payload=payload)
    return SendNotification(block_document_id=document.id, subject=SUBJECT, body=BODY)


def apply(client: SyncPrefectClient, wanted: AutomationCore, dry_run: bool) -> Change:
    """Make the server have this automation, found by its name. One that a person disabled stays
    disabled. With `dry_run` only say what would be done."""
    found = client.read_automations_by_name(wanted.name)
    if not found:
        if not dry_run:
            client.create_automation(wanted)
        return Change.CREATED
    current = found[0]
    wanted = wanted.model_copy(update={"enabled": current.enabled})
    if _content(current) == _content(wanted):
        return Change.UNCHANGED
    if not dry_run:
        client.update_automation(current.id, wanted)
    return Change.UPDATED


def _content(automation: AutomationCore | Automation) -> dict[str, object]:
    return automation.model_dump(
        mode="json", include=set(AutomationCore.model_fields), exclude={"trigger": {"id"}}
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--notify",
        metavar="BLOCK",
        help="also send a message when a run of a deployment fails, through this saved block: "
        "slack-webhook/NAME, custom-webhook/NAME, webhook/NAME, ...",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, and change nothing"
    )
    parser.add_argument("--list", action="store_true", help="show what the server has, and stop")
    given = parser.parse_args(arguments)

    require_server()
    with get_client(sync_client=True) as client:
        if given.list:
            _list(client)
            return
        wanted = [dead_runs()]
        if given.notify:
            wanted.append(failed_runs(notification(client, given.notify)))
        for automation in wanted:
            change = apply(client, automation, given.dry_run)
            would = "would be " if given.dry_run and change is not Change.UNCHANGED else ""
            print(f"{automation.name}: {would}{change}\n  {automation.description}")


def _list(client: SyncPrefectClient) -> None:
    ours = [a for a in client.read_automations() if a.name.startswith("searchr1: ")]
    for automation in ours:
        print(f"{automation.name}: {'enabled' if automation.enabled else 'disabled'}")
        print(f"  {automation.description}")
    if not ours:
        print("The server has none of this project's automations.")


if __name__ == "__main__":
    main()
