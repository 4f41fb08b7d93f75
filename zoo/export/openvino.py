"""Endpoints as files of OpenVINO, with a `.xml` and a `.bin` for each endpoint."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.export.endpoint import Endpoint
from zoo.export.formats import refuse
from zoo.export.graphs import named_function


def write_files(folder: Path, endpoints: Mapping[str, Endpoint], weights: str) -> None:
    """Writes `NAME.xml` and `NAME.bin` for each endpoint.

    Args:
        folder: The folder to write to.
        endpoints: The endpoints by name.
        weights: "float32" or "int8": matrices in 8 bits with a scale per column, computed in float32.

    Raises:
        ValueError: If OpenVINO cannot hold an endpoint.
    """
    import openvino

    for name, endpoint in endpoints.items():
        concrete = named_function(name, endpoint).get_concrete_function()
        try:
            model = openvino.convert_model(concrete)
            if weights == "int8":
                model = _compressed(model)
        except Exception as error:  # noqa: BLE001 (the converter raises errors of many kinds)
            raise refuse("openvino", name, error) from error
        openvino.save_model(model, folder / f"{name}.xml", compress_to_fp16=False)


def _compressed(model: Any) -> Any:
    import nncf

    return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
