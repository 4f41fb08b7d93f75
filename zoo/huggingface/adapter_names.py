"""What layers are called in files of adapters: as in the Transformers library, or by their own paths."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

from layers.keras_internals import stored_kernel
from zoo.backbones.adapters import is_factor
from zoo.backbones.backbone import Backbone
from zoo.config import TransformerConfig
from zoo.huggingface.directory import head_layers
from zoo.huggingface.family import Family, Head, all_families
from zoo.huggingface.weights import Reordered, Row, layer_view, named_layers, table_rows
from zoo.huggingface.writing import express

ENDING = ".weight"
# before all names in a file
PREFIX = "base_model.model."
# before our own names of the layers of a head
HEAD = "head."


class Site:
    """The kernel of a layer that can have an update, in the place of the kernel itself, which may be quantized.

    Args:
        path: Path of the layer within the backbone.
        layer: The layer.
    """

    name: str = "kernel"
    dtype: str = "float32"

    def __init__(self, path: str, layer: Any) -> None:
        self.path: str = path
        self.layer: Any = layer
        self.shape: tuple[int, int] = (layer.input_spec.axes[-1], layer.units)


class _Shape:
    """A quantized weight of which the shape alone is known.

    Args:
        shape: The shape.
    """

    name, dtype = "quantized", "float32"

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


@dataclasses.dataclass(frozen=True)
class Module:
    """A linear map of the other library, and the layers whose kernels it holds side by side.

    Args:
        row: How their kernels are stored; its variables are sites, perhaps in another order.
    """

    row: Row

    @property
    def name(self) -> str:
        """Its name, without prefix."""
        return self.row.name.removesuffix(ENDING)

    @property
    def sites(self) -> tuple[Site, ...]:
        """The layers."""
        return tuple(getattr(variable, "variable", variable) for variable in self.row.variables)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of inputs and of outputs."""
        return self.sites[0].shape[0], sum(site.shape[1] for site in self.sites)

    def row_of(self, name: str, factors: Mapping[str, Any], *, transposed: bool = True) -> Row:
        """Returns how the factors B of updates `(rank, outputs)`, or magnitudes `(outputs,)`, are stored: as the
        kernels are, side by side.

        Args:
            name: Name of the tensor, `(outputs, rank)` or `(outputs,)`.
            factors: The factors by the paths of their layers.
            transposed: Whether they are stored the other way round.
        """
        variables = tuple(
            variable.of(factors[variable.variable.path]) if isinstance(variable, Reordered) else factors[variable.path]
            for variable in self.row.variables
        )
        return dataclasses.replace(self.row, name=name, variables=variables, transposed=transposed)

    def kernel_row(self) -> Row | None:
        """Returns how the kernels themselves are stored; None where one is quantized."""
        kernels = {site.path: site.layer.kernel for site in self.sites if site.layer.quantization_mode is None}
        if len(kernels) < len(self.sites):
            return None
        return self.row_of(self.row.name, kernels, transposed=self.row.transposed)


@dataclasses.dataclass(frozen=True)
class Names:
    """What the layers of a task are called in a file.

    Args:
        modules: The linear maps that can have updates, by their names without prefix.
        others: Names of other modules with weights: what an end of a name could mean too.
        family: The family of the Transformers library; None for names of our own.
        head: The head of the task there.
        rows: The tensors of the backbone, without prefix; with sites in place of kernels of layers.
    """

    modules: dict[str, Module]
    others: tuple[str, ...]
    family: Family | None
    head: Head
    rows: tuple[Row, ...]

    def plain(self, name: str) -> str:
        """Returns the name of a module as in `modules`: without what a class puts before it."""
        return self.plain_tensor(name + ENDING).removesuffix(ENDING)

    def plain_tensor(self, name: str) -> str:
        """Returns the name of a tensor as in `head_rows`: without what a class puts before it."""
        return name if self.family is None else self.family.plain_name(name)

    def stored(self, name: str) -> str:
        """Returns the name of a module of the backbone in the class with the head of the task."""
        return self.stored_tensor(name + ENDING).removesuffix(ENDING)

    def stored_tensor(self, name: str) -> str:
        """Returns the name of a tensor of the backbone in the class with the head of the task."""
        family = self.family
        if family is None or self.head.architecture in (family.architecture, family.encoder_architecture):
            return name
        return family.stored_name(name, self.head)

    def head_rows(self, task: Any) -> list[Row]:
        """Returns the tensors of the head of a task; int8 kernels as the floating-point numbers that they stand for.

        Args:
            task: The task.

        Raises:
            ValueError: If a weight has no name.
        """
        layers = head_layers(task)
        held = {id(weight) for layer in layers.values() for weight in layer.weights}
        held |= {id(weight) for weight in task.backbone.weights}
        left = [weight.path for weight in task.weights if id(weight) not in held]
        if left:
            raise ValueError(f"The weights of a head must have names in files of adapters, got {', '.join(left)}.")
        table = {name: f"{HEAD}{name}" for name in layers} if self.family is None else self.head.table
        return table_rows({name: _in_floating_point(layer) for name, layer in layers.items()}, table)

    def is_of_head(self, name: str) -> bool:
        """Whether a tensor belongs to the head of some task."""
        return name.startswith(HEAD if self.family is None else self.family.head_prefixes())


