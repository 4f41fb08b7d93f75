"""Bytes that a device holds while it trains, and when it holds most.

Held all the time: weights and what the optimizer holds of those that train (both moments of Adam), and with
accumulation the mean of the gradients so far.

Held at the end of the forward pass: what the backward pass needs of each layer (activations); the copies of weights in
the type of products; the gradients of the projection to logits, which the loss computes along with itself; a piece of
the logits. At the end of the backward pass: the gradients of all weights, which are clipped by their norm all together,
and what one layer needs while it is gone through. The peak is at one of both ends, as in between the one falls as the
other grows.

What a layer keeps for each token depends on how much the compiler fuses (`_KEPT`): of each norm its input and, on
processors, the normalized input and the result, of the model's width; queries, keys, values and results of the heads;
some numbers for each of the width of a feed-forward network; where scores are held, some for each head and each token
that is attended to. Inputs of products with weights that do not train are not read again. Dropout keeps a byte for each
number. A mixture of experts keeps the rows of all its blocks, free ones included, and without a capacity a copy of the
matrices for each block. With `remat` a layer keeps its input. Along the axis "model" heads and widths of networks are
shared, vectors of the model's width are not. Compare Korthikanti et al. 2022, "Reducing Activation Recomputation in
Large Transformer Models", section 4, who count four numbers of the model's width for both norms, and one for each
score.
"""

from typing import NamedTuple

from zoo.planning.job import Job
from zoo.planning.model import LayerShape, ModelShape
from zoo.planning.optimizer import numbers_of_optimizer
from zoo.planning.traffic import pieces_of


class _Kept(NamedTuple):
    """What programs of a compiler hold, counted in numbers.

    Args:
        norm: Of each number of a norm.
        gated, plain: Of each number between the products of a feed-forward network, with a gate and without.
        scores: Of each score.
        bytes_of_score: Bytes of one; None for those of the type that is computed in.
        logits: Of each logit of a piece, in float32: logits, exponentials, probabilities, gradient.
        whole_last_layer: Whether all that the last layer keeps is there together with the loss.
        layer: Share of what a layer keeps that is held while its gradients are computed.
        layer_again: The same with `remat`.
        copies: Share of the weights of which copies are held at a time; others are cast where they are read.
        gradient: Bytes of a number of gradients; None for those of the type that is computed in.
    """

    norm: float
    gated: float
    plain: float
    scores: float
    bytes_of_score: int | None
    logits: float
    whole_last_layer: bool
    layer: float
    layer_again: float
    copies: float
    gradient: int | None


# Fitted by hand to compiled programs. "cpu": to those of XLA for processors in float32, which tests compare each time.
# "accelerator": to a dozen of XLA for TPU v5e (libtpu 0.0.42.1), of small models in float32 and bfloat16, with `remat`
# and without; `test_programs_of_tpus` compares them where libtpu is installed. Dropout of attention weights takes far
# more there than is planned. No program for a GPU has been looked at.
_KEPT = {
    "cpu": _Kept(3, 5, 3, 3, 4, 4, True, 1, 2, 1, 4),
    "accelerator": _Kept(1, 3, 2, 1, None, 1, False, 0.25, 0.25, 0.5, None),
}


class Memory(NamedTuple):
    """Bytes of one device.

    Args:
        weights: Of the weights that it has.
        gradients: Of those that train.
        optimizer: What the optimizer holds for these, and accumulated gradients.
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
    kept = _KEPT[job.compiler]
    gradients = shape.trainable_of_device * min(job.weight_itemsize, kept.gradient or job.itemsize)
    optimizer = numbers_of_optimizer(shape, job) * job.weight_itemsize
    vector = shape.config.hidden_dim * job.itemsize
    layers = [_kept_of(layer, shape, job, kept) for layer in shape.layers]
    held = sum(layers if kept.whole_last_layer else layers[:-1])
    if job.remat:
        held = sum(vector * job.tokens_of_device for layer in shape.layers if layer.trains)
    copies = kept.copies * shape.parameters_of_device * job.itemsize if job.itemsize != job.weight_itemsize else 0.0
    if job.remat:
        copies /= max(1, len(layers))
    logits = output_gradients = 0.0
    if shape.has_output:
        # pieces are of one size
        at_once = -(-job.tokens_of_device // pieces_of(job))
        # a loop over pieces holds two of them
        copies_of_piece = max(kept.logits, 2 if pieces_of(job) > 1 else 1)
        logits = copies_of_piece * 4 * at_once * shape.vocabulary_part
        kernel = sum(kernel.part for kernel in shape.kernels if kernel.is_output and kernel.trains)
        output_gradients = 4 * kernel + vector * job.tokens_of_device
    return Memory(
        weights=shape.parameters_of_device * job.weight_itemsize,
        gradients=gradients,
        optimizer=optimizer + (shape.trainable_of_device * job.weight_itemsize if job.accumulation > 1 else 0),
        copies=copies,
        activations=held,
        layer=(kept.layer_again if job.remat else kept.layer) * max(layers),
        logits=logits,
        output_gradients=output_gradients,
    )


def _kept_of(layer: LayerShape, shape: ModelShape, job: Job, kept: _Kept) -> float:
    """Bytes that a layer keeps, with nothing computed again."""
    if not layer.trains:
        return 0.0
    width, devices = shape.config.hidden_dim, shape.model_size
    heads = layer.heads / devices
    memory_heads = layer.key_value_heads / (devices if layer.key_value_heads % devices == 0 else 1)
    attentions = 2 if layer.has_cross_attention else 1
    # results of the heads are read by the gradient of the output projection alone
    results = heads * layer.value_dim
    own = (heads + memory_heads) * (layer.key_dim + layer.value_dim) - ("output" not in layer.reads) * results
    normalized = kept.norm - (0 if kept.norm == 1 else 1) * ("attention" not in layer.reads)
    normalized_in_network = kept.norm - (0 if kept.norm == 1 else 1) * ("up" not in layer.reads)
    numbers = (attentions * normalized + normalized_in_network) * width + attentions * own
    inner = (kept.gated if layer.gated else kept.plain) - ("down" not in layer.reads)
    numbers += inner * layer.intermediate_dim / devices
    size = numbers * job.itemsize + layer.dropouts * width
    if job.attention == "scores":
        seen = min(job.length, layer.window or job.length) + (job.length if layer.has_cross_attention else 0)
        of_score = kept.scores * (kept.bytes_of_score or job.itemsize)
        size += seen * heads * (of_score + (job.itemsize + 1 if layer.attention_dropout else 0))
    size *= job.tokens_of_device
    experts = layer.experts
    if experts is not None:
        # a row as it comes, and as it leaves
        of_row = 2 * width + inner * experts.intermediate_dim
        size += experts.rows(job.tokens_of_device) * of_row * job.itemsize
        if experts.capacity_factor is None:
            size += experts.blocks / experts.number * layer.expert_parameters * job.itemsize
    return size
