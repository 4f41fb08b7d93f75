"""What all backbones share: made from a configuration, reloaded from one."""

from typing import Any

import keras
from keras import ops

from zoo.config import RecurrentConfig, TransformerConfig, config_from_dict


class Backbone(keras.Model):
    """A model from token ids to hidden states, described by a configuration.

    Weights exist as soon as the object does. `Backbone.from_config(config)` makes the right class for any
    configuration.

    A backbone that decodes defines `start_decoding`, `advance` and `logits`, and where its state has room for so many
    tokens only `resize_state`.

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

    def start_decoding(self, inputs: dict[str, Any], capacity: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns what a decoding loop carries and what it only reads.

        Args:
            inputs: Of an encoder-decoder `encoder_token_ids` and `encoder_padding_mask`, `(batch, encoder_length)`. For
                prompts of several lengths, padded on the left, `padding_mask` `(batch, prompt_length)`, true where a
                token is real; a decoder always takes it.
            capacity: Number of positions to decode at most, prompt included.

        Returns:
            `(state, constants)`: nested dictionaries and lists of tensors with the batch on axis 0.
        """
        raise NotImplementedError(f"{type(self).__name__} does not decode.")

    def advance(
        self, token_ids: Any, index: Any, state: dict[str, Any], constants: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Feeds tokens at positions `index, index + 1, ...` to the decoder.

        Args:
            token_ids: `(batch, new)`.
            index: Number of positions decoded so far, a scalar integer.
            state, constants: What `start_decoding` or the last `advance` returned.

        Returns:
            Hidden states `(batch, new, hidden_dim)` and the new state.
        """
        raise NotImplementedError(f"{type(self).__name__} does not decode.")

    def decode_step(
        self, token_ids: Any, index: Any, state: dict[str, Any], constants: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Feeds one token per row at position `index` and returns the logits of the next one.

        Args:
            token_ids: `(batch,)`.
            index: Position, a scalar integer.
            state, constants: What `start_decoding` or the last step returned.

        Returns:
            Logits `(batch, vocabulary)` in float32 and the new state.
        """
        hidden, state = self.advance(ops.expand_dims(token_ids, 1), index, state, constants)
        return ops.cast(self.logits(hidden)[:, 0], "float32"), state

    def resize_state(self, state: dict[str, Any], capacity: int, shift: Any = None) -> dict[str, Any] | None:
        """Returns a state with room for `capacity` positions.

        Args:
            state: A state, outside of a loop.
            capacity: Number of positions, no fewer than before.
            shift: By how many positions each row moves to the right, `(batch,)` NumPy integers, negative to the left.

        Returns:
            The new state; None if rows are to be moved and what they need is not there any more.
        """
        return state if shift is None else None

    def can_rewind(self, capacity: int) -> bool:
        """Returns whether tokens that were fed can be taken back, by feeding others at their positions.

        Args:
            capacity: Number of positions of the state.
        """
        return False

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
