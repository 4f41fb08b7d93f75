"""The requests that an export brings for servers, so that the first one of a client finds everything warm."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from zoo.serving.exported_model import ExportedModel
from zoo.serving.whole_texts import DEFAULT_SIGNATURE, OF_THE_WRITER

# Where TensorFlow Serving looks for them, and how many it runs at most. The name is not taken from
# `zoo.export.requests`: a process of a model starts without Keras.
RECORDED_FILE = Path("assets.extra", "tf_serving_warmup_requests")
MOST_RECORDED = 1000

_log = logging.getLogger(__name__)


def replay(model: ExportedModel, directory: str | Path) -> int:
    """Lets a model answer the requests that its export brings; returns how many it has answered.

    Requests other than to `Predict`, and those that fail, are counted in the log: the model can answer others.

    Args:
        model: The model.
        directory: Its folder. Without a file of requests nothing is done.

    Example:

    >>> replay(ExportedModel("runs/dates/export/dates/1"), "runs/dates/export/dates/1")
    3

    Reference:
        https://www.tensorflow.org/tfx/serving/saved_model_warmup
    """
    file = Path(directory) / RECORDED_FILE
    if not file.is_file():
        return 0
    answered = failed = 0
    try:
        for record in tf.data.TFRecordDataset([str(file)]).take(MOST_RECORDED).as_numpy_iterator():
            try:
                name, inputs = _asked(model, record)
                model.call(name, **inputs)
                answered += 1
            except (DecodeError, LookupError, TypeError, ValueError, tf.errors.OpError):
                failed += 1
    except tf.errors.OpError as error:  # the file ends in the middle, or is none
        _log.error("The recorded requests could not be read to their end: %s", type(error).__name__)
    if failed:
        _log.error("%d of %d recorded requests failed.", failed, answered + failed)
    return answered


def _asked(model: ExportedModel, record: bytes) -> tuple[str, dict[str, np.ndarray]]:
    """Name of an endpoint, and inputs."""
    request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
    name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    name = model.default if name == DEFAULT_SIGNATURE else name
    if name not in model.endpoints or name in OF_THE_WRITER:
        raise LookupError("There is no such endpoint.")
    return name, {key: tf.make_ndarray(proto) for key, proto in request.inputs.items()}
