"""Endpoints from token ids to numbers, without strings, for runtimes other than TensorFlow's."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.export import Endpoint, Field
from zoo.generation.request import EXTRA_LENGTH
from zoo.generation.rows import RowDecoder

_LOGITS = "logits"
# Sizes of the arrays on which a file is compared with Python.
_ROWS, _LENGTH = 3, 7


def encoder_endpoints(
    task: Any, function: Callable[[dict[str, Any]], Any], outputs: tuple[Field, ...], **properties: Any
) -> dict[str, Any]:
    """Returns the endpoint `forward` of a task on one stack: a row of tokens for each text, or pair of texts.

    Args:
        task: The task.
        function: Function from a dictionary of token-level inputs to a dictionary of outputs.
        outputs: Fields of the outputs.
        **properties: Facts of the task that a caller needs, in addition to the special tokens.
    """
    backbone = task.backbone
    fields = tuple(
        Field(name, ("batch", "length"), dtype, description)
        for name, dtype, description in (
            ("token_ids", "int32", "ids of tokens, special ones included"),
            ("padding_mask", "bool", "true where a token is real"),
        )
    )
    fields += tuple(field for field in backbone.optional_fields() if field.name not in ("token_ids", "padding_mask"))

    def forward(*tensors: Any) -> Any:
        return function({field.name: tensor for field, tensor in zip(fields, tensors, strict=True)})

    tokenizer = task.tokenizer
    known = {
        "max_length": task.longest,
        **{f"{name}_id": getattr(tokenizer, f"{name}_id") for name in ("start", "end", "pad", "mask")},
        **properties,
    }
    ids, mask = _example(backbone.config.vocabulary_size, task.longest)
    example = {"token_ids": ids, "padding_mask": mask, "segment_ids": np.zeros_like(ids)}
    example = {field.name: example[field.name] for field in fields}
    return {"forward": Endpoint(forward, fields, outputs, "Outputs of rows of tokens.", known, example)}


def writer_endpoints(generator: Any, max_length: int | None, max_new_tokens: int | None) -> dict[str, Endpoint]:
    """Returns the endpoints for a loop that generates token by token, with caches as inputs and outputs.

    * of a decoder: `prefill(token_ids, lengths, index, *state)` feeds tokens of prompts, all but the last of each,
      whole or in pieces, and returns the state; each row has its own position;
    * of an encoder-decoder: `encode(encoder_token_ids, encoder_padding_mask, capacity)` returns the first state and
      what the decoder reads of the source;
    * `step(token_ids, index, ...)` feeds one token of each row and returns "logits" of the next and the new state.

    The names of a new state are those of the old one after "next_". `run_model.py` of an export has the loop.

    Args:
        generator: The `TextGenerator` of the task.
        max_length, max_new_tokens: As for `generate`.

    Raises:
        ValueError: If the next step needs more than the caches, or `generation` more than a greedy search.
    """
    backbone, chosen = generator.backbone, generator.chosen(max_length=max_length, max_new_tokens=max_new_tokens)
    if chosen.processors or chosen.stop:
        raise ValueError(
            "The decoding loop of this format is greedy, without the processors and stops of the model's generation: "
            "load the model with from_preset(..., generation=None), and apply them in your own loop."
        )
    options = generator.options(**chosen.options(), jit_compile=False)
    is_limited = chosen.max_length is not None or chosen.max_new_tokens is not None
    preprocessor = generator.preprocessor
    properties = {
        "max_length": chosen.max_length or generator.longest,
        "max_new_tokens": options.max_new_tokens,
        "start_tokens": preprocessor.start_tokens,
        "end_ids": [int(index) for index in options.end_ids],
        "extra_length": None,
    }
    if backbone.config.architecture != "encoder_decoder":
        return _decoder(backbone, properties)
    properties |= {"start_id": preprocessor.require_decoder_start()}
    return _encoder_decoder(backbone, properties | {"extra_length": None if is_limited else EXTRA_LENGTH})


def _decoder(backbone: Any, properties: dict[str, Any]) -> dict[str, Endpoint]:
    decoder = RowDecoder(backbone)
    state = tuple(Field(each.name, each.shape, each.dtype, "state: part of the caches") for each in decoder.tensors)
    rows = ("rows",)
    index = Field("index", rows, "int32", "number of tokens that each row has been fed")
    begun = (
        Field("token_ids", ("rows", "length"), "int32", "tokens of prompts, all but the last of each, padded behind"),
        Field("lengths", rows, "int32", "number of these tokens; rows with 0 stay as they are"),
        index,
    )
    taken = (Field("token_ids", rows, "int32", "the token of each row that is not fed yet"), index)

    def prefill(token_ids: Any, lengths: Any, index: Any, *state: Any) -> Any:
        return _next(decoder.tensors, decoder.begin(token_ids, lengths, index, list(state)))

    def step(token_ids: Any, index: Any, *state: Any) -> Any:
        logits, new = backbone.decode_step(token_ids, index, decoder.packed(state), {})
        return {_LOGITS: logits, **_next(decoder.tensors, keras.tree.flatten(new))}

    ids, mask = _example(backbone.config.vocabulary_size, backbone.config.max_length)
    lengths, nothing = mask.sum(axis=1).astype("int32"), np.zeros(_ROWS, "int32")
    sizes = {"rows": _ROWS, "slots": _LENGTH}
    empty = {}
    for each in decoder.tensors:
        sizes["slots"] = min(_LENGTH, each.most_slots or _LENGTH)
        empty[each.name] = np.zeros([sizes.get(size, size) for size in each.shape], each.dtype)
    held = {name: np.random.default_rng(0).normal(size=array.shape).astype("float32") for name, array in empty.items()}
    properties = {**properties, "state": {each.name: each.most_slots for each in decoder.tensors}}
    given = {"token_ids": ids, "lengths": lengths, "index": nothing, **empty}
    one = {"token_ids": ids[:, 0], "index": lengths - 1, **held}
    logits = _logits(backbone)
    after = _following(state)
    return {
        "prefill": Endpoint(prefill, (*begun, *state), after, "Feeds prompts.", example=given),
        "step": Endpoint(step, (*taken, *state), (logits, *after), "Feeds a token.", properties, one),
    }


def _encoder_decoder(backbone: Any, properties: dict[str, Any]) -> dict[str, Endpoint]:
    import tensorflow as tf

    if getattr(getattr(backbone, "decoder", None), "position_by_length", None) is not None:
        raise ValueError("The model's positions depend on the length of the whole text, which steps do not know.")
    given = (
        Field(
            "encoder_token_ids",
            ("rows", "source_length"),
            "int32",
            "ids of tokens of sources, padded behind, perhaps with -1",
        ),
        Field("encoder_padding_mask", ("rows", "source_length"), "bool", "true where a token is real"),
        Field("capacity", (), "int32", "number of tokens of the longest output, its start included"),
    )
    trees: list[Any] = []

    def begin(token_ids: Any, mask: Any, capacity: Any) -> Any:
        # the mask is returned: one that is only handed on has no name of its own in OpenVINO
        mask = ops.logical_and(mask, token_ids >= 0)
        inputs = {"encoder_token_ids": ops.maximum(token_ids, 0), "encoder_padding_mask": mask}
        trees[:] = backbone.start_decoding(inputs, capacity)
        return keras.tree.flatten(trees)

    specs = [tf.TensorSpec(field.sizes, field.dtype) for field in given]
    tensors = tf.function(begin, input_signature=specs, autograph=False).get_concrete_function().outputs
    paths = [path for path, _ in keras.tree.flatten_with_path(trees)]
    # symbols of a graph that is gone: only their structure is needed
    structure = keras.tree.map_structure(lambda tensor: 0, list(trees))
    kinds = ("slots", "source_length")
    fields = tuple(
        Field(
            "_".join(map(str, path[1:] if path[0] == 0 else ("source", *path[1:]))),
            ("rows", *(kinds[path[0]] if size is None else size for size in tensor.shape[1:])),
            tensor.dtype.name,
            "state: part of the caches" if path[0] == 0 else "of the source",
        )
        for path, tensor in zip(paths, tensors, strict=True)
    )
    names = [field.name for field in fields]
    state = tuple(field for field, path in zip(fields, paths, strict=True) if path[0] == 0)
    taken = (
        Field("token_ids", ("rows",), "int32", "the token of each row that is not fed yet"),
        Field("index", ("rows",), "int32", "number of tokens that each row has been fed"),
    )

    def encode(*inputs: Any) -> Any:
        return dict(zip(names, begin(*inputs), strict=True))

    def step(token_ids: Any, index: Any, *tensors: Any) -> Any:
        old, constants = keras.tree.pack_sequence_as(structure, list(tensors))
        logits, new = backbone.decode_step(token_ids, index, old, constants)
        return {_LOGITS: logits, **_next(state, keras.tree.flatten(new))}

    ids, mask = _example(backbone.config.vocabulary_size, backbone.config.max_length)
    example = {"encoder_token_ids": ids, "encoder_padding_mask": mask, "capacity": np.int32(_LENGTH)}
    started = encode(*(tf.constant(example[field.name], field.dtype) for field in given))
    one = {"token_ids": ids[:, 0], "index": np.zeros(_ROWS, "int32")}
    one |= {name: np.asarray(tensor) for name, tensor in started.items()}
    properties = {**properties, "state": [field.name for field in state]}
    outputs = (_logits(backbone), *_following(state))
    return {
        "encode": Endpoint(encode, given, fields, "Reads sources.", example=example),
        "step": Endpoint(step, (*taken, *fields), outputs, "Feeds a token.", properties, one),
    }


def _logits(backbone: Any) -> Field:
    return Field(_LOGITS, ("rows", backbone.config.vocabulary_size), "float32", "of the next token")


def _next(fields: Any, tensors: list[Any]) -> Mapping[str, Any]:
    return {f"next_{field.name}": tensor for field, tensor in zip(fields, tensors, strict=True)}


def _following(state: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(Field(f"next_{field.name}", field.shape, field.dtype, field.description) for field in state)


def _example(vocabulary_size: int, longest: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows of several lengths, with the first ids of the vocabulary left out, among which special tokens are."""
    length = min(_LENGTH, longest or _LENGTH)
    ids = np.random.default_rng(0).integers(min(5, vocabulary_size - 1), vocabulary_size, (_ROWS, length), "int32")
    mask = np.arange(length) < np.array([[length], [1], [(length + 1) // 2]])
    return np.where(mask, ids, 0).astype("int32"), mask
