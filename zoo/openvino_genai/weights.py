"""Weights of graphs of OpenVINO: they go around its converter, which reads each of them many times."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def parameters_for_variables(function: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the graph of a function in which what was read from variables is an input.

    Args:
        function: A concrete function of TensorFlow.

    Returns:
        A `tf.compat.v1.GraphDef`, and the variable of each further input by its name.

    Raises:
        ValueError: If the graph does something else with a variable than read it.
    """
    import tensorflow as tf

    graph = function.graph.as_graph_def()
    captured = {id(handle): placeholder.op.name for handle, placeholder in function.graph.captures}
    handles = {captured[id(variable.handle)]: variable for variable in function.graph.variables}
    variables: dict[str, Any] = {}
    nodes = []
    for node in graph.node:
        if node.name in handles:
            continue
        if node.op == "ReadVariableOp" and node.input[0] in handles:
            variable = variables[node.name] = handles[node.input[0]]
            node.op = "Placeholder"
            node.ClearField("input")
            node.attr.clear()
            node.attr["dtype"].type = variable.dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(variable.shape.as_proto())
        if any(name.lstrip("^").split(":")[0] in handles for name in node.input):
            raise ValueError(f"the operation {node.op} ({node.name}) takes a variable")
        nodes.append(node)
    return tf.compat.v1.GraphDef(node=nodes, library=graph.library, versions=graph.versions), variables


def with_values(model: Any, variables: Mapping[str, Any]) -> None:
    """Puts the values of variables in the place of inputs. A matrix of products has its outputs on its first axis then.

    Compression and kernels of OpenVINO know weights in this order. A table that is also looked up in keeps its order.

    Args:
        model: The graph, changed in place.
        variables: Variables by the names of inputs.
    """
    import openvino
    from openvino import opset13

    constants: dict[Any, Any] = {}

    def constant(variable: Any, turned: bool) -> Any:
        key = (id(variable), turned)
        if key not in constants:
            value = variable.numpy()
            value = np.ascontiguousarray(value.T) if turned else value
            constants[key] = openvino.op.Constant(value, shared_memory=True)
        return constants[key].output(0)

    for parameter in list(model.get_parameters()):
        variable = variables.get(parameter.get_friendly_name().split(":")[0])
        if variable is None:
            continue
        for target in parameter.output(0).get_target_inputs():
            node = target.get_node()
            is_product = node.get_type_name() == "MatMul" and target.get_index() == 1 and len(variable.shape) == 2
            if is_product and not node.get_attributes()["transpose_b"]:
                turned = opset13.matmul(
                    node.input_value(0), constant(variable, True), node.get_attributes()["transpose_a"], True
                )
                turned.set_friendly_name(node.get_friendly_name())
                node.output(0).replace(turned.output(0))
            else:
                target.replace_source_output(constant(variable, False))
        model.remove_parameter(parameter)
    model.validate_nodes_and_infer_types()
