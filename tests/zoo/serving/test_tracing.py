"""Traces: what the server hands over, when it does, and what OpenTelemetry makes of it."""

import asyncio
import importlib.util
import subprocess
import sys

import pytest

for name in ("msgpack", "starlette", "uvicorn", "httpx", "prometheus_client", "pydantic"):
    pytest.importorskip(name, reason="the extra serve is not installed")

import httpx  # noqa: E402

import zoo.serving  # noqa: E402
from zoo.extras import MissingExtraError  # noqa: E402
from zoo.serving.generations import Generation  # noqa: E402
from zoo.serving.tracing import Tracer, make_tracer  # noqa: E402

WITHOUT = importlib.util.find_spec("opentelemetry") is None
# a trace and a span of a client, as the W3C's recommendation has them
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Kept:
    """A tracer that keeps what it is told."""

    def __init__(self):
        self.spans, self.is_closed = [], False

    def answered(self, method, route, status, seconds, headers, generation):
        self.spans.append((method, route, status, headers.get("traceparent"), generation))

    def close(self):
        self.is_closed = True


def test_requests_are_handed_over(tmp_path):
    tracer = Kept()

    async def ask():
        app = zoo.serving.app(tmp_path, tracer=tracer)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                await client.get("/health", headers={"traceparent": "00-a-b-01"})
                await client.get("/secrets")
                await client.post("/v1/models/secret:predict", json={"instances": ["秘密"]})

    asyncio.run(ask())
    assert tracer.is_closed
    assert tracer.spans == [
        ("GET", "/health", 200, "00-a-b-01", None),
        ("GET", "other", 404, None, None),
        ("POST", "/v1/models/{name}:predict", 404, None, None),
    ]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_SERVICE_NAME": "a"},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "TRUE"},
    ],
)
def test_an_environment_that_asks_for_no_traces(environment):
    assert make_tracer(environment) is None


def test_nothing_is_imported_unless_it_is_asked_for():
    code = (
        "import sys, recipes\n"
        "from zoo.serving import application, tracing\n"
        "assert application.app and tracing.make_tracer({}) is None\n"
        "print([name for name in ('opentelemetry', 'keras.src', 'zoo.tasks') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_exporters_by_name():
    with pytest.raises(ValueError, match="OTEL_TRACES_EXPORTER must be one of none, otlp, console, got 'zipkin'"):
        make_tracer({"OTEL_TRACES_EXPORTER": "zipkin"})
    with pytest.raises(ValueError, match="OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf, got 'grpc'"):
        make_tracer({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})


@pytest.mark.skipif(not WITHOUT, reason="the extra trace is installed")
def test_without_the_extra():
    with pytest.raises(MissingExtraError, match=r'of the extra trace: pip install "keras-transformer-zoo\[trace\]"'):
        make_tracer({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"})


@pytest.mark.skipif(WITHOUT, reason="the extra trace is not installed")
def test_spans():
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = Tracer(provider)
    generation = Generation("chat", "dates", input_tokens=7, output_tokens=0)
    tracer.answered("POST", "/v1/chat/completions", 200, 2.0, {"traceparent": f"00-{TRACE}-{SPAN}-01"}, generation)
    tracer.answered("GET", "other", 503, 0.0, {})
    first, second = exporter.get_finished_spans()
    assert first.name == "POST /v1/chat/completions" and first.end_time - first.start_time == 2 * 10**9
    assert dict(first.attributes) == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "gen_ai.provider.name": "keras-transformer-zoo",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "dates",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 0,
    }
    assert first.context.trace_id == int(TRACE, 16) and first.parent.span_id == int(SPAN, 16)
    assert first.kind.name == "SERVER" and first.status.is_unset
    assert second.parent is None and not second.status.is_ok and second.attributes["error.type"] == "503"
    tracer.close()
