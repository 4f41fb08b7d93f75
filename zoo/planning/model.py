"""What a plan must know of a model: how many weights each device has, the products that they are in, its layers."""

import dataclasses
import math
from typing import Any, Literal, NamedTuple

from layers.mixture_of_experts import MixtureOfExperts
from zoo.backbones.backbone import Backbone
from zoo.config import TransformerConfig
from zoo.distribution.layouts import MODEL, partitions_of
from zoo.storage.deferred import shapes_only

Side = Literal["source", "target"]


class Kernel(NamedTuple):
    """A matrix that the vector of each token is multiplied by.

    Args:
        size: Numbers of it.
        part: Numbers that one device has of it.
        uses: How often a token meets each of its numbers: the number of layers that share it, and of experts the share
            that a token is sent to.
        side: Whose tokens: those of the source of an encoder-decoder, or of the target; other models have targets only.
        is_output: Whether it makes the logits.
    """

    size: int
    part: int
    uses: float
    side: Side
    is_output: bool = False


class LayerShape(NamedTuple):
    """The sizes of a layer that activations and scores follow from.

    Args:
        side: Whose tokens it computes.
        heads, key_value_heads: Numbers of heads.
        key_dim, value_dim: Widths of a head.
        window: Tokens that a token attends to at most; None for all.
        has_cross_attention: Whether it also attends to the source, with as many heads.
        intermediate_dim: Numbers between the two products of the feed-forward networks that a token goes through.
        gated: Whether these have a gate.
        rows_of_token: Vectors of the model's width that these networks make for a token: of experts, those of all rows
            of their blocks.
        dropouts: Number of dropouts on vectors of the model's width.
        attention_dropout: Whether attention weights have dropout.
    """

    side: Side
    heads: int
    key_value_heads: int
    key_dim: int
    value_dim: int
    window: int | None
    has_cross_attention: bool
    intermediate_dim: int
    gated: bool
    rows_of_token: float
    dropouts: int
    attention_dropout: bool


@dataclasses.dataclass(frozen=True)
class ModelShape:
    """A Transformer as a plan sees it.

    Args:
        config: The configuration.
        model_size: Devices that share the weights.
        parameters: Number of weights.
        parameters_of_device: Number that one device has.
        parameters_on_all: Number of weights that each of these devices has whole.
        kernels: Matrices of products.
        layers: Layers, in order.
        vocabulary_part: Logits of a token that one device computes.
        embedding_is_shared: Whether devices share the embedding.
        output_is_shared_by_width: Whether devices share the projection to logits by its width, because they do not
            divide the vocabulary; the logits are then added up.
    """

    config: TransformerConfig
    model_size: int
    parameters: int
    parameters_of_device: int
    parameters_on_all: int
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
        """Whether it predicts tokens; the head of an encoder depends on the task, and is not planned."""
        return self.config.architecture != "encoder"


def without_values(config: TransformerConfig) -> Backbone:
    """Returns a model whose weights have shapes and no values: nothing is allocated, however large it is.

    Args:
        config: The configuration.

    Raises:
        TypeError: If it is not the configuration of a Transformer.
    """
    if not isinstance(config, TransformerConfig):
        raise TypeError(f"config must be a TransformerConfig to be planned, got {type(config).__name__}.")
    with shapes_only():
        return Backbone.from_config(config)


def model_shape(backbone: Backbone, model_size: int = 1) -> ModelShape:
    """Returns what a plan must know of a model.

    Args:
        backbone: The model; its weights need no values.
        model_size: Devices that share the weights.

    Raises:
        ValueError: If the devices do not divide heads or widths.

    Example:

    >>> model_shape(without_values(zoo.preset_config("llama_3_8b")), 8).parameters
    8030261248
    """
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
    kernels = [*_kernels_of_layers(backbone, sizes, parts), *_kernels_around(backbone, output, sizes, parts)]
    return ModelShape(
        config,
        model_size,
        parameters=sum(sizes.values()),
        parameters_of_device=sum(parts.values()),
        parameters_on_all=sum(size for key, size in sizes.items() if parts[key] == size),
        kernels=tuple(kernels),
        layers=tuple(_layer_shape(*entry) for entry in _layers_of(backbone)),
        vocabulary_part=config.vocabulary_size // (model_size if by_vocabulary else 1),
        embedding_is_shared=shared["in"],
        output_is_shared_by_width=shared["out"] and not by_vocabulary,
    )


def _layers_of(backbone: Any) -> list[tuple[Any, Side]]:
    """The block of each layer and whose tokens it computes."""
    layers = []
    for stack in (backbone.encoder, backbone.decoder):
        if stack is not None:
            is_source = stack is backbone.encoder and backbone.decoder is not None
            layers += [(block, "source" if is_source else "target") for block in stack.layers_in_order()]
    return layers


def _kernels_of_layers(backbone: Any, sizes: dict[int, int], parts: dict[int, int]) -> list[Kernel]:
    kernels = []
    for block, side in _layers_of(backbone):
        experts = {}
        if isinstance(block.feed_forward, MixtureOfExperts):
            router = block.feed_forward.router
            names = ("gate_kernel", "up_kernel", "down_kernel")
            held = (getattr(block.feed_forward, name) for name in names)
            experts = {id(weight): router.experts_per_token / router.num_experts for weight in held}
        of_source = set()
        if block.cross_attention is not None:
            attention = block.cross_attention
            projections = (attention.key_projection, attention.value_projection)
            of_source = {id(weight) for projection in projections for weight in projection.weights}
        for weight in block.weights:
            if weight.name.endswith("kernel"):
                key = id(weight)
                whose = "source" if key in of_source else side
                kernels.append(Kernel(sizes[key], parts[key], experts.get(key, 1.0), whose))
    return kernels


def _kernels_around(backbone: Any, output: Any, sizes: dict[int, int], parts: dict[int, int]) -> list[Kernel]:
    """Matrices before the first layer and behind the last."""
    kernels = []
    factor = backbone.token_embedding.factor
    sides = ("source", "target") if backbone.encoder is not None and backbone.decoder is not None else ("target",)
    if factor is not None:
        kernels += [Kernel(sizes[id(factor.kernel)], parts[id(factor.kernel)], 1.0, side) for side in sides]
    if backbone.decoder is not None:
        if backbone.output_factor is not None:
            key = id(backbone.output_factor.kernel)
            kernels.append(Kernel(sizes[key], parts[key], 1.0, "target"))
        kernels.append(Kernel(sizes[id(output)], parts[id(output)], 1.0, "target", is_output=True))
    return kernels


def _layer_shape(block: Any, side: Side) -> LayerShape:
    attention, network = block.attention, block.feed_forward
    width, rows = network.intermediate_dim, 1.0
    if isinstance(network, MixtureOfExperts):
        width = width * network.router.experts_per_token + (network.shared_intermediate_dim or 0)
        has_shared = network.shared_intermediate_dim is not None
        rows = (2 - 1 / network.num_experts) * network.router.experts_per_token + has_shared
    window = attention.window
    return LayerShape(
        side,
        attention.num_heads,
        attention.num_key_value_heads,
        attention.head_dim,
        attention.value_head_dim,
        None if window is None or None in window else sum(window) + 1,
        block.cross_attention is not None,
        width,
        network.gated,
        rows,
        len(block.dropouts),
        bool(attention.dropout_rate),
    )
