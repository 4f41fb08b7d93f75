"""Endpoints in the formats of runtimes other than TensorFlow's."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from zoo.export.agreement import measured_agreement
from zoo.export.endpoint import Endpoint
from zoo.export.folder import DESCRIPTION_FILE, export_folder, write_description
from zoo.export.litert import write_files as write_litert
from zoo.export.onnx import write_files as write_onnx
from zoo.export.openvino import write_files as write_openvino

_WRITERS = {"onnx": write_onnx, "litert": write_litert, "openvino": write_openvino}


def write_runtime_format(
    directory: str | os.PathLike[str],
    endpoints: Mapping[str, Endpoint],
    *,
    format: str,
    weights: str = "float32",
    text_inputs: Mapping[str, Any] | None = None,
    save_assets: Callable[[str], None] | None = None,
) -> None:
    """Writes token-level endpoints for the runtime of a format, whole or not at all.

    The folder holds the files of the format, `signature.json`, the assets in `assets.extra`, and `run_model.py`, which
    runs the model in Python with NumPy and the runtime alone. Each endpoint with an example is run after it is written.
    Under "agreement", `signature.json` records by how much its outputs differ from those of Python.

    Args:
        directory: The directory to write. An export that it holds is replaced.
        endpoints: The endpoints by name.
        format: One of `RUNTIME_FORMATS`.
        weights: "float32", or "int8" for matrices in 8 bits.
        text_inputs: With the format "onnx", a `zoo.tasks.exporting.TextInput` by the name of each further endpoint.
        save_assets: Writes further files to a folder.

    Raises:
        ValueError: If the format cannot express an endpoint. The message says why.
        FileExistsError: If the directory exists and does not hold an export.

    Example:

    >>> write_runtime_format("exported", model.token_endpoints(), format="onnx", weights="int8")
    """
    runner = Path(__file__).with_name("run_model.py")
    options = {"text_inputs": text_inputs} if text_inputs else {}
    described = {**endpoints, **{name: part.endpoint for name, part in (text_inputs or {}).items()}}
    with export_folder(directory, described, save_assets=save_assets, format=format, weights=weights) as folder:
        (folder / runner.name).write_bytes(runner.read_bytes())
        _WRITERS[format](folder, endpoints, weights, **options)
        description = json.loads((folder / DESCRIPTION_FILE).read_text(encoding="utf-8"))
        agreement = measured_agreement(folder, endpoints, exact=weights == "float32")
        write_description(folder, {**description, "agreement": agreement})
