"""Tables of weight names, read in both directions: from a file into a backbone, and from a backbone to a file.

A table maps names of our layers to names of theirs, `{}` standing for the number of a block:

    {"encoder.{}.attention.query": "encoder.layer.{}.attention.self.query"}

Their `weight` is our `kernel` (transposed), `embeddings`, `gamma` or `scale`; their `bias` is our `bias` or `beta`.
Several of our layers that they store as one are a tuple of names: their outputs one after the other. Whatever is stored
otherwise is a `Stored` in place of their name.
"""

import dataclasses
import itertools
import types
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import ml_dtypes
import numpy as np

from layers.attention.checks import GLOBAL_PROJECTIONS
from layers.feed_forward import FeedForward
from layers.keras_internals import sublayers
from layers.mixture_of_experts import MixtureOfExperts
from zoo.backbones.adapters import is_factor
from zoo.backbones.transformer import Transformer
from zoo.config import TransformerConfig
from zoo.huggingface.config_keys import CHOICE_OF
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
class Stored:
    """How layers are stored that are not `name.weight`, transposed, and `name.bias`.

    Experts `feed_forward.experts.up` are stacked, `(experts, outputs, inputs)`, or with a second `{}` in the name,
    which stands for the number of an expert, one tensor each.

    Args:
        name: Name of the layer.
        transposed: Whether kernels are stored as `(outputs, inputs)`, the other way round than ours.
        groups: In how many groups the outputs of each of several layers are cut, where the first groups of all layers
            come first, then the second ones: the number of heads for queries, keys and values head by head, that of
            columns for columns that take turns.
        weight: What follows the name of a kernel, an embedding or the factor of a norm.
        bias: What follows the name of a bias.
        leading_axes: Number of further axes of size 1 of the tensor, before ours.
        middle_axis: Whether there is an axis of size 1 between the two of a kernel, as in a convolution of each
            feature.

    Example:

    >>> gates_and_values_in_turns = Stored(
    ...     "layers.{}.mlp.experts.gate_up_proj", transposed=False, groups=64, weight="", bias="_bias"
    ... )
    """

    name: str
    transposed: bool = True
    groups: int = 1
    weight: str = ".weight"
    bias: str = ".bias"
    leading_axes: int = 0
    middle_axis: bool = False


Table = Mapping[str | tuple[str, ...], str | Stored]


