"""Endpoints as the signatures of one LiteRT file (`.tflite`), which share its weights."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from zoo.export.endpoint import Endpoint
from zoo.export.formats import refuse
from zoo.export.graphs import named_function
from zoo.storage import check_path

MODEL_FILE = "model.tflite"


def write_files(folder: Path, endpoints: Mapping[str, Endpoint], weights: str) -> None:
    """Writes `model.tflite` with a signature for each endpoint.

    Args:
        folder: The folder to write to.
        endpoints: The endpoints by name.
        weights: "float32" or "int8": matrices in 8 bits, activations quantized at run time.

    Raises:
        ValueError: If LiteRT lacks an operation.
    """
    import tensorflow as tf

    module = tf.Module()
    signatures = {name: named_function(name, endpoint, keras_forms=True) for name, endpoint in endpoints.items()}
    module.functions = signatures
    module.held = [function.get_concrete_function().variables for function in signatures.values()]
    with tempfile.TemporaryDirectory() as place:
        check_path(place, "TMPDIR", saved_model=True)
        tf.saved_model.save(module, place, signatures=signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(place, signature_keys=list(signatures))
        # those of the runtime alone: others need a library that its package does not have
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        if weights == "int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        try:
            content = converter.convert()
        except Exception as error:  # noqa: BLE001 (the converter raises errors of many kinds)
            raise refuse("litert", ", ".join(endpoints), error) from error
    (folder / MODEL_FILE).write_bytes(content)
