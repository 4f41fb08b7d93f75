"""Bytes that a device sends to others in an update, and how often.

A ring of n devices adds up b bytes that each of them holds by sending 2 (n - 1) / n b each (Patarasu and Yuan 2009,
"Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations"); gathering b bytes, of which each holds a part,
takes half of that.

Axis "data": the gradients of all weights of a device are added up, for each batch, in the type that products are
computed in. The loss takes the tokens in pieces (`zoo.training.vocabulary_pieces`), and XLA adds up the gradient of the
projection to logits for each piece, in float32, as it stands in the program for processors.

Axis "model" (Shoeybi et al. 2019, "Megatron-LM", section 3): vectors of the model's width, one for each token. In each
layer the results of attention and of the feed-forward network are added up; in the backward pass the gradients at the
inputs of both. With `remat` the results of the attention are added up twice. A shared embedding adds up what is looked
up, or gathers it where it is shared by its width; a shared projection to logits adds up the gradient of its inputs,
or, where it is shared by its width, all logits.
"""

from typing import NamedTuple

from zoo.planning.job import Job
from zoo.planning.model import ModelShape
from zoo.training.vocabulary_pieces import tokens_at_a_time


class Traffic(NamedTuple):
    """What a device sends along an axis of the mesh in an update.

    Args:
        bytes: Bytes that it sends.
        collectives: How often the devices of the axis wait for each other.
    """

    bytes: float
    collectives: int


def traffic_of(shape: ModelShape, job: Job) -> dict[str, Traffic]:
    """Returns what a device sends in an update, by axis of the mesh.

    Args:
        shape: The model.
        job: The training.

    Example:

    >>> config = zoo.preset_config("gpt2_small")
    >>> job = Job(config, 64, 1024, data=8, dtype="float32")
    >>> round(traffic_of(model_shape(without_values(config)), job)["data"].bytes / 1e9, 2)
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
    """Returns in how many pieces the loss takes the tokens of a batch, of all devices.

    Args:
        job: The training.
    """
    tokens = job.rows_of_device * job.data * job.length
    return max(1, -(-tokens // tokens_at_a_time(job.config.vocabulary_size)))


def _along_data(shape: ModelShape, job: Job) -> Traffic:
    if job.data == 1:
        return Traffic(0.0, 0)
    output = sum(kernel.part for kernel in shape.kernels if kernel.is_output)
    size = (shape.parameters_of_device - output) * job.itemsize + pieces_of(job) * output * 4
    # XLA joins what is added up at the same time: about one for each layer
    collectives = len(shape.layers) + (pieces_of(job) if output else 1)
    return Traffic(job.accumulation * summed(size, job.data), job.accumulation * collectives)


def _along_model(shape: ModelShape, job: Job) -> Traffic:
    if job.model == 1:
        return Traffic(0.0, 0)
    sums = 0
    for layer in shape.layers:
        attentions = 2 if layer.has_cross_attention else 1
        sums += 2 * (attentions + 1) + (attentions if job.remat else 0)
        # the gradient of the source, by which all cross-attentions have keys and values
        sums += layer.has_cross_attention
    vectors = job.tokens_of_device * shape.config.hidden_dim * job.itemsize
    size, collectives = summed(sums * vectors, job.model), sums
    sides = 2 if shape.has_two_sides else 1
    if shape.embedding_is_shared:
        size += sides * summed(vectors, job.model)
        collectives += sides
    if shape.has_output:
        by_width = job.tokens_of_device * shape.config.vocabulary_size * 4
        size += summed(by_width if shape.output_is_shared_by_width else vectors, job.model)
        collectives += pieces_of(job)
    return Traffic(job.accumulation * size, job.accumulation * collectives)
