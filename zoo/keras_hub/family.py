"""A backbone class of KerasHub: what its arguments mean and where its weights are."""

from collections.abc import Mapping
from typing import Any, ClassVar

from zoo.config import TransformerConfig
from zoo.storage import quote

Table = Mapping[str, str]


class Arguments:
    """The arguments of a backbone class of KerasHub: a subclass is a dataclass that has them as fields.

    Attributes:
        class_name: Name of the class.
        table: Paths of the weights by the names of our layers, `{}` standing for the number of a block; a path has no
            name of a weight at its end where that is ours.
    """

    class_name: ClassVar[str]
    table: ClassVar[Table]

    def config(self) -> TransformerConfig:
        """Returns our configuration of this model."""
        raise NotImplementedError

    @classmethod
    def of(cls, config: TransformerConfig) -> "Arguments":
        """Returns the arguments for our configuration; choices that this class lacks are left out."""
        raise NotImplementedError


_FAMILIES: dict[str, type[Arguments]] = {}


def register_backbone(cls: type[Arguments]) -> type[Arguments]:
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
