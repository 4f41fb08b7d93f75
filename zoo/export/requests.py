"""Requests to the endpoints of an export, to warm up a server and for the model card."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zoo.export.endpoint import Endpoint, Field

# where TensorFlow Serving looks for them, in the folder of further assets
WARMUP_FILE = "tf_serving_warmup_requests"


@dataclasses.dataclass(frozen=True)
class Request:
    """A request of a client: an endpoint with its inputs.

    Args:
        endpoint: Name of the endpoint.
        inputs: A value for each input, nested lists of strings or numbers.
    """

    endpoint: str
    inputs: Mapping[str, Any]

    def tensors(self, endpoint: Endpoint) -> dict[str, Any]:
        """Returns the inputs as tensors of the types that the endpoint takes."""
        import tensorflow as tf

        return {field.name: tf.constant(self.inputs[field.name], field.dtype) for field in endpoint.inputs}


def requests_of(endpoints: Mapping[str, Endpoint], examples: Sequence[Any]) -> list[Request]:
    """Returns requests with examples, for all endpoints with the required inputs of the first one.

    Inputs with a default get the default. For the first endpoint there is a request with one example, and one with all.

    Args:
        endpoints: The endpoints of an export.
        examples: A string for each row; a sequence of strings if the first endpoint has several inputs.

    Raises:
        ValueError: If the number of texts of an example is not that of the inputs.
    """
    if not len(examples):
        return []
    default, first = next(iter(endpoints.items()))
    names = [field.name for field in required_inputs(first)]
    rows = [[example] if isinstance(example, (str, bytes)) else [*example] for example in examples]
    for place, row in enumerate(rows):
        if len(row) != len(names) or not all(isinstance(text, (str, bytes)) for text in row):
            raise ValueError(
                f"examples[{place}] must be a text for each of {', '.join(names)}, got {examples[place]!r}."
            )
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    alone = {name: column[:1] for name, column in columns.items()}
    some = [Request(default, with_defaults(first, alone))] if len(rows) > 1 else []
    return some + [
        Request(name, with_defaults(endpoint, columns))
        for name, endpoint in endpoints.items()
        if required_inputs(endpoint) == required_inputs(first)
    ]


def required_inputs(endpoint: Endpoint) -> tuple[Field, ...]:
    """Returns the inputs of an endpoint that have no default."""
    return tuple(field for field in endpoint.inputs if field.default is None)


def with_defaults(endpoint: Endpoint, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a value for each input of an endpoint: the given one, or its default."""
    return {field.name: values.get(field.name, field.default) for field in endpoint.inputs}


def write_warmup(path: str | os.PathLike[str], endpoints: Mapping[str, Endpoint], requests: Iterable[Request]) -> None:
    """Writes requests that TensorFlow Serving runs to warm up, before it reports that a version is ready.

    The file is a TFRecord of `tensorflow.serving.PredictionLog`. The messages of `tensorflow-serving-api` are
    not used, because they register names in the process that only one library may register. Three nested fields are
    needed: the bytes are written here (https://protobuf.dev/programming-guides/encoding) around TensorFlow's tensors.

    Args:
        path: The file.
        endpoints: The endpoints of the export.
        requests: The requests, at most 1000, the number that the server reads.

    Reference:
        https://www.tensorflow.org/tfx/serving/saved_model_warmup
    """
    import tensorflow as tf

    with tf.io.TFRecordWriter(os.fspath(path)) as writer:
        for request in requests:
            tensors = request.tensors(endpoints[request.endpoint])
            writer.write(_prediction_log(request.endpoint, tensors))


def _prediction_log(signature: str, tensors: Mapping[str, Any]) -> bytes:
    """A `PredictionLog` whose field 6, a `PredictLog`, has as field 1 a `PredictRequest`.

    Of the request, field 1 is a `ModelSpec` whose field 3 is the signature; field 2 are the inputs, by name.
    """
    import tensorflow as tf

    request = _message(1, _message(3, signature.encode()))
    for name, tensor in tensors.items():
        value = tf.make_tensor_proto(tensor).SerializeToString()
        request += _message(2, _message(1, name.encode()) + _message(2, value))
    return _message(6, _message(1, request))


def _message(field: int, content: bytes) -> bytes:
    """A field of a protobuf that holds a string, bytes or a message: its tag, the length and the content."""
    return bytes([field << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    parts = []
    while number >= 128:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])
