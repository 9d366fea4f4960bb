"""A Prefect plugin: `prefect deployment run train` means `train/train`.

Prefect wants FLOW/DEPLOYMENT; here every deployment is named like its flow, so one name says all.
Prefect loads this module at start-up through the entry point group `prefect.plugins`, when plugins
are enabled: `pyproject.toml` does so for commands given in the project's folder, the variable
PREFECT_PLUGINS_ENABLED=true anywhere else.

A name with a slash passes unchanged. A client whose method is not as this module knows it is left
untouched, with a warning: then only the long form works.
"""

import inspect
from functools import wraps
from importlib import import_module
from typing import Any

from prefect.plugins import HookContext, register_hook

PREFECT_PLUGIN_API_REQUIRES = ">=0.1,<1"
METHOD = "read_deployment_by_name"
CLIENTS = ("PrefectClient", "SyncPrefectClient")


@register_hook
def setup_environment(*, ctx: HookContext) -> None:
    """Prefect's hook: teach both of its clients to read bare names."""
    try:
        orchestration = import_module("prefect.client.orchestration")
    except ImportError:
        orchestration = None
    missed = [name for name in CLIENTS if not accept_bare_names(getattr(orchestration, name, None))]
    if missed:
        ctx.logger_factory("searchr1.bare_names").warning(
            "This Prefect (%s) looks up deployments in another way than this project knows "
            "(%s.%s), so bare deployment names do not work. Type the name in full: "
            "prefect deployment run train-search-r1/train-search-r1",
            ctx.prefect_version,
            " and ".join(missed),
            METHOD,
        )


def accept_bare_names(client: type | None) -> bool:
    """Wrap the method of `client` that finds a deployment by name, so that it also takes a bare
    name. Returns False, and changes nothing, when the method is absent or takes other arguments."""
    method = getattr(client, METHOD, None)
    if method is None or list(inspect.signature(method).parameters) != ["self", "name"]:
        return False

    @wraps(method)
    def read_deployment_by_name(self: Any, name: str) -> Any:
        return method(self, full_name(name))

    setattr(client, METHOD, read_deployment_by_name)
    return True


def full_name(name: str) -> str:
    """FLOW/DEPLOYMENT for a bare name; a name with a slash as it is."""
    return name if "/" in name else f"{name}/{name}"