def own_names(task: Any) -> Names:
    """Returns names for any task: paths of layers, with dots.

    Args:
        task: The task.
    """
    candidates = dict(task.backbone.adapters.candidates())
    rows = [Row(path.replace("/", ".") + ENDING, (Site(path, layer),), True) for path, layer in candidates.items()]
    modules = [Module(row) for row in rows]
    start = len(task.backbone.path) + 1
    kernels = {id(stored_kernel(layer)) for layer in candidates.values()}
    whole = [
        Row(weight.path[start:].replace("/", "."), (weight,), transposed=False)
        for weight in task.backbone.weights
        if id(weight) not in kernels and not is_factor(weight)
    ]
    return Names({module.name: module for module in modules}, (), None, Head(""), (*rows, *whole))


def library_names(task: Any, families: Sequence[Family] | None = None, *, with_head: bool = True) -> Iterator[Names]:
    """Gives what the layers of a task are called in the families that can express it.

    A family gives the names in memory, and those in its files where they differ.

    Args:
        task: The task.
        families: The families; None for all.
        with_head: Whether they must have the task, with its head, too.
    """
    backbone = task.backbone
    if not isinstance(backbone.config, TransformerConfig):
        return
    layers = _sites(backbone)
    first = None if backbone.origin is None else backbone.origin.model_type
    for family in all_families(first) if families is None else families:
        # what a family cannot express is said by save_to_huggingface
        with contextlib.suppress(ValueError, KeyError, TypeError):
            yield from names_of(family, task, layers, with_head=with_head)


def names_of(family: Family, task: Any, layers: dict[str, Any] | None = None, *, with_head: bool = True) -> list[Names]:
    """Returns what the layers of a task are called in a family.

    Args:
        family: The family.
        task: The task.
        layers: The layers of its backbone, as for tables.
        with_head: Whether the family must have the task, with its head, too.

    Raises:
        ValueError: If the family cannot express it.
    """
    config = task.backbone.config
    layers = _sites(task.backbone) if layers is None else layers
    expressed = express(family, config, layers, *((task, type(task).__name__) if with_head else ()))
    found = []
    for table in (family.modules, family.table_of(config)):
        if table:
            sites = {
                name: layer for name, layer in expressed.layers.items() if _is_site(getattr(layer, "kernel", None))
            }
            rows = table_rows({name: layer_view(kernel=layer.kernel) for name, layer in sites.items()}, table)
            modules = {module.name: module for module in map(Module, rows)}
            others = {row.name.rpartition(".")[0] for row in expressed.rows} - set(modules)
            found.append(Names(modules, tuple(others), family, expressed.head, tuple(expressed.rows)))
    if with_head:
        found[0].head_rows(task)
    return found


def _is_site(variable: Any) -> bool:
    return isinstance(getattr(variable, "variable", variable), Site)


def _sites(backbone: Backbone) -> dict[str, Any]:
    """The layers by the names that tables use; sites in place of kernels, shapes in place of what is quantized."""
    paths = {id(layer): path for path, layer in backbone.adapters.candidates()}
    layers = {}
    for name, layer in named_layers(backbone).items():
        if id(layer) in paths:
            layer = layer_view(kernel=Site(paths[id(layer)], layer), bias=layer.bias)
        elif getattr(layer, "quantization_mode", None) is not None:
            layer = layer_view(embeddings=_Shape((layer.input_dim, layer.output_dim)))
        layers[name] = layer
    return layers


def _in_floating_point(layer: Any) -> Any:
    """A layer of a head as tables know it, whose kernel may be stored in int8."""
    if getattr(layer, "quantization_mode", None) != "int8":
        return layer
    kernel = keras.ops.cast(stored_kernel(layer), "float32") / keras.ops.cast(layer.kernel_scale, "float32")
    return layer_view(kernel=keras.Variable(kernel, trainable=False, name="kernel"), bias=layer.bias)
