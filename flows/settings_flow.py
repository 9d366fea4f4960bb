"""A flow whose parameters are the fields of a settings model, and its command line.

The parameters are flat (`-p max_steps=100`), typed, described and validated, in the UI's form as
on the command line. All are optional: what is not given comes from the profile.
"""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tasks.secrets import load_env_file, load_secrets

from prefect import Flow, flow
from prefect.runtime import flow_run
from pydantic import BaseModel

from searchr1.config import Profile, from_command_line, resolve
from searchr1.errors import SearchR1Error

S = TypeVar("S", bound=BaseModel)


Inherited = Callable[[S], dict[str, Any]]
"""From settings as far as they are known: values for what was not given, from elsewhere than the
profile."""


def settings_flow(
    model: type[S], *, name: str, inherited: Inherited[S] | None = None, **options: Any
) -> Callable[[Callable[[S], Awaitable[Any]]], Flow[..., Any]]:
    """Decorate `async def body(settings)`: a flow called `name` that resolves its parameters to
    settings of `model` and runs the body."""

    def decorate(body: Callable[[S], Awaitable[Any]]) -> Flow[..., Any]:
        async def run(**parameters: Any) -> Any:
            await load_secrets()
            return await body(_resolved(model, parameters, inherited))

        run.__name__ = run.__qualname__ = body.__name__
        run.__module__ = body.__module__
        run.__doc__ = _documentation(body, model)
        run.__signature__ = _signature(model)  # type: ignore[attr-defined]
        return flow(name=name, flow_run_name=_run_name, **options)(run)

    return decorate


def _resolved(model: type[S], given: dict[str, Any], inherited: Inherited[S] | None) -> S:
    settings = resolve(model, given)
    if inherited is None:
        return settings
    explicit = {name: value for name, value in given.items() if value is not None}
    return resolve(model, inherited(settings) | explicit)


def _run_name() -> str:
    """The name of a flow run in the UI: the flow, and the training run that it is about."""
    given = flow_run.parameters
    about = given.get("run_name") or given.get("run") or given.get("profile") or given.get("source")
    return f"{flow_run.flow_name} {about or Profile.LOCAL}"


def _signature(model: type[BaseModel]) -> inspect.Signature:
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=info.rebuild_annotation() | None,
        )
        for name, info in model.model_fields.items()
    ]
    return inspect.Signature(parameters)


def _documentation(body: Callable[..., Any], model: type[BaseModel]) -> str:
    lines = [
        f"    {name}: {(info.description or '').splitlines()[0]}"
        for name, info in model.model_fields.items()
        if info.description
    ]
    return "\n".join([inspect.getdoc(body) or "", "", "Args:", *lines])


def main(
    the_flow: Flow[..., Any],
    model: type[S],
    check: Callable[[S], Awaitable[None]] | None = None,
    inherited: Inherited[S] | None = None,
) -> None:
    """The command line of a flow: `python flows/….py --max-steps 20`. What is wrong or missing,
    as far as `check` finds it, ends with one clear message and status 2, before Prefect is
    started; a failed flow ends with status 1."""
    try:
        load_env_file()
        given = from_command_line(model, about=sys.modules["__main__"].__doc__)
        settings = _resolved(model, given, inherited)
        if check is not None:
            asyncio.run(_checked(check, settings))
    except SearchR1Error as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    try:
        asyncio.run(the_flow(**given))
    except SearchR1Error as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("Interrupted. Start it again with the same --run-name to go on.", file=sys.stderr)
        raise SystemExit(130) from None


async def _checked(check: Callable[[S], Awaitable[None]], settings: S) -> None:
    await load_secrets()
    await check(settings)
