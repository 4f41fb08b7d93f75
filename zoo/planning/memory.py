"""Bytes that a device holds while it trains, and when it holds most.

Held all the time: weights and what the optimizer holds of those that train (both moments of Adam), and with
accumulation the mean of the gradients so far.

Held at the end of the forward pass: what the backward pass needs of each layer (activations); copies of weights in the
type of products; the gradients of the projection to logits, which the loss computes along with itself; a piece of the
logits with the vectors that are projected. At the end of the backward pass: the gradients of all weights, which are
clipped by their norm all together. With both comes what the gradients of one layer take while they are computed. The
peak is at one of both ends, as in between the one falls as the other grows.

What a layer keeps for each token depends on how much the compiler fuses (`_KEPT`): of each norm its input, of the
model's width; queries, keys, values and results of the heads; some numbers for each of the width of a feed-forward
network; where scores are held, some for each head and each token that is attended to. Inputs of products that norms or
activations make, and that a compiler holds nevertheless, are not held for weights that do not train. Dropout keeps a
byte for each number. A mixture of experts keeps the rows of all its blocks, free ones included, and without a capacity
a copy of the matrices for each block. With `remat` a layer keeps its input, and all of one layer is there while its
gradients are computed. Along the axis "model" heads and widths of networks are shared, vectors of the model's width are
not. Compare Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section 4, who
count four numbers of the model's width for both norms, and one for each score.
"""

from typing import NamedTuple

from zoo.planning.job import Job
from zoo.planning.model import LayerShape, ModelShape
from zoo.planning.optimizer import numbers_of_optimizer
from zoo.planning.traffic import bytes_of_gradients, pieces_of


class _Kept(NamedTuple):
    """What programs of a compiler hold, counted in numbers.

    Args:
        norm: Of each number of a norm.
        gated, plain, relu: Of each number between the products of a feed-forward network, with a gate, without, and
            with ReLU, whose gradient follows from its result.
        holds_inputs: Whether these hold inputs of products that norms and activations make.
        scores: Of each score.
        bytes_of_score: Bytes of one.
        logits: Of each logit of a piece, in float32: logits, exponentials, probabilities, gradient.
        logits_of_two: The same where there are two pieces: XLA unrolls the loop over the second, and may compute both
            at a time.
        bytes_of_vectors: Bytes besides for each number of the vectors that are projected to logits.
        layer: Share of what a layer keeps that its gradients take besides; None where it is counted, see `_gradients`.
        copies: Share of the weights of which copies are held at a time; others are cast where they are read.
    """

    norm: float
    gated: float
    plain: float
    relu: float
    holds_inputs: bool
    scores: float
    bytes_of_score: int
    logits: float
    logits_of_two: float
    bytes_of_vectors: int
    layer: float | None
    copies: float


# "cpu": fitted by hand to programs of XLA for processors in float32, which tests compare each time.
# "accelerator": what programs of XLA for TPU v5e (libtpu 0.0.42.1) hold at their peak, buffer by buffer.
# * An activation, a norm and a softmax are computed again in the products that read them. Held are the inputs of norms,
#   the factors of attention, what comes out of "gate" and "up", without a gate also what the activation makes of it,
#   and scores, which are float32 for any type.
# * Of a piece there are the logits and their gradient; of the vectors, when the loss is done, two gradients in float32.
# * These programs cast weights where they read them. Libraries of GPUs may need a copy of each: half of all is assumed.
# Small programs of TPUs hold all of this in 128 MiB of the chip besides its main memory, which XLA's analysis of memory
# leaves out: `test_programs_of_tpus` compiles large ones. Dropout of attention weights takes far more than is planned.
_KEPT = {
    "cpu": _Kept(3, 5, 3, 3, True, 3, 4, 4, 7, 0, 0.6, 1),
    "accelerator": _Kept(1, 2, 2, 1, False, 1, 4, 2, 2, 8, None, 0.5),
}


