"""What a model computes on."""

import functools
from typing import Any

import keras


@functools.cache
def has_accelerator() -> bool:
    """Whether the backend sees a device besides the processor, such as a GPU."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return any(device.device_type != "CPU" for device in tf.config.list_physical_devices())
    if backend == "jax":
        import jax

        return jax.default_backend() != "cpu"
    if backend == "torch":
        import torch

        return torch.cuda.is_available() or torch.backends.mps.is_available()
    return False


@functools.cache
def has_onednn() -> bool:
    """Whether TensorFlow computes on a processor by oneDNN, as it does by default where that is of use."""
    if keras.backend.backend() != "tensorflow" or has_accelerator():
        return False
    # the only place that knows what the variable TF_ENABLE_ONEDNN_OPTS, the processor and the build amount to
    from tensorflow.python.util import _pywrap_util_port

    return _pywrap_util_port.IsMklEnabled()


def num_replicas() -> int:
    """Returns how many copies of a model a `tf.distribute` strategy runs at once; 1 without one, and elsewhere.

    A batch of a program of JAX that runs on several devices is one tensor: there each sum is over all rows.
    """
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def batch_parts(rows: Any) -> int:
    """Returns into how many parts the devices of a mesh of JAX divide a batch; 1 without a mesh, and elsewhere.

    What is cut into blocks of rows, or moves rows, is to be done for each part by itself: otherwise all devices compute
    all of it, or send each other what they have at each step.

    Args:
        rows: Rows of the batch, an integer or a tensor. Where the devices do not divide them there is one part.
    """
    distribution = keras.distribution.distribution()
    axis = getattr(distribution, "batch_dim_name", None)
    if axis is None or not isinstance(rows, int):
        return 1
    mesh = distribution.device_mesh
    size = mesh.shape[mesh.axis_names.index(axis)]
    return size if rows % size == 0 else 1


class _SeedOfReplica(keras.random.SeedGenerator):
    """A seed generator whose seeds differ from replica to replica; the state is that of another one.

    Args:
        generator: The other one.
    """

    def __init__(self, generator: keras.random.SeedGenerator) -> None:
        # without a state of its own
        self._generator = generator

    def next(self, ordered: bool = True) -> Any:
        import tensorflow as tf

        seed = self._generator.next(ordered)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        # the second word counts the draws
        return seed + tf.stack([tf.cast(replica, seed.dtype), tf.zeros((), seed.dtype)])


def seed_of_replica(seed: Any) -> Any:
    """Returns what random numbers are drawn from: in a replica of `tf.distribute` others than in its neighbours.

    All replicas hold the same state of a seed generator, and would draw the same numbers for different rows.

    Args:
        seed: A `keras.random.SeedGenerator`, or an integer, which stays as it is.
    """
    if num_replicas() == 1 or not isinstance(seed, keras.random.SeedGenerator):
        return seed
    return _SeedOfReplica(seed)
