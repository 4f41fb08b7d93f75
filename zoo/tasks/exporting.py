"""Exports of tasks: what each format holds of a task, what it refuses, and strings in ONNX."""

import dataclasses
import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from layers.errors import refuse_names
from zoo.export import (
    GGUF,
    PROGRAM_FORMATS,
    RUNTIME_FORMATS,
    SAVED_MODEL,
    Endpoint,
    Field,
    require_format,
    require_plain_weights,
    write_runtime_format,
    write_saved_model,
)
from zoo.export.onnx_tokenizers import IDS, SPLITS, OnnxTokenizer
from zoo.export.sample_texts import SAMPLE_TEXTS
from zoo.gguf.export import write_gguf_folder
from zoo.openvino_genai import write_openvino_genai
from zoo.preprocessing.rows import shorten

# arguments of `generate` that no graph holds
_NOT_IN_GRAPHS = {"grammar": "the server, whose requests may each have a response_format or structured_outputs"}


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
    if format in PROGRAM_FORMATS:
        given = {"examples": list(examples), "strings": strings, "attention": attention, **options}
        beside = sorted(name for name, value in given.items() if value)
        if beside:
            raise ValueError(f"{beside[0]} must be left out with the format {format!r}, got {given[beside[0]]!r}.")
        task.preprocessor.require_tokenizer("export()")
        (write_gguf_folder if format == GGUF else write_openvino_genai)(directory, task, weights)
        return
    endpoints = task.endpoints if format == SAVED_MODEL else task.token_endpoints
    taken = inspect.signature(endpoints)
    try:
        taken.bind(**options)
    except TypeError as error:
        refuse_names("export()", sorted(options.keys() - taken.parameters.keys()), _NOT_IN_GRAPHS)
        own = ["format", "examples", "weights", "strings", "attention"]
        allowed = ", ".join([*own, *taken.parameters])
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


@dataclasses.dataclass(frozen=True)
class TextInput:
    """An endpoint that takes strings in ONNX.

    Args:
        endpoint: The endpoint as callers see it.
        rows: The endpoint after the tokenizer. It takes the ids of all texts, and where those of each text are.
        tokenizer: The tokenizer.
    """

    endpoint: Endpoint
    rows: Endpoint
    tokenizer: OnnxTokenizer


def text_inputs(task: Any, format: str, strings: bool | Sequence[str]) -> dict[str, TextInput]:
    """Returns the endpoint `serve`, which takes texts and returns what `forward` does.

    A text longer than the model is cut if the preprocessor of the task truncates. Otherwise it is an error of the
    runtime: "indices element out of data bounds".

    Args:
        task: The task.
        format: The format.
        strings: Texts for which the tokenizer of the file must give the same ids; True for samples in many languages.

    Raises:
        ValueError: If the format or the task does not take strings, the tokenizer cannot be written, or a preprocessor
            of one's own makes other rows. The message says why.
    """
    if format != "onnx":
        raise ValueError(
            f"strings must be False for the format {format!r}, which has no operators for tokenizers: its endpoints "
            "take token ids. The formats 'onnx' and 'tf_saved_model' take strings."
        )
    preprocessor, kind = task.preprocessor, type(task).__name__
    forward = task.token_endpoints().get("forward")
    reason = None
    if forward is None:
        reason = "texts are written in a loop, outside of the file"
    elif any("length" in field.shape for field in forward.outputs):
        reason = f"what a {kind} returns are places in texts, which the operators of tokenizers do not give"
    elif len(preprocessor.text_names) > 1 or getattr(preprocessor, "stride", None) is not None:
        reason = "rows of two texts, and texts in several windows, are not written in ONNX"
    elif getattr(preprocessor, "default_prompt", None) is not None:
        reason = "its default prompt stands before each text"
    elif forward.inputs[2:] and getattr(preprocessor, "segments", None) is False:
        reason = "its rows have no segments, which the model takes"
    if reason is not None:
        raise ValueError(f"strings must be False for this {kind}: {reason}. forward takes token ids.")
    compared = list(SAMPLE_TEXTS if strings is True else strings)
    tokenizer = OnnxTokenizer(task.tokenizer, compared)
    other = _text_of_other_rows(task, compared, [field.name for field in forward.inputs])
    if other is not None:
        raise ValueError(
            f"strings must be False for this {kind}: its preprocessor, a {type(preprocessor).__name__}, makes another "
            f"row of {shorten(other)} than the operators of ONNX. forward takes token ids."
        )
    flat = (
        Field(IDS, ("tokens",), "int32", "ids of all texts"),
        Field(SPLITS, ("splits",), "int64", "where those of each text begin and end"),
    )
    texts = Field("texts", ("batch",), "string", "texts")

    def serve(ids: Any, splits: Any) -> Any:
        rows = _rows(ids, splits, preprocessor)
        return forward.function(*(rows[field.name] for field in forward.inputs))

    described = Endpoint(serve, (texts,), forward.outputs, "Outputs of texts.", forward.properties)
    return {"serve": TextInput(described, Endpoint(serve, flat, forward.outputs), tokenizer)}


def _text_of_other_rows(task: Any, texts: Sequence[str], names: Sequence[str]) -> str | None:
    """The first text of which a preprocessor, which may be one's own, makes another row than `_rows`."""
    import tensorflow as tf

    preprocessor = task.preprocessor
    special = [token for token in preprocessor.special_tokens().values() if token is not None]
    for text in texts:
        ids = task.tokenizer.tokenize([text])
        if len(ids[0]) + len(special) > preprocessor.sequence_length:
            continue  # cut, or an error
        rows = _rows(ids.values, ids.row_splits, preprocessor)
        expected = preprocessor.inputs(preprocessor.tokens(tf.constant([text])))
        if not {"padding_mask", *names} <= expected.keys():
            return text
        real, found = (np.asarray(each["padding_mask"][0], "bool") for each in (expected, rows))
        for name in names:
            values = (np.asarray(each[name])[0][mask] for each, mask in ((expected, real), (rows, found)))
            if not np.array_equal(*values):
                return text
    return None


def _rows(ids: Any, splits: Any, preprocessor: Any) -> dict[str, Any]:
    """Token-level inputs of texts with special tokens, padded; operations that ONNX has."""
    import tensorflow as tf

    special = preprocessor.special_tokens()
    start, end = special["start_id"], special["end_id"]
    before, added = int(start is not None), int(start is not None) + int(end is not None)
    most = preprocessor.sequence_length - added
    begins, lengths = tf.cast(splits[:-1], tf.int32), tf.cast(splits[1:] - splits[:-1], tf.int32)
    if preprocessor.truncate:
        lengths = tf.minimum(lengths, most)
    else:
        # ONNX has no assertions: a text that is too long is looked up where nothing is
        is_long = tf.cast(tf.reduce_any(lengths > most), tf.int32)
        lengths = lengths + tf.gather(tf.zeros(1, tf.int32), is_long)
    column = tf.range(tf.reduce_max(lengths) + added)[tf.newaxis]
    place, count = column - before, lengths[:, tf.newaxis]
    inside = (place >= 0) & (place < count)
    # behind all ids stands the padding
    known = tf.concat([ids, [preprocessor.pad_id]], axis=0)
    token_ids = tf.gather(known, tf.where(inside, begins[:, tf.newaxis] + place, tf.shape(ids)[0]))
    if start is not None:
        token_ids = tf.where(place < 0, start, token_ids)
    if end is not None:
        token_ids = tf.where(place == count, end, token_ids)
    mask = column < count + added
    return {"token_ids": token_ids, "padding_mask": mask, "segment_ids": tf.zeros_like(token_ids)}
