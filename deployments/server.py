"""The Prefect server that the commands of this folder talk to."""

import httpx
from prefect.client.orchestration import get_client
from prefect.settings import get_current_settings

ADVICE = (
    "Start one with `prefect server start`, and say where it is with "
    "`prefect config set PREFECT_API_URL=http://127.0.0.1:4200/api`."
)
LOGIN = "Set PREFECT_API_AUTH_STRING (a server of your own) or PREFECT_API_KEY (Prefect Cloud)."


def require_server() -> str:
    """The address of the server's UI. Ends the program with advice when there is no server or it
    does not answer: what is told to a passing server of one's own, nobody else would find."""
    settings = get_current_settings()
    url = settings.api.url
    if url is None:
        raise SystemExit(f"Error: no Prefect server is set. {ADVICE}")
    try:
        with get_client(sync_client=True) as client:
            client.request("GET", "/admin/version")
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        advice = LOGIN if status in (401, 403) else "Is this the address of its API?"
        raise SystemExit(f"Error: {url} answers with HTTP {status}. {advice}") from None
    except httpx.HTTPError:
        raise SystemExit(f"Error: no Prefect server answers at {url}. {ADVICE}") from None
    return settings.ui_url or url.removesuffix("/api")
