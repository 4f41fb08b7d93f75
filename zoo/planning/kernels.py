"""The matrices of a model: how often a token meets each of them, and which gradients their products have."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from layers.attention.checks import GLOBAL_PROJECTIONS
from layers.keras_internals import sublayers
from layers.mixture_of_experts import MixtureOfExperts
from zoo.distribution.layouts import DATA, Partition, divided_along_data

Side = Literal["source", "target"]
# low-rank updates have two factors in place of a kernel
_MATRICES = ("kernel", "lora_a", "lora_b")
# products of attention, or of a mixer in its place, and of feed-forward networks, by what they are multiplied with
_OF_MIXER = {"input_gate", "output_gate", "strength", "decay", "step"}
_OF_ATTENTION = {
    "attention": {"query", "key", "value", "gate", *GLOBAL_PROJECTIONS, *_OF_MIXER},
    "output": {"output"},
}
_OF_NETWORK = {"up": {"gate", "up"}, "down": {"down"}}


class Weight(NamedTuple):
    """A weight.

    Args:
        variable: Its variable, which needs no value.
        size: Numbers of it.
        part: Numbers of it that one device computes with.
        partition: How the axis "model" divides it, see `zoo.distribution.layouts.partition_of`.
    """

    variable: Any
    size: int
    part: int
    partition: Partition

    def kept(self, along_data: int) -> int:
        """Returns how many numbers of it one device keeps between updates.

        Args:
            along_data: Number of devices along the axis "data" that have a part of each matrix; 1 for whole ones.
        """
        is_divided = DATA in divided_along_data(self.variable, self.partition, along_data)
        return self.part // along_data if is_divided else self.part

    @property
    def trains(self) -> bool:
        """Whether it trains."""
        return bool(self.variable.trainable)

    @property
    def is_matrix(self) -> bool:
        """Whether vectors are multiplied by it: a kernel, or a factor of a low-rank update. An embedding is none."""
        return self.variable.name.endswith(_MATRICES)


class Layer(NamedTuple):
    """A layer of a stack.

    Args:
        block: Its block.
        side: Whose tokens it computes.
        has_mixer: Whether it has a mixer in the place of attention.
        trains_before: Whether a weight before it trains, so that gradients pass through the whole of it.
        attention_trains: Whether one does before it or in its attention.
        trains: Whether one does before it or in it.
    """

    block: Any
    side: Side
    has_mixer: bool
    trains_before: bool
    attention_trains: bool
    trains: bool


@dataclasses.dataclass(frozen=True)
class Experts:
    """The experts of a layer.

    Args:
        number: How many there are.
        per_token: How many a token is sent to.
        capacity_factor: See `layers.MixtureOfExperts`.
        intermediate_dim: Width of the inner layer of each.
        kernels: Their matrices.
    """

    number: int
    per_token: int
    capacity_factor: float | None
    intermediate_dim: int
    kernels: tuple[Any, ...] = dataclasses.field(repr=False, compare=False)

    @property
    def blocks(self) -> int:
        """Blocks of rows that are computed: an expert has one or, without a capacity, as many as its tokens fill."""
        return self.number if self.capacity_factor is not None else 2 * self.number - 1

    def rows(self, tokens: int) -> int:
        """Returns the rows of all blocks, free ones included.

        Args:
            tokens: Tokens that are computed at once.
        """
        assignments = tokens * self.per_token
        if self.capacity_factor is not None:
            return self.number * math.ceil(self.capacity_factor * assignments / self.number)
        return min(self.blocks, assignments) * math.ceil(assignments / self.number)


class Kernel(NamedTuple):
    """A matrix that the vector of each token is multiplied by.

    Args:
        size: Numbers of it.
        part: Numbers that one device has of it.
        uses: How often a token meets each of its numbers: of experts the share that a token is sent to.
        side: Whose tokens: those of the source of an encoder-decoder, or of the target; other models have targets only.
        trains: Whether it has a gradient.
        passes: Whether its inputs have one.
        is_output: Whether it makes the logits.
        is_last: Whether its results are not read in the backward pass of its layer, so that `remat` leaves it out.
        experts: The experts whose matrices it holds.
    """

    size: int
    part: int
    uses: float
    side: Side
    trains: bool
    passes: bool
    is_output: bool = False
    is_last: bool = False
    experts: Experts | None = None

    @property
    def products(self) -> int:
        """Products of its size for each token of an update, with nothing computed again."""
        return 1 + self.trains + self.passes


def experts_of(network: Any) -> Experts | None:
    """Returns the experts of a feed-forward network, None where it has none.

    Args:
        network: The layer.
    """
    if not isinstance(network, MixtureOfExperts):
        return None
    held = (getattr(network, name, None) for name in ("gate_kernel", "up_kernel", "down_kernel"))
    return Experts(
        network.num_experts,
        network.router.experts_per_token,
        network.capacity_factor,
        network.intermediate_dim,
        tuple(kernel for kernel in held if kernel is not None),
    )


def reads_of(block: Any) -> frozenset[str]:
    """Returns which products of a block have gradients that read their inputs, see `LayerShape`.

    Args:
        block: The block.
    """

    found = set()
    for part in (block.attention, block.cross_attention, block.feed_forward):
        groups = _OF_NETWORK if part is block.feed_forward else _OF_ATTENTION
        for weight in () if part is None else part.weights:
            if weight.trainable and weight.name.endswith(("kernel", "lora_a")):
                # "gate_kernel" of experts, "gate/kernel" and "gate/update_default/lora_a" of others
                names = {name.removesuffix("_kernel") for name in weight.path.split("/")[-3:]}
                found |= {group for group, members in groups.items() if names & members}
    return frozenset(found)


def weights_before_layers(backbone: Any) -> list[Any]:
    """Returns the weights that stand before all layers: those of embeddings, positions and what follows them.

    Args:
        backbone: The model.
    """
    behind = {
        id(weight) for stack in (backbone.encoder, backbone.decoder) if stack is not None for weight in stack.weights
    }
    if backbone.output_projection is not None:
        behind |= {id(weight) for weight in backbone.output_projection.weights}
    if backbone.output_factor is not None:
        behind |= {id(weight) for weight in backbone.output_factor.weights}
    return [weight for weight in backbone.weights if id(weight) not in behind]


def kernels_of_layers(backbone: Any, layers: Iterable[Layer], weights: Iterable[Weight]) -> list[Kernel]:
    """Returns the matrices of the layers; a layer that shares its block with others has them once more.

    Args:
        backbone: The model.
        layers: Its layers.
        weights: Its weights.
    """
    known = {id(weight.variable): weight for weight in weights}
    config = backbone.config
    # what follows the last product of a layer reads it: a norm, a learned factor
    reads_last = config.norm.placement not in ("pre", "parallel") or config.layer_scale is not None
    kernels = []
    for layer in layers:
        block = layer.block
        experts = experts_of(block.feed_forward)
        of_experts = {id(kernel) for kernel in experts.kernels} if experts else set()
        first = _inputs_of(block)
        of_source = set()
        if block.cross_attention is not None:
            attention = block.cross_attention
            of_source = _ids(attention.key_projection, attention.value_projection)
        last, network = set(), block.feed_forward
        if not experts and not reads_last:
            last = _ids(block.attention.output_projection if network is None else network.down)
        for variable in block.weights:
            if not known[id(variable)].is_matrix:
                continue
            key = id(variable)
            is_expert = key in of_experts
            kernels.append(
                Kernel(
                    known[key].size,
                    known[key].part,
                    experts.per_token / experts.number if is_expert else 1.0,
                    "source" if key in of_source else layer.side,
                    trains=known[key].trains,
                    passes=layer.trains_before if key in first else layer.trains,
                    is_last=key in last,
                    experts=experts if is_expert else None,
                )
            )
    return kernels


def kernels_around(backbone: Any, output: Any, weights: Iterable[Weight]) -> list[Kernel]:
    """Returns the matrices before the first layer and behind the last.

    Args:
        backbone: The model.
        output: The weight that makes the logits.
        weights: Its weights.
    """
    known = {id(weight.variable): weight for weight in weights}
    kernels = []

    def add(variable: Any, side: Side, **options: Any) -> None:
        weight = known[id(variable)]
        kernels.append(Kernel(weight.size, weight.part, 1.0, side, trains=weight.trains, **options))

    factor, table = backbone.token_embedding.factor, backbone.token_embedding.table.embeddings
    sides = ("source", "target") if backbone.encoder is not None and backbone.decoder is not None else ("target",)
    if factor is not None:
        for side in sides:
            add(factor.kernel, side, passes=bool(table.trainable))
    if backbone.decoder is not None:
        if backbone.output_factor is not None:
            add(backbone.output_factor.kernel, "target", passes=True)
        add(output, "target", passes=True, is_output=True)
    return kernels


def _inputs_of(block: Any) -> set[int]:
    """The weights that are multiplied by the inputs of an attention, or of a mixer in its place."""
    names = _OF_ATTENTION["attention"]
    parts = sublayers(block.attention, recursive=False, include_self=False)
    return _ids(*(part for part in parts if part.name in names))


def _ids(*parts: Any) -> set[int]:
    return {id(weight) for part in parts for weight in part.weights if not weight.name.endswith("lora_b")}
