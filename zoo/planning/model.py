"""What a plan must know of a model: how many weights each device has, the products that they are in, its layers."""

import dataclasses
import math
from typing import Any, NamedTuple

from layers.attention.checks import GLOBAL_PROJECTIONS
from layers.mixture_of_experts import MixtureOfExperts
from zoo.backbones.backbone import Backbone
from zoo.config import TransformerConfig
from zoo.distribution.layouts import MODEL, partitions_of
from zoo.planning.kernels import (
    Experts,
    Kernel,
    Layer,
    Side,
    Weight,
    experts_of,
    kernels_around,
    kernels_of_layers,
    reads_of,
    weights_before_layers,
)
from zoo.storage.deferred import shapes_only


class LayerShape(NamedTuple):
    """The sizes of a layer that activations and scores follow from.

    Args:
        side: Whose tokens it computes.
        heads, key_value_heads: Numbers of heads; 0 where a mixer takes the place of attention.
        key_dim, value_dim: Widths of a head.
        window: Tokens that a token attends to at most; None for all.
        further_dim: Numbers of a token between the products of a mixer, or of the projections for global tokens.
        state_products: Products of a token with the states of a mixer.
        has_cross_attention: Whether it also attends to the source, with as many heads.
        intermediate_dim: Numbers between the two products of the feed-forward network, 0 where there is none; with
            experts of those that all tokens share.
        gated: Whether these have a gate.
        dropouts: Number of dropouts on vectors of the model's width.
        attention_dropout: Whether attention weights have dropout.
        experts: The experts of its feed-forward network, if it has some.
        expert_parameters: Numbers in the matrices of all of them.
        attention_trains: Whether gradients pass through its attention: a weight trains in it or before it.
        trains: Whether one does in the layer or before it.
        reads: Which products have gradients that read their inputs: "attention" (those of query, key and value),
            "output", "up" (and gate), "down".
    """

    side: Side
    heads: int
    key_value_heads: int
    key_dim: int
    value_dim: int
    window: int | None
    further_dim: int
    state_products: int
    has_cross_attention: bool
    intermediate_dim: int
    gated: bool
    dropouts: int
    attention_dropout: bool
    experts: Experts | None
    expert_parameters: int
    attention_trains: bool
    trains: bool
    reads: frozenset[str]

    @property
    def has_network(self) -> bool:
        """Whether it has a feed-forward network."""
        return self.intermediate_dim > 0 or self.experts is not None


@dataclasses.dataclass(frozen=True)
class ModelShape:
    """The sizes of a Transformer that a plan needs.

    Args:
        config: The configuration.
        model_size: Number of devices among which the weights are divided.
        parameters: Number of weights.
        parameters_of_device: Number of weights on one device.
        parameters_on_all: Number of weights that are whole on each of these devices.
        trainable: Number of trainable weights.
        trainable_of_device: Number of trainable weights on one device.
        weights: All weights.
        kernels: Matrices of products.
        layers: Layers, in order.
        vocabulary_part: Number of logits of a token that one device computes.
        embedding_is_shared: Whether the embedding is divided among devices.
        output_is_shared_by_width: Whether the output projection is divided by its width, because the number of devices
            does not divide the vocabulary. The logits are then summed over devices.
    """

    config: TransformerConfig
    model_size: int
    parameters: int
    parameters_of_device: int
    parameters_on_all: int
    trainable: int
    trainable_of_device: int
    weights: tuple[Weight, ...] = dataclasses.field(repr=False, compare=False)
    kernels: tuple[Kernel, ...]
    layers: tuple[LayerShape, ...]
    vocabulary_part: int
    embedding_is_shared: bool
    output_is_shared_by_width: bool

    @property
    def has_two_sides(self) -> bool:
        """Whether it is an encoder-decoder."""
        return self.config.architecture == "encoder_decoder"

    @property
    def has_output(self) -> bool:
        """Whether its loss is over the vocabulary. Outputs of an encoder depend on the task, and are not planned."""
        return self.config.architecture != "encoder"


def without_values(config: TransformerConfig) -> Backbone:
    """Returns a model whose weights have shapes but no values, so that no memory is allocated.

    Args:
        config: The configuration.

    Raises:
        TypeError: If it is not the configuration of a Transformer.
    """
    if not isinstance(config, TransformerConfig):
        raise TypeError(f"config must be a TransformerConfig to be planned, got {type(config).__name__}.")
    with shapes_only():
        return Backbone.from_config(config)


