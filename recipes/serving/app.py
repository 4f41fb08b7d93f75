"""The application: routes, limits, keys, counters, health, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import recipes.serving.tensorflow_grpc
from recipes.serving import openai_rest, tensorflow_rest, web_page
from recipes.serving.limits import LimitsConfig
from recipes.serving.metrics import Metrics
from recipes.serving.own_pages import require_own_page
from recipes.serving.problems import Problem, problem_of
from recipes.serving.served_models import ServedModels
from recipes.serving.server_state import ServerState

# What needs no key: whoever looks after the process asks it, and the page asks for the key.
OPEN_PATHS = ("/health", "/ready", *web_page.FILES)

_log = logging.getLogger(__name__)


def make_app(
    folder: Path,
    limits: LimitsConfig,
    options: dict[str, Any],
    *,
    api_key: str | None = None,
    interval: float = 2.0,
    drain: float = 30.0,
    grpc_address: tuple[str, int] | None = None,
) -> Starlette:
    """Returns the application that serves the models of a folder.

    Args:
        folder: See `recipes.serving.model_folders.find_versions`.
        limits: What it takes.
        options: Options of the workers.
        api_key: The key that requests must bring; None for none.
        interval: Seconds between two looks at the folder.
        drain: Seconds that requests have to end.
        grpc_address: Host and port of gRPC; None for none.
    """

    servers: dict[str, Any] = {}
    ending: list[asyncio.Task] = []

    async def stop() -> None:
        if "grpc" in servers:
            await servers["grpc"].stop(drain)

    def begin_end() -> asyncio.Task:
        """Lets gRPC end, too, from the moment on that HTTP begins to."""
        if not ending:
            ending.append(asyncio.get_running_loop().create_task(stop()))
        return ending[0]

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        # a client that reads slowly holds its version longer than its text takes
        longest = limits.seconds + limits.write_seconds
        async with ServedModels(folder, {**options, "waiting": limits.waiting}, interval, drain, longest) as models:
            state = app.state.server = ServerState(models, limits, Metrics(), api_key)
            if grpc_address is not None:
                start = recipes.serving.tensorflow_grpc.start_grpc
                servers["grpc"], app.state.grpc_port = await start(state, *grpc_address)
                _log.info("gRPC is asked at %s:%d.", grpc_address[0], app.state.grpc_port)
            yield
            await app.state.begin_end()

    routes = [
        Route("/health", health, methods=["GET"]),
        Route("/ready", ready, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
        *web_page.routes(),
        *openai_rest.routes(),
        *tensorflow_rest.routes(),
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.state.begin_end = begin_end
    app.add_exception_handler(Problem, answer_problem)
    app.add_exception_handler(HTTPException, answer_problem)
    app.add_middleware(Watched)
    return app


class Watched:
    """Middleware that asks for the key, counts, and answers what goes wrong in one form."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        """Handles a request, as ASGI says."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state: ServerState = scope["app"].state.server
        began, sent = time.monotonic(), {"status": 500, "begun": False}

        async def watched(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                sent.update(status=message["status"], begun=True)
            await send(message)

        with state.metrics.open_requests.track_inprogress():
            try:
                if scope["path"] not in OPEN_PATHS:
                    headers = Request(scope).headers
                    state.require_key(headers.get("authorization"))
                    if state.api_key is None:
                        require_own_page(headers)
                await self._app(scope, receive, watched)
            except Exception as error:  # whatever a route raises
                if sent["begun"]:
                    _log.error("A request ended early: %s", type(error).__name__)
                else:
                    await _answer(error, scope)(scope, receive, watched)
            finally:
                route = scope.get("route")
                path = getattr(route, "path", "other")
                state.metrics.answered(path, sent["status"], time.monotonic() - began)


async def answer_problem(request: Request, error: Exception) -> Response:
    """Answers what a route raised."""
    return _answer(error, request.scope)


def _answer(error: Exception, scope: dict[str, Any]) -> JSONResponse:
    if isinstance(error, HTTPException):  # of the router: no such route, or not with this method
        error = Problem(error.status_code, f"{error.detail}.")
    problem = problem_of(error)
    if problem.status == 500:
        _log.error("A request failed: %s", type(error).__name__)
    said: Any = problem.reason
    if scope["path"] in openai_rest.PATHS:
        kind = "invalid_request_error" if problem.status < 500 else "server_error"
        said = {"message": problem.reason, "type": kind, "param": None, "code": str(problem.status)}
    return JSONResponse({"error": said}, problem.status, problem.headers)


async def health(request: Request) -> JSONResponse:
    """Answers that the server is alive."""
    return JSONResponse({"status": "alive"})


async def ready(request: Request) -> JSONResponse:
    """Answers whether all models can answer."""
    state: ServerState = request.app.state.server
    if not state.models.is_ready:
        raise Problem(503, "The models cannot all answer at the moment.")
    return JSONResponse({"status": "ready", "models": state.models.names})


async def metrics(request: Request) -> Response:
    """Answers what Prometheus reads."""
    state: ServerState = request.app.state.server
    return Response(await state.metrics.page(state.models), media_type=Metrics.content_type)
