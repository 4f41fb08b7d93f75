"""What the server counts, for Prometheus: requests and tokens under the names that OpenTelemetry gives them.

Reference:
    https://opentelemetry.io/docs/specs/semconv/http/http-metrics, .../gen-ai/gen-ai-metrics and, for how such names are
    written, https://prometheus.io/docs/practices/naming
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from zoo.serving.generations import Generation
from zoo.serving.served_models import NoSuchModelError, NotReadyError, ServedModels
from zoo.serving.worker_client import WorkerError

# What is read must arrive within ten seconds, as Prometheus is usually set up, also where a worker is stuck.
_STATE_SECONDS = 5.0
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
_ASKED = ("gen_ai_operation_name", "gen_ai_request_model")


class Metrics:
    """Counters of one server.

    Example:

    >>> metrics.answered("POST", "/v1/completions", 200, 0.12, None)
    >>> print(await metrics.page(models))
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        given: dict[str, Any] = {"registry": self.registry}
        labels = ("http_request_method", "http_route", "http_response_status_code")
        self._seconds = Histogram(
            "http_server_request_duration_seconds", "Time of a request.", labels, buckets=_SECONDS, **given
        )
        self._open = Gauge("http_server_active_requests", "Requests that are being answered.", **given)
        self._generations = Histogram(
            "gen_ai_server_request_duration_seconds",
            "Time of a request to a language model.",
            _ASKED,
            buckets=_SECONDS,
            **given,
        )
        self._first = Histogram(
            "gen_ai_server_time_to_first_token_seconds",
            "Time to the first piece of a text.",
            _ASKED,
            buckets=_SECONDS,
            **given,
        )
        self._usage = Histogram(
            "gen_ai_client_token_usage",
            "Tokens of a request.",
            (*_ASKED, "gen_ai_token_type"),
            buckets=_TOKENS,
            **given,
        )
        self._models = _Models()
        self.registry.register(self._models)

    @property
    def open_requests(self) -> Gauge:
        """Number of requests that are being answered."""
        return self._open

    def answered(
        self, method: str, route: str, status: int, seconds: float, generation: Generation | None = None
    ) -> None:
        """Counts an answer.

        Args:
            method: Method of HTTP.
            route: The route, without names that users give.
            status: Status of HTTP.
            seconds: From the first byte of the request to the last of the answer.
            generation: What a model has written for it; None if it was asked for nothing of that kind.
        """
        self._seconds.labels(method, route, str(status)).observe(seconds)
        if generation is None:
            return
        asked = generation.operation, generation.model
        self._generations.labels(*asked).observe(seconds)
        if generation.first_seconds is not None:
            self._first.labels(*asked).observe(generation.first_seconds)
        for kind, count in (("input", generation.input_tokens), ("output", generation.output_tokens)):
            if count is not None:
                self._usage.labels(*asked, kind).observe(count)

    async def page(self, models: ServedModels) -> bytes:
        """Returns what Prometheus reads, with the state of the models at this moment."""
        names = models.names
        states = await asyncio.gather(*(_state_of(models, name) for name in names))
        self._models.families = _families(dict(zip(names, states, strict=True)), models.restarts)
        return generate_latest(self.registry)


class _Models:
    """What is read of models, as it was when a page was asked for: what has gone is not said again."""

    def __init__(self) -> None:
        self.families: list[Metric] = []

    def collect(self) -> Iterable[Metric]:
        return self.families


def _families(states: dict[str, dict[str, Any] | None], restarts: int) -> list[Metric]:
    ready = GaugeMetricFamily("zoo_model_ready", "Whether a model can answer.", labels=["model"])
    texts = GaugeMetricFamily(
        "zoo_texts", "Texts that a model has, by what happens to them.", labels=["model", "state"]
    )
    tokens = CounterMetricFamily("zoo_tokens", "Tokens of a process of a model.", labels=["model", "kind"])
    batches = CounterMetricFamily("zoo_batches", "Batches of an endpoint.", labels=["model", "endpoint"])
    rows = CounterMetricFamily("zoo_batch_rows", "Rows of all batches of an endpoint.", labels=["model", "endpoint"])
    for name, state in states.items():
        ready.add_metric([name], state is not None)
        if state is None:
            continue
        for kind in ("waiting", "filling", "writing"):
            texts.add_metric([name, kind], state.get(kind, 0))
        for kind in ("tokens_written", "tokens_fed", "tokens_shared"):
            if kind in state:
                tokens.add_metric([name, kind.removeprefix("tokens_")], state[kind])
        for endpoint, (count, of_batches) in state["batches"].items():
            batches.add_metric([name, endpoint], count)
            rows.add_metric([name, endpoint], of_batches)
    ended = CounterMetricFamily("zoo_restarts", "Processes that ended by themselves.", value=restarts)
    return [ready, texts, tokens, batches, rows, ended]


async def _state_of(models: ServedModels, name: str) -> dict[str, Any] | None:
    """Loads and counts of a model; None of one that does not answer."""
    try:
        return await models.served(name).worker.state(_STATE_SECONDS)
    except (NoSuchModelError, NotReadyError, WorkerError):
        return None
