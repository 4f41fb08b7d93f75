"""Bytes that a device holds while it trains, and when it holds most.

Held all the time: weights and both moments of Adam, and with accumulation the mean of the gradients so far.

Held at the end of the forward pass: what the backward pass needs of each layer (activations); the copies of weights in
the type of products; the gradients of the projection to logits, which the loss computes along with itself; a piece of
the logits. At the end of the backward pass: the gradients of all weights, which are clipped by their norm all together,
and what one layer needs while it is gone through. The peak is at one of both ends, as in between the one falls as the
other grows.

A layer keeps for each token what the derivatives of JAX read, as XLA's program for processors holds it: of each norm
its input, the normalized input and the result, of the model's width; queries, keys, values and results of the heads;
five numbers for each of the width of a feed-forward network with a gate, three without. Where scores are held,
attention keeps three numbers for each head and each token that is attended to, in float32. Dropout keeps a byte for
each number.
With `remat` a layer keeps its input. Along the axis "model" heads and widths of networks are shared, vectors of the
model's width are not. Kernels made for accelerators keep less: Korthikanti et al. 2022, "Reducing Activation
Recomputation in Large Transformer Models", section 4, count four numbers of the model's width for both norms, and one
for each score.
"""

from typing import NamedTuple

from zoo.planning.job import Job
from zoo.planning.model import LayerShape, ModelShape
from zoo.training.vocabulary_pieces import tokens_at_a_time

# A piece of the logits is held as logits, exponentials, probabilities and gradient, in float32.
_COPIES_OF_LOGITS = 4
# Numbers that are kept of each score, and of each number of a norm.
_OF_SCORES = _OF_NORM = 3


class Memory(NamedTuple):
    """Bytes of one device.

    Args:
        weights, gradients: Of the weights that it has.
        optimizer: Moments, and accumulated gradients.
        copies: Copies of weights in the type that products are computed in.
        activations: What the backward pass needs of all layers.
        layer: What it needs besides for the gradients of the largest layer, with `remat` also to compute it again.
        logits: A piece of the logits in all its forms.
        output_gradients: Gradients of the projection to logits and of the vectors that it is applied to.
    """

    weights: float
    gradients: float
    optimizer: float
    copies: float
    activations: float
    layer: float
    logits: float
    output_gradients: float

    @property
    def peak(self) -> float:
        """Bytes at most, at the end of the forward pass or of the backward pass."""
        forward = self.copies + self.activations + self.output_gradients + max(self.logits, self.layer)
        return self.weights + self.optimizer + max(forward, self.gradients + self.layer)


def memory_of(shape: ModelShape, job: Job) -> Memory:
    """Returns what a device holds.

    Args:
        shape: The model.
        job: The training.

    Example:

    >>> config = zoo.preset_config("gpt2_small")
    >>> round(memory_of(model_shape(without_values(config)), Job(config, 8, 1024)).weights / 1e9, 2)
    0.5
    """
    own = shape.parameters_of_device * job.weight_itemsize
    vector = shape.config.hidden_dim * job.itemsize
    layers = [_kept(layer, shape, job) * job.tokens_of_device for layer in shape.layers]
    kept = len(layers) * vector * job.tokens_of_device if job.remat else sum(layers)
    copies = 0 if job.itemsize == job.weight_itemsize else shape.parameters_of_device * job.itemsize
    if job.remat:
        copies /= max(1, len(layers))
    logits = output_gradients = 0.0
    if shape.has_output:
        at_once = min(job.tokens_of_device, tokens_at_a_time(shape.config.vocabulary_size))
        logits = _COPIES_OF_LOGITS * 4 * at_once * shape.vocabulary_part
        kernel = sum(kernel.part for kernel in shape.kernels if kernel.is_output)
        output_gradients = 4 * kernel + vector * job.tokens_of_device
    return Memory(
        weights=own,
        gradients=own,
        optimizer=own * (3 if job.accumulation > 1 else 2),
        copies=copies,
        activations=kept,
        layer=(2 if job.remat else 1) * max(layers),
        logits=logits,
        output_gradients=output_gradients,
    )


def _kept(layer: LayerShape, shape: ModelShape, job: Job) -> float:
    """Bytes that a layer keeps for each token, with nothing computed again."""
    width, devices = shape.config.hidden_dim, shape.model_size
    heads = layer.heads / devices
    memory_heads = layer.key_value_heads / (devices if layer.key_value_heads % devices == 0 else 1)
    attentions = 2 if layer.has_cross_attention else 1
    own = (heads + memory_heads) * (layer.key_dim + layer.value_dim)
    numbers = _OF_NORM * (attentions + 1) * width + attentions * own
    numbers += (5 if layer.gated else 3) * layer.intermediate_dim / devices
    size = numbers * job.itemsize + layer.dropouts * width
    if job.attention == "scores":
        seen = min(job.length, layer.window or job.length) + (job.length if layer.has_cross_attention else 0)
        size += seen * heads * (4 * _OF_SCORES + (job.itemsize + 1 if layer.attention_dropout else 0))
    return size
