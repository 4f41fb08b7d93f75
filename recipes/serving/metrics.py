"""What the server counts, for Prometheus."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from recipes.serving.served_models import NoSuchModelError, NotReadyError, ServedModels
from recipes.serving.worker_client import WorkerError

# What is read must arrive within ten seconds, as Prometheus is usually set up, also where a worker is stuck.
_STATE_SECONDS = 5.0
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counters of one server.

    Example:

    >>> metrics.answered("/v1/completions", 200, 0.12)
    >>> print(await metrics.page(models))
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        given = {"registry": self.registry, "namespace": "zoo"}
        self._requests = Counter("requests", "Requests that were answered.", ["route", "status"], **given)
        self._seconds = Histogram("request_seconds", "Time of a request.", ["route"], buckets=_SECONDS, **given)
        self._first = Histogram("first_text_seconds", "Time to the first piece of a text.", buckets=_SECONDS, **given)
        self._open = Gauge("open_requests", "Requests that are being answered.", **given)
        self._ready = Gauge("model_ready", "Whether a model can answer.", ["model"], **given)
        self._load = Gauge("texts", "Texts that a model has, by what happens to them.", ["model", "state"], **given)
        self._tokens = Gauge("tokens_total", "Tokens of a process of a model.", ["model", "kind"], **given)
        self._batches = Gauge("batches_total", "Batches of an endpoint.", ["model", "endpoint"], **given)
        self._rows = Gauge("batch_rows_total", "Rows of all batches of an endpoint.", ["model", "endpoint"], **given)
        self._restarts = Gauge("restarts_total", "Processes that ended by themselves.", **given)

    @property
    def open_requests(self) -> Gauge:
        """Number of requests that are being answered."""
        return self._open

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Counts an answer.

        Args:
            route: The route, without names that users give.
            status: Status of HTTP.
            seconds: From the first byte of the request to the last of the answer.
        """
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def first_text(self, seconds: float) -> None:
        """Counts the time to the first piece of a text."""
        self._first.observe(seconds)

    async def page(self, models: ServedModels) -> bytes:
        """Returns what Prometheus reads, with the state of the models at this moment."""
        names = models.names
        states = dict(zip(names, await asyncio.gather(*(_state_of(models, name) for name in names)), strict=True))
        self._restarts.set(models.restarts)
        # what was said of models that have gone is not said again
        for gauge in (self._ready, self._load, self._tokens, self._batches, self._rows):
            gauge.clear()
        for name, state in states.items():
            self._ready.labels(name).set(state is not None)
            if state is None:
                continue
            for kind in ("waiting", "filling", "writing"):
                self._load.labels(name, kind).set(state.get(kind, 0))
            for kind in ("tokens_written", "tokens_fed", "tokens_shared"):
                if kind in state:
                    self._tokens.labels(name, kind.removeprefix("tokens_")).set(state[kind])
            for endpoint, (batches, rows) in state["batches"].items():
                self._batches.labels(name, endpoint).set(batches)
                self._rows.labels(name, endpoint).set(rows)
        return generate_latest(self.registry)


async def _state_of(models: ServedModels, name: str) -> dict[str, Any] | None:
    """Loads and counts of a model; None of one that does not answer."""
    try:
        return await models.served(name).worker.state(_STATE_SECONDS)
    except (NoSuchModelError, NotReadyError, WorkerError):
        return None
