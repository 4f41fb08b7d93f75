"""A SavedModel of this project, loaded: its endpoints as functions of arrays."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

# Not `zoo.export.DESCRIPTION_FILE`: a process of a model starts without Keras.
DESCRIPTION_FILE = "signature.json"


class ExportedModel:
    """The endpoints of an export.

    Args:
        directory: The folder with `saved_model.pb` and `signature.json`.

    Attributes:
        endpoints: What `signature.json` says of each, by name.
        default: Name of the endpoint "serving_default".

    Raises:
        OSError, ValueError: If it is no export of this project, or one that TensorFlow cannot load.

    Example:

    >>> ExportedModel("runs/dates/export").call("serve", texts=np.array([b"1st of May 1999"], "object"))
    {'texts': array([b'1999-05-01'], dtype=object)}
    """

    def __init__(self, directory: str | Path) -> None:
        # its operations are those of SavedModels with a tokenizer
        import tensorflow_text  # noqa: F401

        description = json.loads((Path(directory) / DESCRIPTION_FILE).read_text(encoding="utf-8"))
        self.default, self.endpoints = description["default"], description["endpoints"]
        # its functions do not keep their variables
        # TensorFlow takes a path for a pattern of file names: from within the folder any path will do
        with contextlib.chdir(directory):
            self._model = tf.saved_model.load(".")
        self._signatures = dict(self._model.signatures)
        missing = sorted(set(self.endpoints) - set(self._signatures))
        if missing:
            raise ValueError(
                f"{directory} must have a signature for each endpoint of its description, got none of {missing}."
            )

    def call(self, endpoint: str, **inputs: Any) -> dict[str, np.ndarray]:
        """Returns the outputs of an endpoint as arrays.

        Args:
            endpoint: Its name.
            **inputs: A value for each of its inputs: an array, or what makes one of the type of the input.

        Raises:
            tensorflow.errors.OpError: What the endpoint raises.
        """
        outputs = self.run(endpoint, self.tensors(endpoint, inputs))
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    def tensors(self, endpoint: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns inputs as tensors of the types that the endpoint takes."""
        dtypes = {field["name"]: field["dtype"] for field in self.endpoints[endpoint]["inputs"]}
        return {name: tf.convert_to_tensor(value, dtypes[name]) for name, value in inputs.items()}

    def run(self, endpoint: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the outputs of an endpoint as tensors, which stay where they are."""
        return self._signatures[endpoint](**tensors)
