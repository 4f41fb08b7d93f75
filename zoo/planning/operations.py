"""Floating-point operations of an update, of all devices and of one.

A product of n vectors with a matrix of m numbers takes 2 n m operations, and its two gradients as many again each. What
is counted are the products: of kernels, of scores, of attention weights with values (Kaplan et al. 2020, "Scaling Laws
for Neural Language Models", table 1). Scores count whole, also those that a causal mask hides: the XLA path computes
them. Norms, softmax and activations are left out; they take time by their bytes.
"""

from typing import NamedTuple

from zoo.planning.job import Job
from zoo.planning.model import LayerShape, ModelShape


class Operations(NamedTuple):
    """Operations of an update.

    Args:
        model: Those that the update needs: three times the forward pass, of all devices.
        computed: Those that all devices compute: with what `remat` computes again, and what several devices compute
            each for itself.
        of_device: Those that one device computes.
    """

    model: float
    computed: float
    of_device: float


def operations_of(shape: ModelShape, job: Job) -> Operations:
    """Returns the operations of an update.

    Args:
        shape: The model.
        job: The training.

    Example:

    >>> config = zoo.preset_config("gpt2_small")
    >>> round(operations_of(model_shape(without_values(config)), Job(config, 8, 1024)).model / 1e12, 2)
    7.94
    """
    tokens = job.batch_size * job.length
    inner = sum(2 * kernel.uses * kernel.size for kernel in shape.kernels if not kernel.is_output)
    inner += sum(_scores(layer, job.length) for layer in shape.layers)
    output = sum(2 * kernel.size for kernel in shape.kernels if kernel.is_output)
    # rows that fill up a batch are computed, too
    of_device = job.tokens_of_device * job.accumulation
    inner_part = sum(2 * kernel.uses * kernel.part for kernel in shape.kernels if not kernel.is_output)
    inner_part += sum(_scores(layer, job.length) / shape.model_size for layer in shape.layers)
    output_part = sum(2 * kernel.part for kernel in shape.kernels if kernel.is_output)
    # the loss has its gradient from the forward pass, and is never computed again
    own = of_device * ((4 if job.remat else 3) * inner_part + 3 * output_part)
    return Operations(tokens * 3 * (inner + output), own * job.devices, own)


def _scores(layer: LayerShape, length: int) -> float:
    """Operations of scores and of the weighted sum of values, for a token of a layer."""
    product = 2 * layer.heads * (layer.key_dim + layer.value_dim)
    own = min(length, layer.window or length) * product
    return own + (length * product if layer.has_cross_attention else 0)
