"""The Prefect server that the commands of this folder talk to."""

from prefect.client.orchestration import get_client
from prefect.settings import get_current_settings

ADVICE = (
    "Start one with `prefect server start`, and say where it is with "
    "`prefect config set PREFECT_API_URL=http://127.0.0.1:4200/api`."
)


def require_server() -> str:
    """The address of the server's UI. Ends the program with advice when there is no server or it
    does not answer: what is told to a passing server of one's own, nobody else would find."""
    settings = get_current_settings()
    if settings.api.url is None:
        raise SystemExit(f"Error: no Prefect server is set. {ADVICE}")
    with get_client(sync_client=True) as client:
        if client.api_healthcheck() is not None:
            raise SystemExit(f"Error: no Prefect server answers at {settings.api.url}. {ADVICE}")
    return settings.ui_url or settings.api.url.removesuffix("/api")
