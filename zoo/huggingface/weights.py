"""Tables of weight names, read in both directions: from a file into a backbone, and from a backbone to a file.

A table maps names of our layers to names of theirs, `{}` standing for the number of a block:

    {"encoder.{}.attention.query": "encoder.layer.{}.attention.self.query"}

Their `weight` is our `kernel` (transposed), `embeddings`, `gamma` or `scale`; their `bias` is our `bias` or `beta`.
Several of our layers that they store as one are a tuple of names: their outputs one after the other.
"""

import dataclasses
import types
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from layers.feed_forward import FeedForward
from zoo.backbones.low_rank import is_factor, kernel_with_update
from zoo.backbones.transformer import Transformer
from zoo.storage import TensorFiles, quote_key

LEAVES = {
    "kernel": "weight",
    "bias": "bias",
    "embeddings": "weight",
    "gamma": "weight",
    "beta": "bias",
    "scale": "weight",
}


@dataclasses.dataclass(frozen=True)
class InputsFirst:
    """Name of a layer that stores its kernel as we do, `(inputs, outputs)`, instead of transposed."""

    name: str


Table = Mapping[str | tuple[str, ...], str | InputsFirst]


@dataclasses.dataclass(frozen=True)
class Row:
    """A tensor of a file and the variables that are in it, side by side along their last axis.

    Args:
        name: Name of the tensor.
        variables: Keras variables, or what else has a shape and can be converted to an array.
        transposed: Whether the tensor is transposed.
    """

    name: str
    variables: tuple[Any, ...]
    transposed: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor in the file."""
        shape = (*self.variables[0].shape[:-1], sum(variable.shape[-1] for variable in self.variables))
        return tuple(reversed(shape)) if self.transposed else tuple(shape)

    def read(self, tensor: np.ndarray) -> None:
        """Gives the variables the values of the tensor."""
        if tensor.dtype.kind != "f":
            raise ValueError(f"{self.name} must hold floating-point numbers, got {tensor.dtype}.")
        tensor = tensor.T if self.transposed else tensor
        start = 0
        for variable in self.variables:
            variable.assign(tensor[..., start : start + variable.shape[-1]])
            start += variable.shape[-1]

    def write(self) -> np.ndarray:
        """Returns the tensor."""
        tensor = np.concatenate([keras.ops.convert_to_numpy(variable) for variable in self.variables], axis=-1)
        return np.ascontiguousarray(tensor.T if self.transposed else tensor)


def named_layers(backbone: Transformer) -> dict[str, Any]:
    """Returns all layers of a backbone that have weights, by the names that tables use.

    Args:
        backbone: The backbone.

    Example:

    >>> sorted(named_layers(backbone))[:3]
    ['encoder.0.attention.key', 'encoder.0.attention.output', 'encoder.0.attention.query']
    """
    layers = {"token_embedding": backbone.token_embedding.table, "token_factor": backbone.token_embedding.factor}
    if backbone.segment_embedding is not None:
        layers["segment_embedding"] = backbone.segment_embedding.table
    layers |= {"output_projection": backbone.output_projection, "pooler": backbone.pooler}
    if backbone.output_bias is not None:
        layers["output_bias"] = types.SimpleNamespace(bias=backbone.output_bias, weights=[backbone.output_bias])
    for side in ("encoder", "decoder"):
        stack = getattr(backbone, side)
        if stack is None:
            continue
        layers |= {f"{side}.{name}": getattr(stack, name) for name in ("position", "embedding_norm", "final_norm")}
        for index, block in enumerate(stack.blocks):
            layers |= {f"{side}.{index}.{name}": layer for name, layer in _block_layers(block).items()}
    return {name: layer for name, layer in layers.items() if layer is not None and layer.weights}


def _block_layers(block: Any) -> dict[str, Any]:
    layers = {}
    for name in ("attention", "cross_attention"):
        attention = getattr(block, name)
        if attention is not None:
            for part in ("query", "key", "value", "gate", "output"):
                layers[f"{name}.{part}"] = getattr(attention, f"{part}_projection")
            layers |= {f"{name}.query_norm": attention.query_norm, f"{name}.key_norm": attention.key_norm}
    if isinstance(block.feed_forward, FeedForward):
        for part in ("gate", "up", "down"):
            layers[f"feed_forward.{part}"] = getattr(block.feed_forward, part)
    else:
        layers["feed_forward"] = block.feed_forward
    layers |= {f"{name}_norm": norm for name, norm in block.norms.items()}
    layers |= {f"{name}_norm_after": norm for name, norm in block.norms_after.items()}
    return layers


def table_rows(layers: Mapping[str, Any], table: Table, prefix: str = "") -> list[Row]:
    """Returns the tensors of a file that layers are stored in.

    Args:
        layers: Layers by name.
        table: Names in the file.
        prefix: Put before each name.

    Raises:
        ValueError: If a layer is quantized, or its weights are not in the table.
    """
    rows, covered = [], set()
    for ours, theirs in table.items():
        stored_inputs_first = isinstance(theirs, InputsFirst)
        pattern = theirs.name if stored_inputs_first else theirs
        ours = (ours,) if isinstance(ours, str) else ours
        for number in _numbers(ours[0], layers):
            names = [name.replace("{}", number) for name in ours]
            if not set(names) <= set(layers):
                continue
            covered |= set(names)
            parts = [layers[name] for name in names]
            for leaf in _leaves(names[0], parts[0]):
                rows.append(
                    Row(
                        f"{prefix}{pattern.replace('{}', number)}.{LEAVES[leaf]}",
                        tuple(_variable(part, leaf) for part in parts),
                        leaf == "kernel" and not stored_inputs_first,
                    )
                )
    left = sorted(set(layers) - covered)
    if left:
        raise ValueError(f"This kind of model has no place for the weights of {', '.join(left)}.")
    return rows


def _numbers(pattern: str, layers: Iterable[str]) -> list[str]:
    """What stands for `{}`; one empty number where the pattern has none."""
    if "{}" not in pattern:
        return [""]
    before, after = pattern.split("{}")
    found = {
        name[len(before) : len(name) - len(after)]
        for name in layers
        if name.startswith(before) and name.endswith(after) and name[len(before) : len(name) - len(after)].isdigit()
    }
    return sorted(found, key=int)


def _leaves(name: str, layer: Any) -> list[str]:
    if getattr(layer, "quantization_mode", None) is not None:
        raise ValueError(f"{name} is quantized ({layer.quantization_mode}): write a model before it is quantized.")
    leaves = [leaf for leaf in LEAVES if getattr(layer, leaf, None) is not None and not _is_flag(layer, leaf)]
    own = [variable for variable in layer.weights if not is_factor(variable)]
    if len(leaves) != len(own):
        raise ValueError(f"The weights of {name} ({type(layer).__name__}) have no counterpart: {own}.")
    return leaves


def _variable(layer: Any, leaf: str) -> Any:
    # Keras adds a low-rank update in the precision of computations
    is_updated = leaf == "kernel" and getattr(layer, "lora_enabled", False)
    return kernel_with_update(layer) if is_updated else getattr(layer, leaf)


def _is_flag(layer: Any, leaf: str) -> bool:
    # LayerNorm has an option `scale` in addition to its weight `gamma`
    return isinstance(getattr(layer, leaf), bool)


def check_rows(rows: Iterable[Row], tensors: TensorFiles, ignored: Iterable[str]) -> None:
    """Checks that tensors and variables fit, and that none is left over on either side.

    Args:
        rows: What the model has.
        tensors: What the file has.
        ignored: Names in the file that are looked at elsewhere.

    Raises:
        ValueError: Naming what differs.
    """
    expected = {row.name: row.shape for row in rows}
    missing = [(name, shape) for name, shape in expected.items() if name not in tensors.shapes]
    problems = [f"{name} {shape} is not in {tensors.source}" for name, shape in missing]
    for name, shape in tensors.shapes.items():
        if name in expected and shape != expected[name]:
            problems.append(f"{name} has shape {shape} in {tensors.file_of(name)}, the model needs {expected[name]}")
        elif name not in expected and name not in ignored:
            problems.append(f"{quote_key(name)} {shape} is in {tensors.file_of(name)}, the model has no place for it")
    if problems:
        more = len(problems) - 20
        lines = problems[:20] + ([f"and {more} more"] if more > 0 else [])
        raise ValueError("The weights do not fit the configuration:\n  " + "\n  ".join(lines))
