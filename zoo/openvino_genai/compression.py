"""Matrices of a graph of OpenVINO in fewer bits."""

from typing import Any

from zoo.openvino_genai.positions import TABLE

WEIGHTS = ("float32", "int8", "int4")
# Inputs of a layer that share a scale in 4 bits; it must divide the widths of matrices.
_GROUPS = (128, 64, 32)


def compressed(model: Any, weights: str) -> Any:
    """Returns a graph whose matrices have 8 or 4 bits.

    Args:
        model: The graph.
        weights: "int8": a scale per output. "int4": a scale per output and group of inputs; embeddings and the last
            matrix have 8 bits.
    """
    import nncf

    others = nncf.IgnoredScope(patterns=[f".*{TABLE}.*"], validate=False)
    if weights == "int8":
        return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM, ignored_scope=others)
    widths = {
        node.input_value(1).get_shape()[1]
        for node in model.get_ops()
        if node.get_type_name() == "MatMul" and node.input_value(1).get_node().get_type_name() == "Constant"
    }
    groups = [size for size in _GROUPS if all(width % size == 0 for width in widths)]
    # -1: one scale for all inputs of an output
    size = groups[0] if groups else -1
    return nncf.compress_weights(
        model, mode=nncf.CompressWeightsMode.INT4_ASYM, group_size=size, ratio=1.0, ignored_scope=others
    )
