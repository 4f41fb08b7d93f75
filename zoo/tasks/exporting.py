"""Exports of tasks: what each format holds of a task, and what it refuses."""

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.export import (
    GGUF,
    RUNTIME_FORMATS,
    SAVED_MODEL,
    require_format,
    require_plain_weights,
    write_runtime_format,
    write_saved_model,
)
from zoo.gguf.export import write_gguf_folder
from zoo.tasks.onnx_strings import text_inputs


def export_task(
    task: Any,
    directory: str | os.PathLike[str],
    format: str,
    *,
    examples: Sequence[Any],
    weights: str,
    strings: bool | Sequence[str],
    attention: bool,
    options: Mapping[str, Any],
) -> None:
    """Writes a task for production, see `Task.export`.

    Args:
        task: The task.
        directory, format, examples, weights, strings, attention: See `Task.export`.
        options: Arguments of the endpoints.
    """
    require_format(format)
    if format == GGUF:
        given = {"examples": list(examples), "strings": strings, "attention": attention, **options}
        beside = sorted(name for name, value in given.items() if value)
        if beside:
            raise ValueError(f"{beside[0]} must be left out with the format 'gguf', got {given[beside[0]]!r}.")
        task.preprocessor.require_tokenizer("export()")
        write_gguf_folder(directory, task, weights)
        return
    endpoints = task.endpoints if format == SAVED_MODEL else task.token_endpoints
    try:
        inspect.signature(endpoints).bind(**options)
    except TypeError as error:
        own = ["format", "examples", "weights", "strings", "attention"]
        allowed = ", ".join([*own, *inspect.signature(endpoints).parameters])
        raise TypeError(
            f"Arguments of export() of a {type(task).__name__} must be among {allowed}, got {sorted(options)}."
        ) from error
    tokenizer = task.preprocessor.require_tokenizer("export()")
    if format == SAVED_MODEL:
        if weights != "float32" or strings:
            raise ValueError(
                "A SavedModel takes strings and has the weights of the model: weights and strings are for the "
                f"formats {', '.join(RUNTIME_FORMATS)}; quantize() the model for fewer bits."
            )
        made = endpoints(**options)
        # not about attention, which refuses long texts
        requests = task.example_requests(made, examples)
        if attention:
            made["attention"] = task.attention_endpoint()
        write_saved_model(
            directory,
            made,
            variables=task.active_variables,
            resources=tokenizer.trackables,
            save_assets=task.save_assets,
            title=type(task).__name__,
            requests=requests,
        )
        return
    if attention:
        raise ValueError(f"attention must be False with the format {format!r}, got True.")
    if examples:
        raise ValueError(f"examples must be empty with the format {format!r}, got {len(examples)}.")
    require_plain_weights(task, format, weights)
    write_runtime_format(
        directory,
        endpoints(**options),
        format=format,
        weights=weights,
        text_inputs=text_inputs(task, format, strings) if strings else None,
        save_assets=task.save_assets,
    )