def model_shape(model: Any, model_size: int = 1) -> ModelShape:
    """Returns the sizes of a model that a plan needs.

    Args:
        model: A `Backbone` or a task. Its weights need no values. Of the head of a task only the weights count, which
            are whole on each device.
        model_size: Number of devices among which the weights are divided.

    Raises:
        ValueError: If the number of devices does not divide heads or widths.

    Example:

    >>> model_shape(without_values(zoo.preset_config("llama_3_8b")), 8).parameters
    8030261248
    """
    backbone = model if isinstance(model, Backbone) else model.backbone
    config = backbone.config
    partitions = partitions_of(backbone, model_size)
    parts = {
        id(weight): math.prod(weight.shape) // (model_size if MODEL in partition else 1)
        for weight, partition in partitions
    }
    axes = {id(weight): partition for weight, partition in partitions}
    sizes = {id(weight): math.prod(weight.shape) for weight, _ in partitions}
    table = backbone.token_embedding.table.embeddings
    output = table if backbone.output_projection is None else backbone.output_projection.kernel
    vocabulary_axis = 0 if output is table else 1
    shared = {name: model_size > 1 and MODEL in axes[id(weight)] for name, weight in (("in", table), ("out", output))}
    by_vocabulary = shared["out"] and axes[id(output)][vocabulary_axis] == MODEL
    of_backbone = [Weight(weight, sizes[id(weight)], parts[id(weight)], partition) for weight, partition in partitions]
    of_head = [weight for weight in model.weights if id(weight) not in sizes]
    whole = [(weight, math.prod(weight.shape)) for weight in of_head]
    # the layouts of heads of tasks are whole
    weights = (*of_backbone, *(Weight(weight, size, size, ()) for weight, size in whole))
    layers = _layers_of(backbone)
    kernels = [*kernels_of_layers(backbone, layers, weights), *kernels_around(backbone, output, weights)]
    return ModelShape(
        config,
        model_size,
        parameters=sum(weight.size for weight in weights),
        parameters_of_device=sum(weight.part for weight in weights),
        parameters_on_all=sum(weight.size for weight in weights if weight.part == weight.size),
        trainable=sum(weight.size for weight in weights if weight.trains),
        trainable_of_device=sum(weight.part for weight in weights if weight.trains),
        weights=weights,
        kernels=tuple(kernels),
        layers=tuple(_layer_shape(layer) for layer in layers),
        vocabulary_part=config.vocabulary_size // (model_size if by_vocabulary else 1),
        embedding_is_shared=shared["in"],
        output_is_shared_by_width=shared["out"] and not by_vocabulary,
    )


def _layers_of(backbone: Any) -> list[Layer]:
    """The layers in order, with what trains before and in them."""
    layers = []
    before = any(weight.trainable for weight in weights_before_layers(backbone))
    for stack in (backbone.encoder, backbone.decoder):
        if stack is None:
            continue
        side = "source" if stack is backbone.encoder and backbone.decoder is not None else "target"
        for number in stack.block_of_layer:
            block = stack.blocks[number]
            in_attention = any(
                weight.trainable
                for part in (block.attention, block.cross_attention)
                if part is not None
                for weight in part.weights
            )
            in_block = any(weight.trainable for weight in block.weights)
            has_mixer = stack.config.has_mixer(number)
            layers.append(Layer(block, side, has_mixer, before, before or in_attention, before or in_block))
            before = before or in_block
    return layers


def _layer_shape(layer: Layer) -> LayerShape:
    block, network = layer.block, layer.block.feed_forward
    experts, width, parameters = experts_of(network), getattr(network, "intermediate_dim", 0), 0
    if isinstance(network, MixtureOfExperts):
        # what passes through the experts is counted by their rows
        width = network.shared_intermediate_dim or 0
        parameters = sum(math.prod(weight.shape) for weight in experts.kernels)
    of_attention: dict[str, Any] = dict.fromkeys(("heads", "key_value_heads", "key_dim", "value_dim"), 0)
    of_attention |= {"window": None, "attention_dropout": False}
    if not layer.has_mixer:
        attention, window = block.attention, block.attention.window
        of_attention = {
            "heads": attention.num_heads,
            "key_value_heads": attention.num_key_value_heads,
            "key_dim": attention.head_dim,
            "value_dim": attention.value_head_dim,
            "window": None if window is None or None in window else sum(window) + 1,
            "attention_dropout": bool(attention.dropout_rate),
        }
    return LayerShape(
        layer.side,
        **of_attention,
        further_dim=block.attention.kept_dim if layer.has_mixer else _global_dim(block.attention),
        state_products=block.attention.state_products if layer.has_mixer else 0,
        has_cross_attention=block.cross_attention is not None,
        intermediate_dim=width,
        gated=getattr(network, "gated", False),
        dropouts=len(block.dropouts),
        experts=experts,
        expert_parameters=parameters,
        attention_trains=layer.attention_trains,
        trains=layer.trains,
        reads=reads_of(block),
    )


def _global_dim(attention: Any) -> int:
    """Numbers of a token that the projections for global tokens give; 0 without them."""
    projections = (getattr(attention, f"{name}_projection") for name in GLOBAL_PROJECTIONS)
    return sum(projection.units for projection in projections if projection is not None)
