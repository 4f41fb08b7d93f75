"""The server of HTTP: connections that keep it waiting are closed, and it ends when told, not before its answers."""

from __future__ import annotations

import asyncio
import math
import resource
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from zoo.serving.options import Limits

# The key of the scope of a request on a connection that is one too many.
BEYOND = "zoo.is_beyond_connections"
# Most bytes of the head of a request.
_HEAD_BYTES = 2**16
# Bytes that a client must read within `write_seconds` of what waits for it.
_LEAST_READ = 2**14
# Open files that are asked for, as each connection needs one; many systems allow 1,024 unless asked.
_OPEN_FILES = 65_536


class HttpServer(uvicorn.Server):
    """A server that says when it begins to end.

    Args:
        app: The application.
        limits: How long clients may take.
        drain: Seconds that requests have to end after SIGTERM.
        on_end: Called when it begins to end, before requests are waited for.

    Example:

    >>> HttpServer(app, Limits(), 30.0, app.state.begin_end).run([listen("127.0.0.1", 8501)])
    """

    def __init__(self, app: Any, limits: Limits, drain: float, on_end: Callable[[], Any]) -> None:
        config = uvicorn.Config(
            app,
            http=_protocol(limits),
            ws="none",
            access_log=False,  # requests hold names that users give
            log_config=None,
            proxy_headers=False,  # what clients of this machine write there is not who they are
            timeout_graceful_shutdown=math.ceil(drain),
            h11_max_incomplete_event_size=_HEAD_BYTES,
        )
        super().__init__(config)
        self._on_end = on_end

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Begins to end. SIGTERM asks for just that, so the program has succeeded; uvicorn would end by the signal."""
        if sig == signal.SIGTERM:
            self.should_exit = True
        else:
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers what is being asked, and ends."""
        self._on_end()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that is bound, before anything that takes long is begun.

    Args:
        host: Address to listen at.
        port: Port; 0 for a free one.

    Raises:
        ValueError: If the port is in use, or the address none of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ValueError(f"host and port must be free to listen at, got {host}:{port}: {error.strerror}") from error


def allow_many_connections() -> None:
    """Lets this process open as many files as it may, up to a number that is enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _protocol(limits: Limits) -> type[H11Protocol]:
    class Protocol(H11Protocol):
        """Closes a connection on which no request comes, or whose client does not read what it asked for."""

        _looking: asyncio.TimerHandle | None = None
        _writing: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                app = self.app

                async def refused(scope: Any, receive: Any, send: Any) -> None:
                    await app({**scope, BEYOND: True}, receive, send)

                self.app = refused
            self._look(...)

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._looking, self._writing):
                if timer is not None:
                    timer.cancel()
            super().connection_lost(exc)

        def _look(self, last: Any) -> None:
            # what is complete may still be on its way to the client
            is_idle = self.cycle is None or (
                self.cycle.response_complete and not self.transport.get_write_buffer_size()
            )
            if is_idle and self.cycle is last:
                self.transport.abort()
            else:
                self._looking = self.loop.call_later(limits.read_seconds, self._look, self.cycle if is_idle else ...)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._await_reader(math.inf)

        def _await_reader(self, before: float) -> None:
            left = self.transport.get_write_buffer_size()
            if left > before - _LEAST_READ:
                self.transport.abort()
            else:
                self._writing = self.loop.call_later(limits.write_seconds, self._await_reader, left)

        def resume_writing(self) -> None:
            if self._writing is not None:
                self._writing.cancel()
            super().resume_writing()

    return Protocol
