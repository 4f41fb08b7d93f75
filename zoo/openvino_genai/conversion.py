"""Functions of TensorFlow as graphs of OpenVINO."""

import tempfile
from pathlib import Path
from typing import Any

from zoo.openvino_genai.weights import parameters_for_variables, with_values


def converted(function: Any, output: str, *extensions: Any) -> Any:
    """Returns a function as an `openvino.Model` with its weights.

    Inputs have the names that they have in the signature of the function.

    Args:
        function: A concrete function of TensorFlow, which returns a dictionary with one tensor.
        output: The name of the tensor.
        *extensions: What the converter makes of operations that it does not know.
    """
    from openvino._offline_transformations import apply_moc_transformations
    from openvino.frontend import FrontEndManager

    graph, variables = parameters_for_variables(function)
    frontend = FrontEndManager().load_by_framework("tf")
    for extension in extensions:
        frontend.add_extension(extension)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "graph.pb")
        path.write_bytes(graph.SerializeToString())
        loaded = frontend.load(str(path))
        loaded.override_all_outputs([loaded.get_place_by_tensor_name(function.structured_outputs[output].name)])
        model = frontend.convert(loaded)
    with_values(model, variables)
    for parameter in model.get_parameters():
        name = parameter.get_friendly_name().split(":")[0]
        parameter.set_friendly_name(name)
        parameter.output(0).get_tensor().set_names({name})
    (result,) = model.get_results()
    result.output(0).get_tensor().set_names({output})
    apply_moc_transformations(model, cf=False)
    return model
