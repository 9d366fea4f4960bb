"""Keys and addresses of the services, from where a person keeps them into this environment.

Every part of the program reads keys from the environment alone. What is set there wins; then the
file `.env` of the working directory (or the nearest one above it), which is read whole, as a
mirror's HF_ENDPOINT may stand there too; then Prefect Secret blocks named like the variable, in
lower case with dashes: `deepseek-api-key` for DEEPSEEK_API_KEY. So a key is never a parameter, and
no value is ever logged: only the variable's name and its origin.
"""

import os
from collections.abc import Mapping
from logging import Logger, LoggerAdapter
from pathlib import Path

import httpx
from dotenv import dotenv_values, find_dotenv
from prefect import get_run_logger
from prefect.blocks.system import Secret
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext, TaskRunContext
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_logger
from prefect.settings import get_current_settings

from searchr1.errors import SettingsError

VARIABLES = (
    ("PYTRIO_API_KEY",),
    ("PYTRIO_BASE_URL",),
    ("DEEPSEEK_API_KEY", "DEEPSEEK_KEY"),
    ("ZHIHU_SEARCH_KEYS", "ZHIHU_SEARCH_KEY", "ZHIHU_ACCESS_SECRET"),
    ("WIKIPEDIA_CONTACT",),
    ("SWANLAB_API_KEY",),
)
"""Keys and addresses; names in one line mean the same, and one of them is enough."""


async def load_secrets() -> None:
    """Set the variables that are missing in `os.environ` and kept elsewhere. To be called before
    anything needs a key; a second call has nothing left to do. Outside a flow run blocks are only
    read when a Prefect server is configured, as none is started for that.

    Raises:
        SettingsError: a Secret block of such a name holds something else than text.
    """
    load_env_file()
    wanted = [name for names in _missing() for name in names]
    if wanted and (_in_run() or get_current_settings().api.url):
        _take(await _from_blocks(wanted), "a Prefect Secret block")


def load_env_file() -> None:
    """Set the variables of `.env` that are missing in `os.environ`."""
    file = find_dotenv(usecwd=True)
    if not file:
        return
    # Without interpolation a key with a dollar sign stays as it is.
    values = dotenv_values(Path(file), interpolate=False)
    _take(values, ".env")
    ours = {name for names in VARIABLES for name in names}
    for name, value in values.items():
        if name not in ours and value is not None:
            os.environ.setdefault(name, value)


def _in_run() -> bool:
    return bool(FlowRunContext.get() or TaskRunContext.get())


def _logger() -> Logger | LoggerAdapter:
    return get_run_logger() if _in_run() else get_logger("searchr1")


def block_name(variable: str) -> str:
    """The name of the Secret block for an environment variable."""
    return variable.lower().replace("_", "-")


def _missing() -> list[tuple[str, ...]]:
    return [names for names in VARIABLES if not any(map(os.environ.get, names))]


def _take(values: Mapping[str, str | None], origin: str) -> None:
    for names in _missing():
        for name in names:
            value = values.get(name)
            if value:
                os.environ[name] = value
                _logger().info("%s is taken from %s", name, origin)
                break


async def _from_blocks(variables: list[str]) -> dict[str, str]:
    """The values of those Secret blocks that exist. A server that does not let them be read is
    worth a warning only: most runs need none of them."""
    by_block = {block_name(variable): variable for variable in variables}
    try:
        async with get_client() as client:
            documents = await client.read_block_documents_by_type("secret", include_secrets=False)
            names = [document.name for document in documents if document.name in by_block]
            return {by_block[name]: _text(name, await Secret.aload(name)) for name in names}
    except (httpx.HTTPError, ObjectNotFound) as error:
        _logger().warning(
            "Prefect Secret blocks could not be read (%s); a key that is kept only there is "
            "missing now.",
            type(error).__name__,
        )
        return {}


def _text(name: str, block: Secret) -> str:
    value = block.value.get_secret_value()
    if not isinstance(value, str):
        raise SettingsError(
            f"the Prefect Secret block '{name}' holds {type(value).__name__}, not text: save the "
            "key in it as plain text."
        )
    return value
