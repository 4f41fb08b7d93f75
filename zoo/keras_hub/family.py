"""A backbone class of KerasHub: what its arguments mean and where its weights are."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from zoo.config import AttentionConfig, FeedForwardConfig, NormConfig, PositionConfig, TransformerConfig
from zoo.storage import quote


@dataclasses.dataclass(frozen=True)
class Place:
    """Where weights are that are not stored as ours.

    Args:
        path: Path of the layer, or of the weight.
        groups: In how many groups the outputs of each of several layers are cut, see `zoo.huggingface.weights.Stored`.
        heads_first: Whether the axis of the heads comes before that of the inputs.
    """

    path: str
    groups: int = 1
    heads_first: bool = False


Table = Mapping[str | tuple[str, ...], str | Place]


class Arguments:
    """The arguments of a backbone class of KerasHub: a subclass is a dataclass that has them as fields.

    Attributes:
        class_name: Name of the class.
        table: Paths of the weights by the names of our layers, `{}` standing for the number of a block; a path has no
            name of a weight at its end where that is ours. Several of our layers that they store as one are a tuple of
            names, and whatever is stored otherwise is a `Place`.
    """

    class_name: ClassVar[str]
    table: ClassVar[Table]

    @staticmethod
    def variables(theirs: Any) -> dict[str, Any]:
        """Returns the variables of their backbone by path, those left out that follow from the arguments.

        Args:
            theirs: The backbone.
        """
        return {variable.path: variable for variable in theirs.weights}

    def config(self) -> TransformerConfig:
        """Returns our configuration of this model."""
        raise NotImplementedError

    @classmethod
    def of(cls, config: TransformerConfig) -> "Arguments":
        """Returns the arguments for our configuration; choices that this class lacks are left out."""
        raise NotImplementedError

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, Any]:
        """Returns the arguments of this class alone."""
        return {}


@dataclasses.dataclass(frozen=True)
class LearnedPositionArguments(Arguments):
    """The arguments that classes with a table of positions have in common."""

    vocabulary_size: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    intermediate_dim: int
    dropout: float = 0.1
    max_sequence_length: int = 512

    @classmethod
    def of(cls, config: TransformerConfig) -> "LearnedPositionArguments":
        return cls(
            vocabulary_size=config.vocabulary_size,
            num_layers=config.num_layers,
            num_heads=config.attention.num_heads,
            hidden_dim=config.hidden_dim,
            intermediate_dim=config.feed_forward.intermediate_dim,
            dropout=config.dropout,
            max_sequence_length=config.max_length,
            **cls.more(config),
        )

    def transformer(self, architecture: str, norm: NormConfig, activation: str, **choices: Any) -> TransformerConfig:
        """Returns our configuration with these arguments.

        Args:
            architecture, norm: As in `TransformerConfig`.
            activation: Activation of the feed-forward network.
            **choices: Further choices of `TransformerConfig`.
        """
        return TransformerConfig(
            architecture,
            self.vocabulary_size,
            hidden_dim=self.hidden_dim,
            num_layers=self.num_layers,
            max_length=self.max_sequence_length,
            attention=AttentionConfig(self.num_heads, dropout=self.dropout),
            position=PositionConfig("learned"),
            norm=norm,
            feed_forward=FeedForwardConfig(self.intermediate_dim, activation),
            dropout=self.dropout,
            initializer_range=0.02,
            **choices,
        )


T = TypeVar("T", bound=type[Arguments])

_FAMILIES: dict[str, type[Arguments]] = {}


def register_backbone(cls: T) -> T:
    """Adds a class of KerasHub, a decorator."""
    _FAMILIES[cls.class_name] = cls
    return cls


def get_backbone_class(name: Any) -> type[Arguments]:
    """Returns the arguments of a class of KerasHub.

    Args:
        name: Name of the class.

    Raises:
        ValueError: If it is not known here.
    """
    if not isinstance(name, str) or name not in _FAMILIES:
        raise ValueError(f"class_name must be one of {sorted(_FAMILIES)}, got {quote(name)}.")
    return _FAMILIES[name]


def all_backbone_classes() -> list[type[Arguments]]:
    """Returns the arguments of all known classes."""
    return list(_FAMILIES.values())
