"""The application: routes, limits, keys, counters, health, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from zoo.serving import (
    api_description,
    inference_rest,
    openai_rest,
    responses_rest,
    scoring_rest,
    tensorflow_grpc,
    tensorflow_rest,
    tokens_rest,
    web_page,
)
from zoo.serving.bodies import path_of
from zoo.serving.generations import generation_of
from zoo.serving.http_server import BEYOND
from zoo.serving.metrics import Metrics
from zoo.serving.options import Batching, Limits
from zoo.serving.own_pages import require_own_page
from zoo.serving.problems import Problem, problem_of
from zoo.serving.served_models import ServedModels
from zoo.serving.server_state import ServerState
from zoo.serving.tracing import Tracer

# What whoever looks after the process asks, also on a connection that is one too many.
HEALTH_PATHS = ("/health", "/ready", *inference_rest.HEALTH_PATHS)
# What needs no key: also the page, which asks for it, and what says how to bring one.
OPEN_PATHS = (*HEALTH_PATHS, *web_page.FILES, *api_description.PATHS)
# Where errors are objects.
OBJECT_PATHS = (*openai_rest.PATHS, *responses_rest.PATHS, *scoring_rest.PATHS, *tokens_rest.PATHS)
# Others are counted as one, as anybody may make one up.
_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")

_log = logging.getLogger(__name__)


def app(
    models: str | Path | Callable[[], Awaitable[Path]],
    *,
    limits: Limits | None = None,
    batching: Batching | None = None,
    api_key: str | None = None,
    interval: float = 2.0,
    drain: float = 30.0,
    grpc_address: tuple[str, int] | None = None,
    client_header: str | None = None,
    tracer: Tracer | None = None,
) -> Starlette:
    """Returns the ASGI application that serves the models of a folder, as `python -m recipes.serve` does.

    Each model has a process of its own, from when the application starts until it ends (ASGI's `lifespan`; a program
    that mounts it must enter `app.router.lifespan_context(app)`). What guards the connections themselves belongs to the
    server that runs it: `limits.connections`, `read_seconds` and `write_seconds` hold in
    `zoo.serving.http_server.HttpServer`.

    Args:
        models: A folder of exports: a run folder, an export, a model's folder of versions, or a folder of such models.
            Or a function that gives it once it is there: until then models are being loaded.
        limits: What it takes; None for the defaults.
        batching: How requests are put together; None for the defaults.
        api_key: The key that requests must bring; None for none. Then requests must name an address of this machine in
            their header `Host`.
        interval: Seconds between two looks at the folder.
        drain: Seconds that requests have to end.
        grpc_address: Host and port of gRPC; None for none.
        client_header: The header in which a proxy names the client; None for the address of the connection.
        tracer: Takes each request that has been answered; None for no traces. It is closed when the server ends.

    Raises:
        NotADirectoryError: If there is no such folder.
        MissingExtraError: If the extra `serve` is not installed.

    Example:

    >>> uvicorn.run(zoo.serving.app("models", api_key="secret"), port=8501)
    """
    limits, batching = limits or Limits(), batching or Batching()
    folder = Path(models) if isinstance(models, str) else models
    if isinstance(folder, Path) and not folder.is_dir():
        raise NotADirectoryError(
            f"models must be a folder of exports, got {str(models)!r}: `python -m recipes.serve` takes other names of "
            "models, too, and exports them first."
        )
    servers: dict[str, Any] = {}
    ending: list[asyncio.Task[Any]] = []

    async def stop() -> None:
        if "grpc" in servers:
            await servers["grpc"].stop(drain)

    def begin_end() -> asyncio.Task[Any]:
        """Lets gRPC end, too, from the moment on that HTTP begins to."""
        if not ending:
            ending.append(asyncio.get_running_loop().create_task(stop()))
        return ending[0]

    @contextlib.asynccontextmanager
    async def lifespan(application: Starlette) -> AsyncIterator[None]:
        ending.clear()
        # a client that reads slowly holds its version longer than its text takes
        longest = limits.seconds + limits.write_seconds
        given = {**dataclasses.asdict(batching), "waiting": limits.waiting}
        async with ServedModels(folder, given, interval, drain, longest, limits.load_seconds) as served:
            state = application.state.server = ServerState(served, limits, Metrics(), api_key, client_header, tracer)
            if grpc_address is not None:
                started = await tensorflow_grpc.start_grpc(state, *grpc_address)
                servers["grpc"], application.state.grpc_port = started
                _log.info("gRPC is asked at %s:%d.", grpc_address[0], application.state.grpc_port)
            try:
                yield
            finally:
                await begin_end()
                if tracer is not None:
                    await asyncio.to_thread(tracer.close)

    routes = [
        Route("/health", health, methods=["GET"]),
        Route("/ready", ready, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
        *web_page.routes(),
        *openai_rest.routes(),
        *responses_rest.routes(),
        *scoring_rest.routes(),
        *tokens_rest.routes(),
        *tensorflow_rest.routes(),
        *inference_rest.routes(),
        *api_description.routes(),
    ]
    application = Starlette(routes=routes, lifespan=lifespan)
    application.state.begin_end = begin_end
    application.add_exception_handler(Problem, answer_problem)
    application.add_exception_handler(HTTPException, answer_problem)
    application.add_middleware(Watched)
    return application


class Watched:
    """Middleware that asks for the key, counts, and answers what goes wrong in one form."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        """Handles a request, as ASGI says."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # of an application that has mounted this one
        scope.pop("route", None)
        state: ServerState | None = getattr(scope["app"].state, "server", None)
        if state is None:
            raise RuntimeError(
                "The models are loaded when the application starts: a program that mounts `app` must enter "
                "`app.router.lifespan_context(app)` in its own lifespan."
            )
        began, sent = time.monotonic(), {"status": 500, "begun": False}

        async def watched(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                sent.update(status=message["status"], begun=True)
            await send(message)

        with state.metrics.open_requests.track_inprogress():
            try:
                if BEYOND in scope and path_of(scope) not in HEALTH_PATHS:
                    raise Problem(503, "Too many connections are open already.", closes=True)
                if path_of(scope) not in OPEN_PATHS:
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
                method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
                seconds, generation = time.monotonic() - began, generation_of(scope)
                state.metrics.answered(method, path, sent["status"], seconds, generation)
                state.trace(method, path, sent["status"], seconds, Request(scope).headers, generation)


async def answer_problem(request: Request, error: Exception) -> Response:
    """Answers what a route raised."""
    return _answer(error, request.scope)


def _answer(error: Exception, scope: dict[str, Any]) -> JSONResponse:
    if isinstance(error, HTTPException):  # of the router: no such route, or not with this method
        error = Problem(error.status_code, f"{error.detail}.")
    problem = problem_of(error)
    if problem.status == 500:
        _log.error("A request failed: %s", type(error).__name__)
    said: dict[str, Any] = {"error": problem.reason}
    path = path_of(scope)
    # also of OpenAI's routes that there are none of; what is below /v1/models is TensorFlow Serving's
    if path in OBJECT_PATHS or (path.startswith("/v1/") and not path.startswith("/v1/models/")):
        kind = "invalid_request_error" if problem.status < 500 else "server_error"
        said["error"] = {"message": problem.reason, "type": kind, "param": None, "code": str(problem.status)}
    elif path in scoring_rest.TEXT_EMBEDDINGS_PATHS:
        said["error_type"] = scoring_rest.error_type(problem.status)
    return JSONResponse(said, problem.status, problem.headers)


async def health(request: Request) -> JSONResponse:
    """Answers that the server is alive."""
    return JSONResponse({"status": "alive"})


async def ready(request: Request) -> JSONResponse:
    """Answers whether a model can answer; otherwise whether one is being loaded, or why none can be."""
    models = request.app.state.server.models
    content = {"status": "ready", "models": models.states}
    if models.is_ready:
        return JSONResponse(content)
    content["status"] = "loading" if models.is_loading else "broken"
    why = f"The folder of models cannot be looked at: {models.trouble}." if models.trouble else "No model can answer."
    problem = Problem(503, "The models are being loaded." if models.is_loading else why)
    return JSONResponse({**content, "error": problem.reason}, problem.status, problem.headers)


async def metrics(request: Request) -> Response:
    """Answers what Prometheus reads."""
    state: ServerState = request.app.state.server
    return Response(await state.metrics.page(state.models), media_type=Metrics.content_type)
