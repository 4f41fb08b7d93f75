"""The devices that a model runs on, and how the backend runs it."""

import contextlib
import functools
from typing import Any

import keras


@functools.cache
def has_accelerator() -> bool:
    """Returns whether the backend sees an accelerator, such as a GPU."""
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
def memory_of_accelerator() -> int | None:
    """Returns the bytes of memory of the first accelerator that a program may fill; None if it is not known.

    Without an accelerator it is None, too. XLA takes part of the memory at once (`XLA_PYTHON_CLIENT_MEM_FRACTION`), and
    that part is what counts.
    """
    if not has_accelerator():
        return None
    if keras.backend.backend() == "jax":
        import jax

        return (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else None
    return None


@functools.cache
def has_cudnn() -> bool:
    """Returns whether the backend is JAX on a GPU of NVIDIA, for which JAX has kernels of attention of cuDNN."""
    if keras.backend.backend() != "jax":
        return False
    import jax

    return jax.default_backend() == "gpu" and "cuda" in jax.local_devices()[0].client.platform_version


@functools.cache
def largest_head_dim() -> int:
    """Returns the largest width of a head for cuDNN's attention: 256 from the H100 on, 128 before."""
    import jax

    return 256 if float(jax.local_devices()[0].compute_capability) >= 9 else 128


@functools.cache
def has_onednn() -> bool:
    """Returns whether TensorFlow uses oneDNN on a CPU, as it does by default where that is faster."""
    if keras.backend.backend() != "tensorflow" or has_accelerator():
        return False
    # the only function that takes TF_ENABLE_ONEDNN_OPTS, the processor and the build into account
    from tensorflow.python.util import _pywrap_util_port

    return _pywrap_util_port.IsMklEnabled()


def eager_computation() -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which operations on arrays are computed at once, also while a function is compiled."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.init_scope()
    if keras.backend.backend() == "jax":
        import jax

        return jax.ensure_compile_time_eval()
    return contextlib.nullcontext()


def is_traced_for_xla() -> bool:
    """Returns whether TensorFlow traces a function that XLA compiles, of `tf.function(jit_compile=True)`."""
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_util

    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def is_recorded() -> bool:
    """Returns whether a `tf.GradientTape` records what TensorFlow computes now."""
    from tensorflow.python.eager import record

    return record.could_possibly_record()


def is_eager() -> bool:
    """Returns whether numbers are computed at once, as far as the backend can tell, and not a function compiled."""
    if keras.backend.backend() != "tensorflow":
        return True
    import tensorflow as tf

    return tf.executing_eagerly()


def num_replicas() -> int:
    """Returns the number of replicas of a `tf.distribute` strategy; 1 without one, and on other backends.

    On JAX a batch on several devices is one tensor, so sums are over all rows anyway.
    """
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def batch_parts(rows: Any) -> int:
    """Returns the number of parts into which a JAX device mesh divides a batch; 1 without one, and on other backends.

    Code that cuts a batch into blocks of rows, or moves rows, should treat each part separately. Otherwise each device
    computes everything, or the devices exchange data at each step.

    Args:
        rows: Number of rows of the batch, an integer or a tensor. If the number of devices does not divide it, there is
            one part.
    """
    distribution = keras.distribution.distribution()
    axis = getattr(distribution, "batch_dim_name", None)
    if axis is None or not isinstance(rows, int):
        return 1
    mesh = distribution.device_mesh
    size = mesh.shape[mesh.axis_names.index(axis)]
    return size if rows % size == 0 else 1


class _SeedOfReplica(keras.random.SeedGenerator):
    """A seed generator with the state of another one, whose seeds differ between replicas.

    Args:
        generator: The other generator.
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
    """Returns a seed generator that gives each replica of `tf.distribute` different random numbers.

    All replicas hold the same state of a seed generator, and would draw the same numbers for different rows.

    Args:
        seed: A `keras.random.SeedGenerator`, or an integer, which is returned unchanged.
    """
    if num_replicas() == 1 or not isinstance(seed, keras.random.SeedGenerator):
        return seed
    return _SeedOfReplica(seed)
