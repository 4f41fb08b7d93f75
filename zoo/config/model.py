"""What the configurations of all models have in common: to plain values and back."""

import dataclasses
import json
from typing import Any, ClassVar, Self

from zoo.config.checks import configuration_from_dict, require


class ModelConfig:
    """Base of the configurations of models, which are frozen dataclasses.

    `to_dict` writes the class as `kind`. `zoo.config.config_from_dict` reads the dictionary of any class.

    Example:

    >>> config = RecurrentConfig(vocabulary_size=1000, hidden_dim=64)
    >>> RecurrentConfig.from_json(config.to_json()) == config
    True
    """

    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Returns the configuration as nested dictionaries of plain values."""
        return {"kind": self.kind, **dataclasses.asdict(self)}

    def to_json(self) -> str:
        """Returns the configuration as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Returns the configuration of nested dictionaries.

        Args:
            values: The result of `to_dict`. `kind` and keys with a default may be left out.

        Raises:
            ValueError: If a key is unknown (the message suggests the nearest), or a value is out of range.
        """
        require(isinstance(values, dict), "The configuration", values, "a dictionary")
        values = dict(values)
        kind = values.pop("kind", cls.kind)
        require(kind == cls.kind, "kind", kind, repr(cls.kind))
        return configuration_from_dict(cls, values, "")

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns the configuration from the JSON text of `to_json`. Errors are those of `from_dict`."""
        return cls.from_dict(json.loads(text))