class Memory(NamedTuple):
    """Memory of one device, in bytes.

    Args:
        weights: Its weights.
        gradients: Gradients of its trainable weights.
        optimizer: Optimizer state of these weights, and accumulated gradients.
        copies: Copies of weights in the type of the matrix products, and weights gathered from other devices.
        activations: Activations of all layers that the backward pass needs.
        layer: Temporary tensors in the backward pass of a layer, with `remat` also the activations of the layer.
        logits: A piece of the logits with its copies, and the vectors that are projected to logits.
        output_gradients: Gradients of the output projection and of its inputs.
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
        """Peak bytes, at the end of the forward pass or of the backward pass."""
        forward = self.copies + self.activations + self.output_gradients + max(self.logits, self.layer)
        return self.weights + self.optimizer + max(forward, self.gradients + self.layer)


def memory_of(shape: ModelShape, job: Job) -> Memory:
    """Returns the memory of a device.

    Args:
        shape: The model.
        job: The training.

    Example:

    >>> config = zoo.preset_config("gpt2_small")
    >>> round(memory_of(model_shape(without_values(config)), Job(config, 8, 1024)).weights / 1e9, 2)
    0.5
    """
    kept = _KEPT[job.compiler]
    optimizer = numbers_of_optimizer(shape, job) * job.weight_itemsize
    vector = shape.config.hidden_dim * job.itemsize
    layers = [_kept_of(layer, shape, job, kept) for layer in shape.layers]
    taken = [_gradients(layer, size, shape, job, kept) for layer, size in zip(shape.layers, layers, strict=True)]
    held = sum(layers)
    if job.remat:
        held = sum(vector * job.tokens_of_device for layer in shape.layers if layer.trains)
        taken = [sum(both) for both in zip(layers, taken, strict=True)]
    copies = kept.copies * shape.parameters_of_device * job.itemsize if job.itemsize != job.weight_itemsize else 0.0
    if job.remat:
        copies /= max(1, len(layers))
    # what has been gathered for the forward pass is there for the backward pass
    own = sum(weight.kept(job.along_data) for weight in shape.weights)
    copies += (shape.parameters_of_device - own) * job.weight_itemsize
    accumulated = sum(weight.kept(job.along_data) for weight in shape.weights if weight.trains)
    logits = output_gradients = 0.0
    if shape.has_output:
        # pieces are of one size
        at_once = -(-job.tokens_of_device // pieces_of(job))
        copies_of_piece = kept.logits_of_two if pieces_of(job) == 2 else kept.logits
        logits = copies_of_piece * 4 * at_once * shape.vocabulary_part
        logits += kept.bytes_of_vectors * shape.config.hidden_dim * job.tokens_of_device
        kernel = sum(kernel.part for kernel in shape.kernels if kernel.is_output and kernel.trains)
        output_gradients = 4 * kernel + vector * job.tokens_of_device
    return Memory(
        weights=own * job.weight_itemsize,
        gradients=bytes_of_gradients(shape, job),
        optimizer=optimizer + (accumulated * job.weight_itemsize if job.accumulation > 1 else 0),
        copies=copies,
        activations=held,
        layer=max(taken),
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
    own += layer.further_dim / devices
    normalized = kept.norm - kept.holds_inputs * ("attention" not in layer.reads)
    normalized_in_network = (kept.norm - kept.holds_inputs * ("up" not in layer.reads)) * layer.has_network
    numbers = (attentions * normalized + normalized_in_network) * width + attentions * own
    inner = _inner(layer, shape, kept) - kept.holds_inputs * ("down" not in layer.reads)
    numbers += inner * layer.intermediate_dim / devices
    of_score = kept.scores * kept.bytes_of_score + (job.itemsize + 1 if layer.attention_dropout else 0)
    size = numbers * job.itemsize + layer.dropouts * width + _scores(layer, shape, job) * of_score
    size *= job.tokens_of_device
    experts = layer.experts
    if experts is not None:
        # a row as it comes, and as it leaves
        of_row = 2 * width + inner * experts.intermediate_dim
        size += experts.rows(job.tokens_of_device) * of_row * job.itemsize
        if experts.capacity_factor is None:
            size += experts.blocks / experts.number * layer.expert_parameters * job.itemsize
    return size


def _inner(layer: LayerShape, shape: ModelShape, kept: _Kept) -> float:
    """How many numbers are held for each between the products of a feed-forward network."""
    if layer.gated:
        return kept.gated
    return kept.relu if shape.config.feed_forward.activation == "relu" else kept.plain


def _scores(layer: LayerShape, shape: ModelShape, job: Job) -> float:
    """Scores of a token on one device, of all its heads; none where a kernel holds none."""
    if job.attention == "flash":
        return 0.0
    seen = min(job.length, layer.window or job.length) + (job.length if layer.has_cross_attention else 0)
    return seen * layer.heads / shape.model_size


def _gradients(layer: LayerShape, size: float, shape: ModelShape, job: Job, kept: _Kept) -> float:
    """Bytes that the gradients of a layer take while they are computed, besides what it keeps.

    In the network: the gradient of one of its inner vectors, and three vectors of the model's width. In the attention,
    when what the network keeps is no longer needed: attention weights and the gradients of scores.
    """
    if not layer.trains:
        return 0.0
    if kept.layer is not None:
        return kept.layer * size
    width, tokens = shape.config.hidden_dim, job.tokens_of_device
    inner = tokens * layer.intermediate_dim / shape.model_size
    if layer.experts is not None:
        inner += layer.experts.rows(tokens) * layer.experts.intermediate_dim
    let_go = _inner(layer, shape, kept) * inner + kept.norm * width * tokens
    in_attention = 2 * _scores(layer, shape, job) * tokens - let_go
    return (max(inner, in_attention) + 3 * width * tokens) * job.itemsize
