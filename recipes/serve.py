"""Serves models through the APIs of TensorFlow Serving, OpenAI, Text Embeddings Inference and Cohere.

python -m recipes.serve runs/dates
python -m recipes.serve SmolLM2-135M-Instruct.Q4_1.gguf
python -m recipes.serve models --port 8080 --host 0.0.0.0

The page at / of the server tries the models in a browser.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from pathlib import Path

from recipes.common.config import run_recipe, setting
from recipes.common.errors import ConfigError, RecipeError, errors_of
from recipes.common.saved_models import TASKS
from recipes.serving.saved_source import Source, default_cache, exported, require_source
from zoo.extras import require_extra
from zoo.serving import application, http_server
from zoo.serving.logs import set_up_logs
from zoo.serving.model_folders import find_versions
from zoo.serving.options import LOCAL_HOSTS, Batching, Limits
from zoo.serving.tracing import make_tracer

# The environment variable that holds the key which requests must bring.
KEY_VARIABLE = "ZOO_API_KEY"
# the names in `zoo.tokenizers.TOOL_STYLES`, which is not asked: it needs TensorFlow, and seconds
TOOL_STYLES = ("hermes", "llama3", "mistral")


@dataclasses.dataclass(frozen=True)
class ServeConfig:
    """Serves models. With the environment variable ZOO_API_KEY requests must bring this key."""

    models: str = setting(
        help="A run folder, an export, a model's folder of versions, or a folder of such models. Or a saved model, "
        "which is exported first: a directory, also of the Transformers library, a file .gguf, a name of "
        "`zoo presets`, hf://owner/name, or package://name.",
        words="first",
        offers="paths",
    )
    task: str | None = setting(
        None, f"Of a saved model: one of {', '.join(TASKS)}; null for the kind that was saved.", offers=TASKS
    )
    tools: str | None = setting(
        None,
        f"Of a saved model that chats: the style in which it calls tools, one of {', '.join(TOOL_STYLES)}. "
        "null: that of its chat template, if it has one.",
        offers=TOOL_STYLES,
    )
    cache: str | None = setting(
        None, "Folder that keeps the exports of saved models. null: one in the user's folder of caches.", offers="paths"
    )
    host: str = setting("127.0.0.1", "Address to listen at. An address other than this machine's own needs a key.")
    port: int = setting(8501, "Port of HTTP.", least=0, most=65535)
    grpc_port: int | None = setting(None, "Port of gRPC, often 8500. null: no gRPC.", least=0, most=65535)
    client_header: str | None = setting(
        None,
        "Header in which a proxy in front of the server names the client, such as X-Forwarded-For. null: clients are "
        "told apart by their addresses. Clients share the rows of a model.",
    )
    interval: float = setting(2.0, "Seconds between two checks for new versions.", above=0)
    drain: float = setting(30.0, "Seconds that running requests have to finish after SIGTERM.", above=0)
    batching: Batching = setting(Batching())
    limits: Limits = setting(Limits())


def main(config: ServeConfig) -> None:
    """Runs the recipe until the process is told to end.

    Args:
        config: The configuration.
    """
    api_key = os.environ.get(KEY_VARIABLE) or None
    if api_key is not None and not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
        # no header could have it; files of secrets often end with a new line
        raise ConfigError(f"{KEY_VARIABLE} must be printable ASCII characters without spaces and ends of lines")
    if api_key is None and config.host not in LOCAL_HOSTS:
        raise ConfigError(
            f"host must be one of {', '.join(LOCAL_HOSTS)} without a key, got {config.host!r}: set {KEY_VARIABLE}"
        )
    if config.client_header is not None and not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", config.client_header):
        raise ConfigError(f"client_header must be the name of a header, got {config.client_header!r}")
    folder = Path(config.models)
    with errors_of("models"):
        is_export = folder.is_dir() and bool(find_versions(folder))
        if not is_export:
            require_source(config.models)
    if config.task not in (None, *TASKS):
        raise ConfigError(f"task must be one of {', '.join(TASKS)}, or null, got {config.task!r}")
    if config.tools not in (None, *TOOL_STYLES):
        raise ConfigError(f"tools must be one of {', '.join(TOOL_STYLES)}, or null, got {config.tools!r}")
    for name, value in (("task", config.task), ("tools", config.tools)):
        if is_export and value is not None:
            raise ConfigError(f"{name} must be null for models that have been exported, got {value!r}")
    require_extra("serve", "Serving")
    try:
        tracer = make_tracer(os.environ)
        listener = http_server.listen(config.host, config.port)
        if config.grpc_port is not None:
            http_server.listen(config.host, config.grpc_port).close()
    except ValueError as error:
        raise ConfigError(str(error)) from error
    set_up_logs()
    http_server.allow_many_connections()
    failures: list[RecipeError] = []

    async def export() -> Path:
        if failures:  # the server ends, while requests still wait
            raise failures[0]
        try:
            with errors_of("models"):
                return await exported(Source(config.models, config.task, config.tools), cache)
        except RecipeError as error:
            failures.append(error)
            server.should_exit = True
            raise

    cache = Path(config.cache or default_cache()).expanduser()
    app = application.app(
        folder if is_export else export,
        limits=config.limits,
        batching=config.batching,
        api_key=api_key,
        interval=config.interval,
        drain=config.drain,
        grpc_address=None if config.grpc_port is None else (config.host, config.grpc_port),
        client_header=config.client_header,
        tracer=tracer,
    )
    logging.getLogger(__name__).info("http://%s:%d is where to ask.", *listener.getsockname()[:2])
    server = http_server.HttpServer(app, config.limits, config.drain, app.state.begin_end)
    server.run([listener])
    if failures:
        raise failures[0]


if __name__ == "__main__":
    run_recipe(main, ServeConfig, "serve", prints_results=True)
