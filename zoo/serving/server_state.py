"""What all routes of the server share."""

from __future__ import annotations

import dataclasses
import hmac
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from starlette.requests import Request

from zoo.serving.metrics import Metrics
from zoo.serving.options import Limits
from zoo.serving.problems import Problem
from zoo.serving.served_models import ServedModels
from zoo.serving.tracing import Tracer


@dataclasses.dataclass
class ServerState:
    """Models, limits and counters of a server.

    Args:
        models: The models.
        limits: What it takes.
        metrics: What it counts.
        api_key: The key that requests must bring; None for none.
        client_header: The header in which a proxy names the client; None if there is no proxy.
        tracer: Takes each request that has been answered, see `zoo.serving.tracing`; None for no traces.
    """

    models: ServedModels
    limits: Limits
    metrics: Metrics
    api_key: str | None = None
    client_header: str | None = None
    tracer: Tracer | None = None

    def trace(self, *answered: Any) -> None:
        """Hands a request that has been answered to the tracer, if there is one.

        Args:
            *answered: As for `zoo.serving.tracing.Tracer.answered`.
        """
        if self.tracer is not None:
            self.tracer.answered(*answered)

    def client_of(self, request: Request) -> str:
        """Returns who asks: the address of the connection, or what the proxy says.

        Args:
            request: The request.
        """
        named = [] if self.client_header is None else request.headers.getlist(self.client_header)
        return self.client_named(named, request.client.host if request.client is not None else "")

    def client_named(self, named: Sequence[str], address: str) -> str:
        """Returns who asks.

        Args:
            named: Values of the header in which a proxy names the client.
            address: The address of the connection.
        """
        # each proxy adds what it has seen behind what it was told, which anybody may have written
        return address if self.client_header is None else ",".join(named).rpartition(",")[2].strip()

    def require_key(self, authorization: str | None) -> None:
        """Raises a `Problem` unless a header `Authorization: Bearer KEY` has the key."""
        if self.api_key is None:
            return
        kind, _, given = (authorization or "").partition(" ")
        # in a time that does not tell how much of it is right
        is_right = hmac.compare_digest(given.strip().encode(), self.api_key.encode())
        if kind.lower() != "bearer" or not is_right:
            raise Problem(401, "The header Authorization must have the key of this server: Bearer KEY.")

    def require_rows(self, values: Iterable[Any]) -> None:
        """Raises a `Problem` if one of the inputs has too many rows."""
        if any(len(value) > self.limits.rows for value in values if isinstance(value, list) or _has_rows(value)):
            raise Problem(413, f"A request must have at most {self.limits.rows} rows.")

    def require_short(self, texts: Iterable[bytes]) -> None:
        """Raises a `Problem` if a text is too long; a character has at most four bytes."""
        limit = self.limits.text_characters
        if any(len(text) > 4 * limit for text in texts):
            raise Problem(413, f"A text must have at most {limit} characters.")


def _has_rows(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0
