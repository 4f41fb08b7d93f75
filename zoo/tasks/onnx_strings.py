"""An endpoint of ONNX that takes strings: tokenizer, special tokens and padding in one file with the model."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from zoo.export import Endpoint, Field
from zoo.export.onnx_tokenizers import IDS, SPLITS, OnnxTokenizer


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
        ValueError: If the format or the task does not take strings, or the tokenizer cannot be written. The message
            says why.
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
    elif kind not in ("TextClassifier", "TextEmbedder"):
        reason = f"what a {kind} returns are places in texts, which the operators of tokenizers do not give"
    elif getattr(preprocessor, "pairs", False) or getattr(preprocessor, "stride", None) is not None:
        reason = "rows of two texts, and texts in several windows, are not written in ONNX"
    elif getattr(preprocessor, "default_prompt", None) is not None:
        reason = "its default prompt stands before each text"
    elif forward.inputs[2:] and preprocessor.segments is False:
        reason = "its rows have no segments, which the model takes"
    if reason is not None:
        raise ValueError(f"strings must be False for this {kind}: {reason}. forward takes token ids.")
    tokenizer = OnnxTokenizer(task.tokenizer) if strings is True else OnnxTokenizer(task.tokenizer, list(strings))
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
