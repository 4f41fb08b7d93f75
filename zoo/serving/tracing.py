"""A span of OpenTelemetry for each request, where the environment asks for traces; nothing of it is imported otherwise.

Reference:
    https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables,
    https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from zoo.extras import import_extra
from zoo.serving.generations import Generation

# One of these asks for traces.
_EXPORTER = "OTEL_TRACES_EXPORTER"
_ASKING = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", _EXPORTER)
# How spans go to a collector: the exporter of another protocol is another package.
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
_HTTP = "http/protobuf"
_EXPORTERS = {
    "otlp": ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "OTLPSpanExporter"),
    "console": ("opentelemetry.sdk.trace.export", "ConsoleSpanExporter"),
}
_NAME = "keras-transformer-zoo"


class Tracer:
    """Tells each request as a span: route, status, model, tokens; no texts, and no names that users give.

    Args:
        provider: A `TracerProvider` of OpenTelemetry.

    Example:

    >>> tracer = make_tracer(os.environ)
    >>> tracer.answered("POST", "/v1/completions", 200, 0.12, {}, Generation("text_completion", "dates"))
    """

    def __init__(self, provider: Any) -> None:
        self._provider, self._tracer = provider, provider.get_tracer(_NAME)
        self._trace = import_extra("opentelemetry.trace", "trace")
        self._propagation = import_extra("opentelemetry.trace.propagation.tracecontext", "trace")

    def answered(
        self,
        method: str,
        route: str,
        status: int,
        seconds: float,
        headers: Mapping[str, str],
        generation: Generation | None = None,
    ) -> None:
        """Tells a request.

        Args:
            method, route, status, seconds, generation: As for `zoo.serving.metrics.Metrics.answered`.
            headers: Those of the request. `traceparent` says which span of the client it belongs to.
        """
        attributes = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
        }
        if generation is not None:
            counted = {
                "gen_ai.usage.input_tokens": generation.input_tokens,
                "gen_ai.usage.output_tokens": generation.output_tokens,
            }
            attributes["gen_ai.provider.name"] = _NAME
            attributes |= {"gen_ai.operation.name": generation.operation, "gen_ai.request.model": generation.model}
            attributes |= {name: count for name, count in counted.items() if count is not None}
        if status >= 400:
            attributes["error.type"] = str(status)
        ended = time.time_ns()
        span = self._tracer.start_span(
            f"{method} {route}",
            context=self._propagation.TraceContextTextMapPropagator().extract(dict(headers)),
            kind=self._trace.SpanKind.SERVER,
            attributes=attributes,
            start_time=ended - int(seconds * 1e9),
        )
        if status >= 500:
            span.set_status(self._trace.StatusCode.ERROR)
        span.end(ended)

    def close(self) -> None:
        """Sends what has not been sent."""
        self._provider.shutdown()


def make_tracer(environment: Mapping[str, str]) -> Tracer | None:
    """Returns what traces requests, as the environment says; None where it asks for no traces.

    Args:
        environment: The environment. The library reads what else there is: OTEL_SERVICE_NAME, samplers, headers.

    Raises:
        ValueError: If it names another exporter or protocol than this server has.
        MissingExtraError: If the extra `trace` is not installed.
    """
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or not any(map(environment.get, _ASKING)):
        return None
    name = environment.get(_EXPORTER) or "otlp"
    if name == "none":
        return None
    if name not in _EXPORTERS:
        raise ValueError(f"{_EXPORTER} must be one of none, {', '.join(_EXPORTERS)}, got {name!r}")
    for variable in _PROTOCOLS:
        if name == "otlp" and environment.get(variable, _HTTP) != _HTTP:
            raise ValueError(f"{variable} must be {_HTTP}, got {environment[variable]!r}")
    module, kind = _EXPORTERS[name]
    exporter = getattr(import_extra(module, "trace"), kind)()
    sdk, export = (
        import_extra(each, "trace") for each in ("opentelemetry.sdk.trace", "opentelemetry.sdk.trace.export")
    )
    resources = import_extra("opentelemetry.sdk.resources", "trace")
    named = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": _NAME}
    provider = sdk.TracerProvider(resource=resources.Resource.create(named))
    provider.add_span_processor(export.BatchSpanProcessor(exporter))
    return Tracer(provider)
