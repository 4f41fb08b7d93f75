"""Floating-point operations of an update, of a forward pass, and of generation.

A product of n vectors with a matrix of m numbers takes 2 n m operations, and its two gradients as many again each; a
matrix that does not train has none, and inputs before which nothing trains have none. What is counted are the products:
of kernels, of scores, of attention weights with values (Kaplan et al. 2020, "Scaling Laws for Neural Language Models",
table 1). Norms, softmax and activations are left out; they take time by their bytes.

With `attention="scores"` scores count whole, also those that a causal mask hides: the XLA path computes them. With
`attention="flash"` those that are visible count, half of them in a long causal row, and the backward pass makes them
again, five products after the two of the forward pass (Dao 2023, "FlashAttention-2", sections 3.1 and 4.1).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from zoo.planning.job import Job
from zoo.planning.kernels import Kernel
from zoo.planning.model import LayerShape, ModelShape
from zoo.planning.optimizer import operations_of_optimizer


class Operations(NamedTuple):
    """Floating-point operations of an update.

    Args:
        model: Operations that the update needs on all devices: those of the forward pass and, if all weights are
            trained, twice as many for the gradients.
        computed: Operations that all devices compute, including recomputation by `remat`, work that is repeated on
            several devices, free rows of experts, and the optimizer.
        of_device: Operations that one device computes.
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
    needed = sum(2 * kernel.uses * kernel.size * kernel.products for kernel in shape.kernels)
    is_fused = job.attention == "flash"

    def scores(layer: LayerShape) -> float:
        return _scores(layer, job.length, shape if is_fused else None)

    needed += sum(scores(layer) * _passes(layer) for layer in shape.layers)
    # rows that fill up a batch are computed, too
    tokens = job.tokens_of_device * job.accumulation

    def computed(kernel: Kernel) -> float:
        uses = kernel.uses
        if kernel.experts is not None:
            uses = kernel.experts.rows(job.tokens_of_device) / kernel.experts.number / job.tokens_of_device
        # the loss has its gradient by the vectors in any case, from the forward pass, and is never computed again
        again = job.remat and kernel.products > 1 and not kernel.is_output and not kernel.is_last
        return 2 * uses * kernel.part * (kernel.products + again)

    own = sum(map(computed, shape.kernels))
    for layer in shape.layers:
        passes = _passes(layer) + (job.remat and layer.trains) + 0.5 * (is_fused and layer.attention_trains)
        own += scores(layer) / shape.model_size * passes
    own = tokens * own + operations_of_optimizer(shape, job)
    return Operations(job.batch_size * job.length * needed, own * job.devices, own)


def forward_operations(shape: ModelShape, rows: int, length: int) -> float:
    """Returns the operations of a forward pass.

    Args:
        shape: The model.
        rows: Number of rows.
        length: Tokens of a row; of an encoder-decoder on each side.

    Example:

    >>> config = zoo.preset_config("bert_base_uncased")
    >>> round(forward_operations(model_shape(without_values(config)), 32, 128) / 1e9)
    734
    """
    return rows * length * _of_token(shape, lambda layer: _scores(layer, length))


def generation_operations(shape: ModelShape, rows: int, prompt: int, new_tokens: int) -> float:
    """Returns the operations of generating tokens with a key-value cache, without those of the prompt.

    Args:
        shape: A decoder.
        rows: Number of rows, including all beams.
        prompt: Number of tokens of a prompt.
        new_tokens: Number of generated tokens of each row.

    Raises:
        ValueError: If the model is not a decoder.

    Example:

    >>> config = zoo.preset_config("gpt2_small")
    >>> round(generation_operations(model_shape(without_values(config)), 1, 16, 224) / 1e9, 1)
    56.4
    """
    if shape.config.architecture != "decoder":
        raise ValueError(f"shape must be that of a decoder, got that of a model of kind {shape.config.architecture!r}.")
    held = prompt + new_tokens / 2
    return rows * new_tokens * _of_token(shape, lambda layer: _scores(layer, held))


def _of_token(shape: ModelShape, scores: Callable[[LayerShape], float]) -> float:
    """Operations of a forward pass for a token."""
    return sum(2 * kernel.uses * kernel.size for kernel in shape.kernels) + sum(map(scores, shape.layers))


def _passes(layer: LayerShape) -> int:
    """How often the scores of a layer are gone through in an update: forward, and twice back where gradients pass."""
    return 3 if layer.attention_trains else 1


def _scores(layer: LayerShape, length: float, fused_in: ModelShape | None = None) -> float:
    """Operations of scores and of the weighted sum of values, or with the states of a mixer, for a token of a layer.

    Args:
        layer: The layer.
        length: Tokens that are attended to.
        fused_in: The model, if a kernel computes visible scores alone; None if all are computed.
    """
    product = 2 * layer.heads * (layer.key_dim + layer.value_dim)
    own = min(length, layer.window or math.inf)
    if fused_in is not None and layer.side == "target" and fused_in.config.architecture != "encoder":
        # token i sees i tokens, of a window at most its width: the mean over the row
        own -= own * (own - 1) / (2 * length)
    return own * product + (length * product if layer.has_cross_attention else 0) + 2 * layer.state_products
