"""How the devices of a mesh share the weights of a model: from the role that each layer gives its weights."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np

from layers.dense import LowRankUpdate
from layers.keras_internals import sublayers
from layers.roles import Role
from zoo.storage.deferred import deferred
from zoo.storage.processes import process_id

DATA, MODEL = "data", "model"
Partition = tuple[str | None, ...]


class ModelLayouts(keras.distribution.ModelParallel):
    """A `keras.distribution` in which the layout of each weight follows from its role.

    The axis "data" of its mesh divides the batch, the axis "model" the weights. Variables without a layout (heads of
    tasks, seeds, metrics) are whole on all devices. The moments of the optimizer have the layout of their weights.

    Args:
        data, model: Sizes of the axes. Their product is the number of devices of all processes.
        divides_along_data: Whether the axis "data" divides the weights, too: a device keeps a part of each large weight
            and of its moments, and gathers the others when it computes with them.

    Attributes:
        divides_weights: Whether devices have parts of weights.
        own_replicas: Number of parts of the batch on devices of this process.

    Raises:
        ValueError: If processes share some of their replicas, but not all.

    Reference:
        Rajbhandari et al. 2020, "ZeRO", section 5; Zhao et al. 2023, "PyTorch FSDP", section 3.
    """

    def __init__(self, data: int, model: int, divides_along_data: bool = False) -> None:
        mesh = keras.distribution.DeviceMesh((data, model), (DATA, MODEL))
        # each process makes its own part of a batch, see `zoo.distribution.batches`
        super().__init__(layout_map=keras.distribution.LayoutMap(mesh), batch_dim_name=DATA, auto_shard_dataset=False)
        self.data_size: int = data
        self.model_size: int = model
        self.divides_along_data: bool = divides_along_data and data > 1
        self.divides_weights: bool = model > 1 or self.divides_along_data
        processes = np.vectorize(lambda device: device.process_index, otypes=[int])(mesh.backend_mesh.devices)
        self.own_replicas: list[int] = own_replicas(processes, process_id())
        # by identity: paths need not be unique. Variables are kept, so that no number is used twice.
        self._partitions: dict[int, tuple[keras.Variable, Partition]] = {}

    def lay_out(self, partitions: Iterable[tuple[keras.Variable, Partition]]) -> None:
        """Sets the layout of variables that have no value yet.

        Args:
            partitions: Variables, and for each of their axes the axis of the mesh that divides it, or None.
        """
        self._partitions |= {id(variable): (variable, partition) for variable, partition in partitions}

    def get_variable_layout(self, variable: keras.Variable) -> keras.distribution.TensorLayout:
        """See `keras.distribution.ModelParallel`."""
        _, partition = self._partitions.get(id(variable), (None, (None,) * len(variable.shape)))
        return keras.distribution.TensorLayout(partition, self.device_mesh)

    def get_tensor_layout(self, path: str) -> None:
        """See `keras.distribution.ModelParallel`. Computed tensors have no prescribed layout."""
        return None


def own_replicas(processes: np.ndarray, process: int) -> list[int]:
    """Returns the replicas that devices of a process belong to, which need not follow each other.

    Args:
        processes: The process of each device of the mesh, `(data, model)`.
        process: The process.

    Raises:
        ValueError: If processes have some replicas in common, and others not.

    Example:

    >>> own_replicas(np.array([[0, 0], [1, 1]]), 1)
    [1]
    """
    together = {frozenset(row) for row in processes.tolist()}
    if sum(map(len, together)) != len(frozenset().union(*together)):
        sizes, count = dict(zip(("data", MODEL), processes.shape, strict=True)), len(np.unique(processes))
        raise ValueError(
            f"The axis 'model' of the mesh must divide the devices of a process, or these divide it, got {sizes} on "
            f"{count} processes with {processes.size // count} devices each."
        )
    return [index for index, row in enumerate(processes) if process in row]


@contextlib.contextmanager
def laid_out(backbone: keras.Model) -> Iterator[None]:
    """A context for creating a backbone, whose weights get their values only after their layouts are set.

    So no device ever holds more than its part of a weight. Where each device has all weights it does nothing.

    Args:
        backbone: The backbone.

    Raises:
        ValueError: If a weight has no role, or two, or the devices do not divide it.
    """
    layouts = keras.distribution.distribution()
    if not isinstance(layouts, ModelLayouts) or not layouts.divides_weights:
        yield
        return
    with deferred():
        yield
        along_data = layouts.data_size if layouts.divides_along_data else 1
        layouts.lay_out(partitions_of(backbone, layouts.model_size, along_data))


def require_whole_weights(what: str) -> None:
    """Raises a ValueError where several devices share the weights of a model.

    Args:
        what: What needs whole ones, for the error.
    """
    layouts = keras.distribution.distribution()
    if isinstance(layouts, ModelLayouts) and layouts.divides_weights:
        raise ValueError(
            f"{what} needs a distribution in which each device has all weights, without the axes 'model' and 'fsdp', "
            f"got {layouts.data_size} x {layouts.model_size} devices that share them: do it on one device, and save "
            "the model."
        )


def partitions_of(model: keras.Model, devices: int, along_data: int = 1) -> list[tuple[keras.Variable, Partition]]:
    """Returns how each weight of a model is divided among devices.

    Args:
        model: A model whose weights all have a role; they need no values.
        devices: Number of devices along the axis "model".
        along_data: Number of devices along the axis "data" that have a part of each large weight; 1 for whole ones.

    Returns:
        Each weight, with "model" and "data" at the axes that they divide, and None at the others.

    Raises:
        ValueError: If a weight has no role, or two, or the devices do not divide it.

    Example:

    >>> for weight, partition in partitions_of(backbone, 2):
    ...     print(weight.path, partition)
    transformer/decoder/block_0/attention/query/kernel (None, 'model')
    """
    return [
        (weight, divided_along_data(weight, partition_of(weight, role, devices, update), along_data))
        for weight, role, update in roles_of(model)
    ]


def divided_along_data(weight: keras.Variable, partition: Partition, devices: int) -> Partition:
    """Returns the partition of a weight that the axis "data" divides, too: its longest axis that can be divided.

    Args:
        weight: The weight. A vector stays as it is: to gather it takes longer than its memory is worth.
        partition: How the axis "model" divides it.
        devices: Number of devices along the axis "data".

    Example:

    >>> divided_along_data(kernel, (None, "model"), 4)  # of the shape (64, 256)
    ('data', 'model')
    """
    shape = tuple(weight.shape)
    free = [axis for axis, taken in enumerate(partition) if taken is None and shape[axis] % devices == 0]
    if devices == 1 or len(shape) < 2 or not free:
        return partition
    longest = max(free, key=lambda axis: shape[axis])
    return tuple(DATA if axis == longest else taken for axis, taken in enumerate(partition))


def roles_of(model: keras.Model) -> list[tuple[keras.Variable, Role, bool]]:
    """Returns each weight of a model, its role, and whether it is a factor of a low-rank update.

    Args:
        model: The model.

    Raises:
        ValueError: If a weight has no role, or two.
    """
    roles: dict[int, tuple[keras.Variable, Role, bool]] = {}

    def note(weight: keras.Variable, role: Role, update: bool) -> None:
        before = roles.setdefault(id(weight), (weight, role, update))[1]
        if before != role:
            raise ValueError(f"{weight.path} must have one role, got {before} and {role}.")

    def walk(layer: Any, given: Role | None, update: bool = False) -> None:
        own = getattr(layer, "weight_role", None)
        named: Mapping[str, Role] = getattr(layer, "weight_roles", {})
        if given is not None and (own not in (None, given) or named):
            raise ValueError(
                f"{layer.path} must have one role, got {given} from the layer around it and one of its own."
            )
        role, update = given or own, update or isinstance(layer, LowRankUpdate)
        parts = sublayers(layer, recursive=False, include_self=False)
        for part in parts:
            walk(part, role if role is not None else named.get(part.name), update)
        inside = {id(weight) for part in parts for weight in part.weights}
        for weight in layer.weights:
            if id(weight) in inside:
                continue
            found = role if role is not None else named.get(weight.name)
            if found is None:
                raise ValueError(
                    f"{weight.path} has no role: {type(layer).__name__} must name it in weight_roles, see layers.roles."
                )
            note(weight, found, update)

    walk(model, None)
    return list(roles.values())


def partition_of(weight: keras.Variable, role: Role, devices: int, update: bool = False) -> Partition:
    """Returns how devices share a weight.

    Args:
        weight: The weight.
        role: Its role.
        devices: Number of devices.
        update: Whether it is a factor `(dim, rank)` or `(rank, units)`, or the magnitude `(units,)`, of a low-rank
            update of a kernel of this role.

    Raises:
        ValueError: If the devices do not divide it.
    """
    shape = tuple(weight.shape)
    whole: Partition = (None,) * len(shape)
    if role.name == "whole":
        return whole
    if role.parts is not None and role.parts % devices:
        if role.else_whole:
            return whole
        raise ValueError(
            f"The axis 'model' of the mesh must divide the {role.parts} {role.where} of {weight.path}, got {devices}."
        )
    if role.name in ("vocabulary", "output_vocabulary"):
        # a vocabulary of any size, such as the 50,257 tokens of GPT-2: then the width
        axes = range(len(shape)) if role.name == "vocabulary" else reversed(range(len(shape)))
        axis = next((axis for axis in axes if shape[axis] % devices == 0), None)
        return whole if axis is None else _at(axis, shape)
    is_columns = role.name == "columns"
    if update:
        # of the two factors, the one beside the shared axis; the magnitude has a number for each column
        has_axis = weight.name in (("lora_b", "lora_magnitude") if is_columns else ("lora_a",))
        axis = (len(shape) - 1 if is_columns else 0) if has_axis else None
    elif len(shape) == 1:
        # a bias is added to what is shared, or to what has been added up
        axis = 0 if is_columns else None
    else:
        # before these axes may be one of experts
        axis = len(shape) - (1 if is_columns else 2)
    if axis is None:
        return whole
    if shape[axis] % devices:
        raise ValueError(
            f"The axis 'model' of the mesh must divide the width {shape[axis]} of {weight.path}, got {devices}."
        )
    return _at(axis, shape)


def _at(axis: int, shape: tuple[int, ...]) -> Partition:
    return tuple(MODEL if index == axis else None for index in range(len(shape)))
