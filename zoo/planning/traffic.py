"""Bytes that a device sends to others in an update, and how often.

A ring of n devices adds up b bytes that each of them holds by sending 2 (n - 1) / n b each (Patarasu and Yuan 2009,
"Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations"); gathering b bytes, of which each holds a part,
takes half of that.

Axis "data": the gradients of all weights of a device that train are added up, for each batch. Those of matrices are of
the type that products are computed in. Those of embeddings and norms are float32, as is that of the projection to
logits, which the loss makes (`zoo.training.vocabulary_pieces`). Weights that this axis divides are gathered once for
each batch, for the forward and the backward pass, and of their gradients a device adds up its part (Rajbhandari et al.
2020, "ZeRO", section 7).

Axis "model" (Shoeybi et al. 2019, "Megatron-LM", section 3): vectors of the model's width, one for each token. In a
layer the results of attention and of the feed-forward network are added up. In the backward pass the gradients at the
inputs of both are, once each; XLA for processors adds up those of query, key and value, and of gate and up, each for
itself. With `remat` the results of the attention are added up twice. A shared embedding adds up what is
looked up; a shared projection to logits the gradient of its inputs, and for each token six numbers of softmax and
label. Devices that do not divide the vocabulary share both by their width: then all logits are added up, and each
layer first gathers its inputs and their gradients. Devices that do not divide the heads of keys and values add up the
gradients of these. Experts add up blocks of rows, `2 - 1 / experts` for each expert of a token, and not tokens.
"""

from typing import NamedTuple

from zoo.planning.job import Job
from zoo.planning.model import ModelShape
from zoo.training.vocabulary_pieces import tokens_at_a_time

# Maximum and sum twice each, logit of the label twice.
_NUMBERS_OF_SOFTMAX = 6


class Traffic(NamedTuple):
    """Communication of a device along an axis of the mesh in an update.

    Args:
        bytes: Bytes that it sends.
        collectives: Number of collective operations, in which the devices of the axis wait for each other.
    """

    bytes: float
    collectives: int


def traffic_of(shape: ModelShape, job: Job) -> dict[str, Traffic]:
    """Returns the communication of a device in an update, by axis of the mesh.

    Args:
        shape: The model.
        job: The training.

    Example:

    >>> config = zoo.preset_config("gpt2_small")
    >>> job = Job(config, 64, 1024, data=8, dtype="float32")
    >>> traffic_of(model_shape(without_values(config)), job)["model"]
    Traffic(bytes=0.0, collectives=0)
    """
    return {"data": _along_data(shape, job), "model": _along_model(shape, job)}


def summed(size: float, devices: int) -> float:
    """Returns bytes that each device of a ring sends to add up bytes that all of them hold.

    Args:
        size: Bytes that a device holds.
        devices: Number of devices.

    Example:

    >>> summed(100.0, 4)
    150.0
    """
    return 2 * (devices - 1) / devices * size


def pieces_of(job: Job) -> int:
    """Returns in how many pieces the loss takes the tokens of a device.

    Args:
        job: The training.
    """
    return max(1, -(-job.tokens_of_device // tokens_at_a_time(job.config.vocabulary_size, job.device_memory)))


def bytes_of_gradients(shape: ModelShape, job: Job) -> float:
    """Returns the bytes of the gradients of the weights that one device has.

    Args:
        shape: The model.
        job: The training.
    """
    matrices = sum(weight.part for weight in shape.weights if weight.trains and weight.is_matrix)
    output = sum(kernel.part for kernel in shape.kernels if kernel.is_output and kernel.trains)
    if not shape.config.embedding.tie_output:
        matrices -= output
    others = shape.trainable_of_device - matrices
    return matrices * job.itemsize + others * 4


def _along_data(shape: ModelShape, job: Job) -> Traffic:
    if job.data == 1:
        return Traffic(0.0, 0)
    gathered = sum(weight.part for weight in shape.weights if weight.kept(job.along_data) < weight.part)
    output = sum(kernel.part for kernel in shape.kernels if kernel.is_output and kernel.trains)
    size = bytes_of_gradients(shape, job)
    # a tied one has a gradient as an embedding besides, of an encoder-decoder on each side
    if shape.config.embedding.tie_output:
        size += (2 if shape.has_two_sides else 1) * output * 4
    # XLA joins what is added up at the same time; besides, the sum of the weights of tokens
    sent, collectives = summed(size, job.data), 2
    if gathered:
        matrices = sum(weight.kept(job.along_data) < weight.part for weight in shape.weights)
        # XLA for processors adds up whole gradients and keeps a part; accelerators add up the part alone
        sent /= 1 if job.compiler == "cpu" else 2
        sent += summed(gathered * job.weight_itemsize, job.data) / 2
        collectives += 2 * matrices
    return Traffic(job.accumulation * sent, job.accumulation * collectives)


def _along_model(shape: ModelShape, job: Job) -> Traffic:
    if job.model == 1:
        return Traffic(0.0, 0)
    devices, tokens = job.model, job.tokens_of_device
    vectors = tokens * shape.config.hidden_dim * job.itemsize
    # a sum sends twice what gathering sends
    sums, gathered, size = 0, 0, 0.0
    for layer in shape.layers:
        attentions = 2 if layer.has_cross_attention else 1
        divides = layer.key_value_heads % devices == 0
        inputs, of_network = attentions * (3 if divides else 1), 1 + (2 if layer.gated else 1)
        if job.compiler == "accelerator":
            # of a cross-attention those of queries and, of the source, of keys and values
            inputs, of_network = 1 + (2 if layer.has_cross_attention else 0), 2
        sums += attentions + inputs + of_network + (attentions if job.remat else 0)
        if layer.experts is not None:
            # instead of the tokens, which a shared network has besides
            rows = layer.experts.rows(tokens) - (0 if layer.intermediate_dim else tokens)
            size += of_network * summed(rows * shape.config.hidden_dim * job.itemsize, devices)
        gathered += 2 * (attentions + 1) if shape.output_is_shared_by_width else 0
        if not divides:
            heads = layer.key_value_heads * (layer.key_dim + layer.value_dim)
            size += attentions * summed(tokens * heads * job.itemsize, devices)
    if shape.embedding_is_shared:
        sums += 2 if shape.has_two_sides else 1
    if shape.output_is_shared_by_width:
        size += summed(tokens * shape.config.vocabulary_size * 4, devices)
    elif shape.has_output:
        sums += 1
        size += summed(tokens * _NUMBERS_OF_SOFTMAX * 4, devices)
    size += sums * summed(vectors, devices) + gathered * summed(vectors, devices) / 2
    collectives = sums + gathered + pieces_of(job)
    return Traffic(job.accumulation * size, job.accumulation * collectives)
