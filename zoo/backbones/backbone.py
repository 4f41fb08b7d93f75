"""What all backbones share: made from a configuration, reloaded from one."""

from typing import Any

import keras

from zoo.config import RecurrentConfig, TransformerConfig, config_from_dict


class Backbone(keras.Model):
    """A model from token ids to hidden states, described by a configuration.

    Weights exist as soon as the object does. `Backbone.from_config(config)` makes the right class for any
    configuration.

    Args:
        config: The configuration.

    Example:

    >>> backbone = Backbone.from_config(TransformerConfig("encoder", vocabulary_size=1000))
    >>> backbone({"token_ids": ids, "padding_mask": ids != 0}).shape
    (2, 10, 512)
    """

    def __init__(self, config: TransformerConfig | RecurrentConfig, **kwargs: Any):
        super().__init__(**kwargs)
        self.config = config

    @classmethod
    def from_config(cls, config: TransformerConfig | RecurrentConfig | dict[str, Any]) -> "Backbone":
        """Returns a backbone of a configuration object, or of the dictionary that `get_config` returned.

        Raises:
            TypeError: If `config` is neither.
        """
        from zoo.backbones.recurrent import RecurrentSeq2Seq
        from zoo.backbones.transformer import Transformer

        backbones = {TransformerConfig: Transformer, RecurrentConfig: RecurrentSeq2Seq}
        options = {}
        if isinstance(config, dict):
            options = dict(config)
            config = config_from_dict(options.pop("config"))
        if type(config) not in backbones:
            allowed = " or ".join(sorted(kind.__name__ for kind in backbones))
            raise TypeError(f"config must be a {allowed} or a dictionary, got {type(config).__name__}.")
        return backbones[type(config)](config, **options)

    def get_config(self) -> dict[str, Any]:
        return {
            "config": self.config.to_dict(),
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
        }

    def parameter_count(self) -> int:
        """Returns the number of weights, shared ones counted once."""
        return self.count_params()
