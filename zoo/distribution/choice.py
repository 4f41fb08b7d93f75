"""What a training runs on: one device, the devices of a machine, or a mesh of devices of any number of machines."""

import contextlib
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras

from zoo.distribution.layouts import DATA, MODEL, ModelLayouts
from zoo.distribution.processes import initialize
from zoo.storage.processes import num_processes

# in place of "data": the devices that divide the batch divide the weights, too
FSDP = "fsdp"
_NAMES = ("mirrored", DATA, FSDP, MODEL)
# what is chosen; None for one device
_chosen: Any = None


class Mesh(NamedTuple):
    """How the devices of all processes are laid out.

    Args:
        data: Parts of the batch, each on devices of its own.
        model: Devices that share the weights of a replica.
        divides_along_data: Whether the devices that have parts of the batch have parts of the weights, too.
    """

    data: int
    model: int = 1
    divides_along_data: bool = False


def use(distribution: str | Mapping[str, int] | None) -> None:
    """Chooses the devices for all models that are created afterwards.

    Args:
        distribution: None for one device. On TensorFlow "mirrored": each device of this machine has all weights and a
            part of the rows. On JAX "data": the same on the devices of all processes; "model": the weights are divided
            among all devices; "fsdp": each device has a part of the rows and a part of the weights and of their
            moments, and gathers the rest as it computes (ZeRO, fully sharded data parallel); or several by a mesh,
            `{"data": 4, "model": 2}` or `{"fsdp": 4, "model": 2}`.

    Raises:
        ValueError: If the backend does not support the distribution, or there are too few devices.

    Example:

    >>> zoo.distribution.use("data")
    >>> model = zoo.CausalLM.from_preset("gpt2_small", load_weights=False)
    """
    global _chosen
    check(distribution)
    initialize()
    if distribution == "mirrored":
        _chosen = _mirrored(tuple(device.name for device in _tensorflow_devices()))
        return
    if distribution is None:
        if num_processes() > 1:
            raise ValueError(
                f"distribution must say what {num_processes()} processes do: 'data', 'model' or a mesh, got None."
            )
        forget()
        return
    _chosen = ModelLayouts(*_mesh_of(distribution, len(keras.distribution.list_devices())))
    keras.distribution.set_distribution(_chosen)


def forget() -> None:
    """Chooses one device for what follows, whatever there was before."""
    global _chosen
    _chosen = None
    if keras.backend.backend() == "jax":
        keras.distribution.set_distribution(None)


def check(distribution: Any) -> None:
    """Raises a ValueError if a distribution is unknown or the backend does not support it. Devices are not checked.

    Args:
        distribution: See `use`.
    """
    if distribution is None:
        return
    is_mesh = isinstance(distribution, Mapping)
    sizes = list(distribution.values()) if is_mesh else []
    axes = set(distribution) if is_mesh else set()
    if is_mesh and (not axes or axes - {DATA, FSDP, MODEL} or {DATA, FSDP} <= axes or not all(map(_is_size, sizes))):
        raise ValueError(
            "distribution must have the axes 'data' or 'fsdp', and 'model', with sizes of at least 1, got "
            f"{dict(distribution)}."
        )
    if not is_mesh and distribution not in _NAMES:
        raise ValueError(
            f"distribution must be one of {', '.join(_NAMES)}, a mesh such as {{'data': 4, 'model': 2}} or None, got "
            f"{distribution!r}."
        )
    backend = keras.backend.backend()
    needed = "tensorflow" if distribution == "mirrored" else "jax"
    if backend != needed:
        hint = {
            "jax": "on JAX say 'data'",
            "tensorflow": "on TensorFlow say 'mirrored', for the devices of one machine",
        }.get(backend, "there is none for this backend")
        raise ValueError(
            f"distribution={distribution!r} needs KERAS_BACKEND={needed}, got {backend!r}: {hint}. Keras ignores "
            "keras.distribution on other backends than JAX."
        )


def _is_size(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 1


def _mesh_of(distribution: Any, devices: int) -> Mesh:
    if distribution in (DATA, FSDP):
        return Mesh(devices, divides_along_data=distribution == FSDP)
    if distribution == MODEL:
        return Mesh(1, devices)
    divides = FSDP in distribution
    mesh = Mesh(distribution.get(FSDP if divides else DATA, 1), distribution.get(MODEL, 1), divides)
    if mesh.data * mesh.model != devices:
        processes = num_processes()
        raise ValueError(
            f"distribution must name as many devices as there are, got {dict(distribution)} = {mesh.data * mesh.model} "
            f"of {devices} (of {processes} {'process' if processes == 1 else 'processes'}). A CPU is one device, "
            "unless JAX_NUM_CPU_DEVICES says how many it simulates."
        )
    return mesh


@functools.cache
def _mirrored(devices: tuple[str, ...]) -> Any:
    # a second one would number its sums over the devices as the first one does, and get them mixed up
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(devices)


def _tensorflow_devices() -> list[Any]:
    import tensorflow as tf

    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if len(devices) < 2:
        raise ValueError(
            f"distribution='mirrored' needs two devices or more, got {[device.name for device in devices]}."
        )
    return devices


def chosen() -> Any:
    """Returns the `tf.distribute.Strategy`, the `keras.distribution` or None that `use` has chosen."""
    return _chosen


def scope() -> contextlib.AbstractContextManager[Any]:
    """Returns the context in which models are made and compiled: the scope of the strategy on TensorFlow.

    Example:

    >>> with zoo.distribution.scope():
    ...     model = zoo.CausalLM.from_preset("gpt2_small", load_weights=False)
    ...     model.compile()
    """
    if _chosen is None or isinstance(_chosen, ModelLayouts):
        return contextlib.nullcontext()
    return _chosen.scope()
