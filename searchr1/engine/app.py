"""The ASGI application: PyTRIO's two planes on one port.

`create_app` has no fault in it and no global state, so tests may wrap it in a middleware of their
own, or run several.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from searchr1.engine.actor import actor_routes
from searchr1.engine.config import EngineConfig
from searchr1.engine.control import control_routes, download
from searchr1.engine.engine import Engine
from searchr1.engine.errors import Code, EngineError


def create_app(config: EngineConfig) -> Starlette:
    """The engine as an application; its lifespan starts and stops the torch thread.

    Raises OSError or ValueError when a model folder cannot be used.
    """
    engine = Engine(config)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        engine.start()
        try:
            yield
        finally:
            await engine.stop()

    app = Starlette(
        lifespan=lifespan,
        routes=[
            Route("/", about),
            Route("/download/{token}", download),
            Mount("/api", routes=control_routes()),
            Mount("/actor/v1", routes=actor_routes()),
        ],
        exception_handlers={
            EngineError: answer_engine_error,  # pyright: ignore
            HTTPException: answer_http_error,  # pyright: ignore
            Exception: answer_defect,
        },
    )
    app.state.engine = engine
    return app


async def about(request: Request) -> Response:
    """GET or HEAD /: that somebody is here (the SDK probes it)."""
    return JSONResponse({"service": "searchr1-engine", "protocol": "pytrio"})


async def answer_engine_error(request: Request, error: EngineError) -> Response:
    """An error that we raised."""
    return _error(error.status, error.body)


async def answer_http_error(request: Request, error: HTTPException) -> Response:
    """No such route, or not with this method."""
    body = {"code": str(Code.NOT_FOUND), "message": f"No {request.method} {request.url.path}."}
    return _error(error.status_code, body)


async def answer_defect(request: Request, error: Exception) -> Response:
    """A defect; the traceback goes to the log only."""
    return _error(500, EngineError(Code.INTERNAL_ERROR, "The engine failed; see its log.").body)


def _error(status: int, body: dict[str, str]) -> Response:
    headers = {"x-request-id": secrets.token_hex(8)}
    return JSONResponse(body, status_code=status, headers=headers)
