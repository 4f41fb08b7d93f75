"""What a model computes on."""

import functools

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
