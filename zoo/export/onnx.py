"""Endpoints as ONNX files, one for each endpoint, which share one file of weights."""

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.export.endpoint import Endpoint, Field
from zoo.export.formats import refuse
from zoo.export.graphs import named_function

# Operators of ONNX 1.13 (December 2022), which all runtimes of today know.
OPSET = 18
WEIGHTS_FILE = "weights.bin"
# Smaller tensors stay in the file of the model: many are shapes, which runtimes look at when they load it.
_LEAST_BYTES = 1024
# Where a tensor begins, so that a runtime can map the file into memory.
_ALIGNMENT = 4096


def write_files(
    folder: Path, endpoints: Mapping[str, Endpoint], weights: str, text_inputs: Mapping[str, Any] | None = None
) -> None:
    """Writes `NAME.onnx` for each endpoint, and `weights.bin`.

    Args:
        folder: The folder to write to.
        endpoints: The endpoints by name.
        weights: "float32" or "int8": matrices in 8 bits with a scale per column, activations quantized at run time.
        text_inputs: A `zoo.tasks.exporting.TextInput` by the name of each further endpoint.

    Raises:
        ValueError: If ONNX cannot hold an endpoint.
    """
    models = {name: to_onnx(name, endpoint) for name, endpoint in endpoints.items()}
    models |= {name: to_onnx(name, part.rows) for name, part in (text_inputs or {}).items()}
    if weights == "int8":
        models = {name: _quantized(model) for name, model in models.items()}
    for name, part in (text_inputs or {}).items():
        part.tokenizer.prepend(models[name])
    with open(folder / WEIGHTS_FILE, "wb") as file:
        places: dict[bytes, int] = {}
        for name, model in models.items():
            _move_weights(model, file, places)
            (folder / f"{name}.onnx").write_bytes(model.SerializeToString())


def to_onnx(name: str, endpoint: Endpoint) -> Any:
    """Returns an endpoint as an `onnx.ModelProto`.

    Args:
        name: Name of the endpoint.
        endpoint: The endpoint.

    Raises:
        ValueError: If ONNX cannot hold the endpoint.
    """
    concrete = named_function(name, endpoint).get_concrete_function()
    try:
        model = _converted(concrete)
    except Exception as error:  # noqa: BLE001 (the converter raises errors of many kinds)
        raise refuse("onnx", name, error) from error
    for values, fields in ((model.graph.input, endpoint.inputs), (model.graph.output, endpoint.outputs)):
        _name_sizes(values, fields)
    return model


def _converted(concrete: Any) -> Any:
    import tensorflow as tf
    from tf2onnx import optimizer, tf_loader, tfonnx

    tensors = {tensor.name: tensor.op.name for tensor in concrete.inputs if tensor.dtype != tf.resource}
    inputs = list(tensors)
    # dictionaries are flattened in the order of their keys
    order = sorted(concrete.structured_outputs)
    outputs = {tensor.name: key for key, tensor in zip(order, concrete.outputs, strict=True)}
    with tf.device("/cpu:0"):
        graph_def = tf_loader.from_function(concrete, inputs, list(outputs))
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(graph_def, name="")
            found = tfonnx.process_tf_graph(
                graph,
                opset=OPSET,
                input_names=inputs,
                output_names=list(outputs),
                tensors_to_rename={**tensors, **outputs},
                custom_op_handlers={"FloorMod": (_floor_mod, [])},
            )
    # Those that tidy up. The one that joins neighbours reads a 0 in a shape, "as the input has it", as if it were of
    # the input of the neighbour; runtimes do what it does when they load a file.
    steps = {
        "fold_constants": optimizer.ConstFoldOptimizer,
        "loop_optimizer": optimizer.LoopOptimizer,
        "merge_duplication": optimizer.MergeDuplicatedNodesOptimizer,
        "remove_identity": optimizer.IdentityOptimizer,
    }
    return optimizer.optimize_graph(found, optimizers=steps).make_model("a model of keras-transformer-zoo")


def _floor_mod(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """Writes a remainder with the sign of the divisor, which tf2onnx gives that of the dividend for integers."""
    from onnx import TensorProto

    x, y = node.input
    shapes, types, outputs = node.output_shapes, node.output_dtypes, list(node.output)
    graph.remove_node(name)
    options = {"name": name, "outputs": outputs, "shapes": shapes, "dtypes": types}
    if types[0] in (TensorProto.INT32, TensorProto.INT64):
        graph.make_node("Mod", [x, y], **options)
        return
    whole = graph.make_node("Floor", graph.make_node("Div", [x, y]).output)
    graph.make_node("Sub", [x, graph.make_node("Mul", [whole.output[0], y]).output[0]], **options)


def _name_sizes(values: Any, fields: tuple[Field, ...]) -> None:
    """Names the sizes that vary as the description does."""
    shapes = {field.name: field.shape for field in fields}
    for value in values:
        dims = value.type.tensor_type.shape
        del dims.dim[:]
        for size in shapes[value.name]:
            dim = dims.dim.add()
            if isinstance(size, str):
                dim.dim_param = size
            else:
                dim.dim_value = size


def _quantized(model: Any) -> Any:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as place:
        plain, small = Path(place, "plain.onnx"), Path(place, "small.onnx")
        onnx.save(model, plain)
        # activations of attention are no weights: a product of two of them stays as it is
        options = {"MatMulConstBOnly": True}
        # Processors with AVX2 and without VNNI add two products of 8 bits in 16, where large ones are cut off: of 8
        # bits, weights take 7. That costs no time; without it, outputs of such machines are far from those of others.
        quantize_dynamic(
            plain, small, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True, extra_options=options
        )
        return onnx.load(small)


def _move_weights(model: Any, file: Any, places: dict[bytes, int]) -> None:
    """Moves large tensors of a model to a file, where equal ones are once.

    Args:
        model: The `onnx.ModelProto`, which is changed.
        file: The file.
        places: Where tensors are, by their digest.
    """
    import onnx

    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.STRING:
            continue
        if not tensor.HasField("raw_data"):
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name))
        content = tensor.raw_data
        if len(content) < _LEAST_BYTES:
            continue
        digest = hashlib.sha256(content).digest()
        if digest not in places:
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
            places[digest] = file.tell()
            file.write(content)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", WEIGHTS_FILE), ("offset", places[digest]), ("length", len(content))):
            tensor.external_data.add(key=key, value=str(value))