@dataclasses.dataclass(frozen=True)
class Row:
    """A tensor of a file and the variables that are in it, side by side along their last axis.

    Args:
        name: Name of the tensor.
        variables: Keras variables, or what else has a shape and can be converted to an array.
        transposed: Whether the last two axes of the tensor are exchanged.
        groups: In how many groups each variable is cut, see `Stored`.
        leading_axes: Number of further axes of size 1 of the tensor, before those of the variables.
        middle_axis: Whether there is an axis of size 1 before the last one.
    """

    name: str
    variables: tuple[Any, ...]
    transposed: bool
    groups: int = 1
    leading_axes: int = 0
    middle_axis: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor in the file."""
        shape = (*self.variables[0].shape[:-1], sum(variable.shape[-1] for variable in self.variables))
        shape = (*shape[:-2], shape[-1], shape[-2]) if self.transposed else tuple(shape)
        shape = (*shape[:-1], 1, shape[-1]) if self.middle_axis else shape
        return (1,) * self.leading_axes + shape

    def read(self, tensor: np.ndarray) -> None:
        """Gives the variables the values of the tensor."""
        if not (tensor.dtype.kind == "f" or tensor.dtype == ml_dtypes.bfloat16):
            raise ValueError(f"{self.name} must hold floating-point numbers, got {tensor.dtype}.")
        tensor = tensor[..., 0, :] if self.middle_axis else tensor
        tensor = np.swapaxes(tensor, -1, -2) if self.transposed else tensor
        tensor = tensor.reshape(*tensor.shape[:-1], self.groups, -1)
        start = 0
        for variable in self.variables:
            width = variable.shape[-1] // self.groups
            part, start = tensor[..., start : start + width], start + width
            # in its precision; of a mapped file a copy: no variable depends on it any more
            dtype = ml_dtypes.bfloat16 if variable.dtype == "bfloat16" else variable.dtype
            make = np.array if isinstance(part, np.memmap) else np.asarray
            value = make(part, dtype, order="C")
            if variable is self.variables[-1]:
                del tensor, part  # what was read of the file leaves the memory
            variable.assign(value.reshape(variable.shape))

    def write(self) -> np.ndarray:
        """Returns the tensor."""
        arrays = [keras.ops.convert_to_numpy(variable) for variable in self.variables]
        arrays = [array.reshape(*array.shape[:-1], self.groups, -1) for array in arrays]
        tensor = np.concatenate(arrays, axis=-1)
        tensor = tensor.reshape(*tensor.shape[:-2], -1)
        tensor = np.ascontiguousarray(np.swapaxes(tensor, -1, -2) if self.transposed else tensor)
        return tensor.reshape(self.shape)


class _OfExperts:
    """A variable `(experts, ...)`, a bias without its axis of 1; or what one expert has of it.

    Experts that are stored one by one are kept until all are there: the variable is assigned once.

    Args:
        variable: The variable.
        is_bias: Whether it is a bias.
        expert: Number of the expert; None for all.
        read: Tensors of experts, shared by all of a variable.
    """

    name = ""

    def __init__(
        self,
        variable: Any,
        is_bias: bool = False,
        expert: int | None = None,
        read: dict[int, np.ndarray] | None = None,
    ) -> None:
        self.variable, self.is_bias, self.expert, self.read = variable, is_bias, expert, read
        self.dtype = variable.dtype
        shape = tuple(variable.shape)
        shape = (shape[0], shape[2]) if is_bias else shape
        self.shape = shape if expert is None else shape[1:]

    def each(self) -> list["_OfExperts"]:
        """Returns what each expert has."""
        read: dict[int, np.ndarray] = {}
        return [_OfExperts(self.variable, self.is_bias, expert, read) for expert in range(self.variable.shape[0])]

    def assign(self, tensor: np.ndarray) -> None:
        if self.expert is not None:
            self.read[self.expert] = tensor
            if len(self.read) < self.variable.shape[0]:
                return
            tensor = np.stack([self.read.pop(expert) for expert in range(self.variable.shape[0])])
        self.variable.assign(tensor.reshape(self.variable.shape))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = self.variable if self.expert is None else self.variable[self.expert]
        return np.asarray(keras.ops.convert_to_numpy(value), dtype).reshape(self.shape)


class Reordered:
    """A variable with another order along its last axis.

    Args:
        variable: The variable.
        order: Which entry each place has, as often one after the other as the axis is longer.
    """

    name = ""

    def __init__(self, variable: Any, order: np.ndarray) -> None:
        self.variable: Any = variable
        self.order: np.ndarray = order
        self.shape: tuple[int, ...] = tuple(variable.shape)
        self.dtype: str = variable.dtype

    def of(self, variable: Any) -> "Reordered":
        """Returns another variable in this order."""
        return Reordered(variable, self.order)

    def assign(self, array: np.ndarray) -> None:
        parts = array.reshape(*array.shape[:-1], -1, len(self.order))
        self.variable.assign(parts[..., np.argsort(self.order)].reshape(array.shape))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = np.asarray(keras.ops.convert_to_numpy(self.variable), dtype)
        return array.reshape(*array.shape[:-1], -1, len(self.order))[..., self.order].reshape(array.shape)


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
    layers |= {
        "output_factor": backbone.output_factor,
        "output_projection": backbone.output_projection,
        "pooler": backbone.pooler,
    }
    if backbone.output_bias is not None:
        layers["output_bias"] = layer_view(bias=backbone.output_bias)
    for side in ("encoder", "decoder"):
        stack = getattr(backbone, side)
        if stack is None:
            continue
        layers |= {f"{side}.{name}": getattr(stack, name) for name in ("embedding_norm", "final_norm")}
        for name in ("position", "attention_position"):
            position = getattr(stack, name)
            # those with several layers have a table and a norm of its vectors
            layers[f"{side}.{name}"] = getattr(position, "table", position)
            layers[f"{side}.{name}_norm"] = getattr(position, "norm", None)
        for index, block in enumerate(stack.blocks):
            parts = _block_layers(block, stack.config.has_mixer(index))
            layers |= {f"{side}.{index}.{name}": layer for name, layer in parts.items()}
        for index, attention in stack.attentions.items():
            if attention.position not in (stack.position, stack.attention_position):
                layers[f"{side}.{index}.attention.position"] = attention.position
    return {name: layer for name, layer in layers.items() if layer is not None and layer.weights}


def _block_layers(block: Any, has_mixer: bool) -> dict[str, Any]:
    layers = _mixer_layers(block.attention) if has_mixer else {}
    for name in ("cross_attention",) if has_mixer else ("attention", "cross_attention"):
        attention = getattr(block, name)
        if attention is not None:
            for part in ("query", "key", "value", "gate", "output", *GLOBAL_PROJECTIONS):
                layers[f"{name}.{part}"] = getattr(attention, f"{part}_projection")
            for part in ("latent", "latent_norm", "shared_key", "query_latent", "query_latent_norm"):
                layers[f"{name}.{part}"] = getattr(attention.latents, part, None)
            layers |= {f"{name}.query_norm": attention.query_norm, f"{name}.key_norm": attention.key_norm}
            layers[f"{name}.sinks"] = layer_view(bias=attention.sinks)
    if block.feed_forward is not None:
        layers |= _network_layers("feed_forward", block.feed_forward)
    layers |= {f"{name}_norm": norm for name, norm in block.norms.items()}
    layers |= {f"{name}_norm_after": norm for name, norm in block.norms_after.items()}
    return layers


def _mixer_layers(mixer: Any) -> dict[str, Any]:
    parts = sublayers(mixer, recursive=False, include_self=False)
    inside = {id(weight) for part in parts for weight in part.weights}
    own = {weight.name: layer_view(bias=weight) for weight in mixer.weights if id(weight) not in inside}
    return {f"mixer.{name}": layer for name, layer in [*((part.name, part) for part in parts), *own.items()]}


def _network_layers(name: str, network: Any) -> dict[str, Any]:
    if isinstance(network, FeedForward):
        return {f"{name}.{part}": getattr(network, part) for part in ("gate", "up", "down")}
    if not isinstance(network, MixtureOfExperts):
        return {name: network}
    router = network.router
    layers = {
        f"{name}.router": layer_view(kernel=router.kernel, bias=router.bias),
        f"{name}.router_balance": layer_view(bias=router.balance_bias),
        f"{name}.shared_gate": network.shared_gate,
    }
    for part in ("gate", "up", "down"):
        kernel, bias = (getattr(network, f"{part}_{leaf}") for leaf in ("kernel", "bias"))
        layers[f"{name}.experts.{part}"] = layer_view(
            kernel=None if kernel is None else _OfExperts(kernel),
            bias=None if bias is None else _OfExperts(bias, is_bias=True),
        )
    if network.shared_experts is not None:
        layers |= _network_layers(f"{name}.shared", network.shared_experts)
    return layers


def layer_view(**leaves: Any) -> types.SimpleNamespace:
    """Returns variables as tables know those of a layer.

    Args:
        **leaves: The variables by the names of `LEAVES`; those that are None are left out.
    """
    leaves = {leaf: variable for leaf, variable in leaves.items() if variable is not None}
    return types.SimpleNamespace(**leaves, weights=list(leaves.values()))


def with_half_split_pairs(layers: Mapping[str, Any], config: TransformerConfig) -> dict[str, Any]:
    """Returns layers whose queries and keys have features i and i + half as pairs, instead of 2 i and 2 i + 1.

    The product of a query and a key does not depend on the order of their features, so that a model with rotary
    positions in the layout "interleaved" is written for those who know "half_split" only.

    Args:
        layers: What `named_layers` returned.
        config: The configuration, with rotary positions.
    """
    width = config.head_dim
    turned = np.arange(config.position.rotary_dim or width).reshape(-1, 2).T.reshape(-1)
    order = np.concatenate([turned, np.arange(len(turned), width)])
    ends = (".attention.query", ".attention.key", ".attention.query_norm", ".attention.key_norm")
    return {
        name: layer_view(**{leaf: Reordered(variable_of(layer, leaf), order) for leaf in leaves_of(name, layer)})
        if name.endswith(ends)
        else layer
        for name, layer in layers.items()
    }


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
        stored = theirs if isinstance(theirs, Stored) else Stored(theirs)
        ours = (ours,) if isinstance(ours, str) else ours
        for number in numbers_of(ours[0], layers):
            names = [name.replace("{}", number) for name in ours]
            if not set(names) <= set(layers):
                continue
            covered |= set(names)
            parts = {name: layers[name] for name in names}
            rows += _rows_of(f"{prefix}{stored.name.replace('{}', number, 1)}", stored, parts)
    left = sorted(set(layers) - covered)
    if left:
        raise ValueError(f"This kind of model has no place for the weights of {', '.join(left)}.")
    return rows


def _rows_of(name: str, stored: Stored, parts: dict[str, Any]) -> list[Row]:
    """The tensors of layers that are stored as one, for each leaf that the first of them has."""
    rows = []
    first = next(iter(parts))
    for leaf in leaves_of(first, parts[first]):
        transposed = leaf == "kernel" and stored.transposed
        variables = tuple(variable_of(part, leaf) for part in parts.values())
        for part, variable in zip(parts, variables, strict=True):
            if variable.shape[-1] % stored.groups:
                raise ValueError(f"{part} must have a multiple of {stored.groups} outputs, got {variable.shape[-1]}.")
        ending = getattr(stored, LEAVES[leaf])
        if "{}" not in name:
            middle_axis = leaf == "kernel" and stored.middle_axis
            rows.append(Row(name + ending, variables, transposed, stored.groups, stored.leading_axes, middle_axis))
            continue
        for expert, slices in enumerate(zip(*(variable.each() for variable in variables), strict=True)):
            rows.append(Row(name.replace("{}", str(expert)) + ending, slices, transposed, stored.groups))
    return rows


def numbers_of(pattern: str, layers: Iterable[str]) -> list[str]:
    """Returns what stands for `{}` in a name; one empty number where it has none.

    Args:
        pattern: The name.
        layers: Names of all layers.
    """
    if "{}" not in pattern:
        return [""]
    before, after = pattern.split("{}")
    found = {
        name[len(before) : len(name) - len(after)]
        for name in layers
        if name.startswith(before) and name.endswith(after) and name[len(before) : len(name) - len(after)].isdigit()
    }
    return sorted(found, key=int)


def leaves_of(name: str, layer: Any) -> list[str]:
    """Returns which weights a layer has, as names of its attributes.

    Args:
        name: What errors call the layer.
        layer: The layer.

    Raises:
        ValueError: If it is quantized, or has weights that no attribute is known for.
    """
    if getattr(layer, "quantization_mode", None) is not None:
        raise ValueError(f"{name} is quantized ({layer.quantization_mode}): write a model before it is quantized.")
    leaves = [leaf for leaf in LEAVES if getattr(layer, leaf, None) is not None and not _is_flag(layer, leaf)]
    own = [variable for variable in layer.weights if not is_factor(variable)]
    if len(leaves) != len(own):
        raise ValueError(f"The weights of {name} ({type(layer).__name__}) have no counterpart: {own}.")
    return leaves


def variable_of(layer: Any, leaf: str) -> Any:
    """Returns a weight of a layer, a kernel with its active low-rank updates.

    Args:
        layer: The layer.
        leaf: One of `leaves_of`.
    """
    is_updated = leaf == "kernel" and getattr(layer, "active_updates", ())
    return layer.updated_kernel() if is_updated else getattr(layer, leaf)


def _is_flag(layer: Any, leaf: str) -> bool:
    # LayerNorm has an option `scale` in addition to its weight `gamma`
    return isinstance(getattr(layer, leaf), bool)


def check_rows(
    rows: Iterable[Row], tensors: TensorFiles, ignored: Iterable[str], keys: Mapping[str, Any] | None = None
) -> None:
    """Checks that tensors and variables fit, and that none is left over on either side.

    Args:
        rows: What the model has.
        tensors: What the file has.
        ignored: Names in the file that are looked at elsewhere.
        keys: What the file of the configuration says: keys that a size may be from are named.

    Raises:
        ValueError: Naming what differs.
    """
    expected = {row.name: row.shape for row in rows}
    missing = [(name, shape) for name, shape in expected.items() if name not in tensors.shapes]
    problems = [f"{name} {shape} is not in {tensors.source}" for name, shape in missing]
    for name, shape in tensors.shapes.items():
        if name in expected and shape != expected[name]:
            needed = f"the model needs {expected[name]}{_origin(shape, expected[name], keys or {})}"
            problems.append(f"{name} has shape {shape} in {tensors.file_of(name)}, {needed}")
        elif name not in expected and name not in ignored:
            problems.append(f"{quote_key(name)} {shape} is in {tensors.file_of(name)}, the model has no place for it")
    if problems:
        more = len(problems) - 20
        lines = problems[:20] + ([f"and {more} more"] if more > 0 else [])
        raise ValueError("The weights do not fit the configuration:\n  " + "\n  ".join(lines))


def _origin(shape: tuple[int, ...], needed: tuple[int, ...], keys: Mapping[str, Any]) -> str:
    """The keys that a size which differs may be from: alone, or as the product of two."""
    sizes = {key: value for key, value in keys.items() if type(value) is int and value > 1 and key in CHOICE_OF}
    for size in set(needed) - set(shape):
        found = [f"{key} is {value}" for key, value in sizes.items() if value == size]
        found = found or [
            f"{first} is {sizes[first]} and {second} is {sizes[second]}"
            for first, second in itertools.combinations(sizes, 2)
            if sizes[first] * sizes[second] == size
        ]
        if found:
            return f": {' or '.join(found[:2])}"
    return ""
