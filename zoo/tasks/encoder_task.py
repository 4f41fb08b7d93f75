"""Base class of the tasks that read hidden states, and pooling of these."""

from collections.abc import Sequence
from typing import Any, ClassVar

import keras
from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.config import TransformerConfig
from zoo.export import Endpoint, Field
from zoo.preprocessing.labels import Labels
from zoo.preprocessing.rows import require_count
from zoo.storage import quote
from zoo.tasks.attention_endpoint import attention_endpoint
from zoo.tasks.task import Task

POOLINGS = ("first", "mean", "mean_sqrt", "weighted_mean", "max", "last", "pooler")


class EncoderTask(Task):
    """Base class of tasks that read the hidden states of a backbone.

    With an encoder-decoder, encoder and decoder read the same tokens, and the task reads the decoder's hidden states.
    The backbone's pooler is trained only in tasks that use it. Several tasks may share a backbone.

    Args:
        backbone, preprocessor: See `Task`.
        decoder_start_id: With an encoder-decoder, the id of the token before the decoder's tokens, or "last" for the
            last token of each row (mBART). Default the tokenizer's start token, else its padding token.
        **options: As for `Task`.

    Raises:
        ValueError: If the task does not support the architecture of the backbone, or there is no such token.

    Reference:
        Lewis et al. 2020, "BART", section 3.1 (the same tokens for encoder and decoder).
    """

    # whether the backbone's pooler acts on the outputs
    uses_pooler = False
    # the input that says which positions the head reads, where there is one
    positions_input: ClassVar[str | None] = None

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: Any = None,
        *,
        decoder_start_id: int | str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **options)
        config = backbone.config
        if not isinstance(config, TransformerConfig):
            raise ValueError(
                f"backbone of a {type(self).__name__} must be a Transformer, got a {type(backbone).__name__}."
            )
        self.decoder_start_id: int | str | None = None
        if config.architecture != "encoder_decoder":
            if decoder_start_id is not None:
                raise ValueError(
                    f"decoder_start_id must be None with a backbone of one stack, got {decoder_start_id!r}."
                )
            return
        self.input_names: Sequence[str] = ("token_ids", "padding_mask")
        ids = (decoder_start_id, *(getattr(self.tokenizer, name, None) for name in ("start_id", "pad_id")))
        first = next((index for index in ids if index is not None), None)
        if first != "last":
            first = require_count(first, "decoder_start_id", 0, config.vocabulary_size - 1)
        self.decoder_start_id = first

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        embedding = self.backbone.config.embedding
        return embedding.factor_dim if embedding.factor_output else self.backbone.config.hidden_dim

    def own_options(self) -> dict[str, Any]:
        return {} if self.decoder_start_id is None else {"decoder_start_id": self.decoder_start_id}

    def attention_endpoint(self) -> Endpoint:
        """Returns the endpoint `attention`, see `zoo.tasks.attention_endpoint`."""
        texts = next(iter(self.endpoints().values())).inputs
        return attention_endpoint(self, texts, self.text_tokens)

    def text_tokens(self, *texts: Any) -> Any:
        """Returns the arguments of `preprocessor.inputs` for the texts of an export; a graph function.

        Args:
            *texts: String tensors `(batch,)`, one or two.
        """
        return self.preprocessor.tokens(texts if len(texts) > 1 else texts[0])

    def hidden(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        """Returns hidden states, `(batch, length, width)`; those of the decoder for an encoder-decoder.

        If the backbone has a final projection to another width (OPT), they are its outputs.

        Args:
            inputs: `token_ids` and `padding_mask`, `(batch, length)`, and other inputs of the backbone. Padding must be
                on the right with an encoder-decoder.
            training: Whether dropout is active.
        """
        states = self.backbone(self.backbone_inputs(inputs), training=training)
        return self._narrowed(states if self.decoder_start_id is None else states["decoder_sequence_output"])

    def _narrowed(self, states: Any) -> Any:
        narrow = self.backbone.output_factor
        return states if narrow is None or self.decoder_start_id is not None else narrow(states)

    def finish(self, hidden: Any) -> Any:
        return self._narrowed(super().finish(hidden))

    def backbone_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the inputs of the backbone. In an encoder-decoder both stacks read the same tokens."""
        if self.decoder_start_id is None:
            return {name: value for name, value in inputs.items() if name != self.positions_input}
        ids, mask = inputs["token_ids"], inputs["padding_mask"]
        if self.decoder_start_id == "last":
            start = ops.squeeze(pool(ids[:, :, None], mask, "last"), -1)
        else:
            start = ops.full_like(ids[:, 0], self.decoder_start_id)
        shifted = ops.concatenate([start[:, None], ids[:, :-1]], axis=1)
        stacks = {"encoder_token_ids": ids, "encoder_padding_mask": mask}
        stacks |= {"decoder_token_ids": shifted, "decoder_padding_mask": mask}
        return stacks

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        return self._without_idle(super().trainable_variables)

    @property
    def trainable_weights(self) -> list[keras.Variable]:
        return self._without_idle(super().trainable_weights)

    @property
    def non_trainable_variables(self) -> list[keras.Variable]:
        return self._others(self.variables, self.trainable_variables)

    @property
    def non_trainable_weights(self) -> list[keras.Variable]:
        return self._others(self.weights, self.trainable_weights)

    def _without_idle(self, variables: list[keras.Variable]) -> list[keras.Variable]:
        # Keras asks before the task has a backbone, too
        pooler = getattr(getattr(self, "backbone", None), "pooler", None)
        return variables if pooler is None or self.uses_pooler else self._others(variables, pooler.variables)

    @staticmethod
    def _others(variables: list[keras.Variable], these: list[keras.Variable]) -> list[keras.Variable]:
        left_out = {id(variable) for variable in these}
        return [variable for variable in variables if id(variable) not in left_out]


def pool(hidden: Any, mask: Any, pooling: str, backbone: Any = None) -> Any:
    """Returns one vector per row, `(batch, hidden_dim)`.

    Args:
        hidden: `(batch, length, hidden_dim)`.
        mask: True where a token is real, `(batch, length)`.
        pooling: The "first" or "last" real token, "mean" or "max" over the real tokens, their sum divided by the root
            of their number ("mean_sqrt"), their mean with the weights 1, 2, 3 and so on ("weighted_mean"), or the
            backbone's "pooler". The mean of a row without tokens is zero, and so is its maximum.
        backbone: The backbone, for "pooler".
    """
    if pooling in ("first", "last", "pooler"):
        # padding may be on either side
        places = ops.cast(mask, "int32") * ops.arange(1, ops.shape(mask)[1] + 1, dtype="int32")
        chosen = ops.argmax(places if pooling == "last" else ops.cast(mask, "int32"), axis=1)
        states = ops.take_along_axis(hidden, chosen[:, None, None], axis=1)
        return backbone.pool(states) if pooling == "pooler" else ops.squeeze(states, 1)
    token_mask = ops.expand_dims(ops.cast(mask, "float32"), -1)
    states = ops.cast(hidden, "float32")
    if pooling == "max":
        has_tokens = ops.max(token_mask, axis=1) > 0
        return ops.where(has_tokens, ops.max(ops.where(token_mask > 0, states, -1e30), axis=1), 0.0)
    weights = token_mask * ops.cumsum(token_mask, axis=1) if pooling == "weighted_mean" else token_mask
    divisor = ops.maximum(ops.sum(weights, axis=1), 1.0)
    return ops.sum(states * weights, axis=1) / (ops.sqrt(divisor) if pooling == "mean_sqrt" else divisor)


def require_pooling(pooling: Any, backbone: Any) -> str:
    """Returns the kind of pooling, the default if none is given.

    Args:
        pooling: A kind; None for "pooler" where the backbone has one, else "first" for an encoder and "last" otherwise.
        backbone: The backbone.

    Raises:
        ValueError: If there is no such kind, or it does not fit the backbone.
    """
    has_pooler = bool(getattr(backbone.config, "pooler", False))
    if pooling is None:
        return "pooler" if has_pooler else "first" if backbone.config.architecture == "encoder" else "last"
    if pooling not in POOLINGS:
        raise ValueError(f"pooling must be one of {POOLINGS} or None, got {quote(pooling)}.")
    if pooling == "pooler" and not has_pooler:
        allowed = ", ".join(repr(name) for name in POOLINGS if name != "pooler")
        raise ValueError(f"pooling must be one of {allowed} with a backbone without a pooler, got 'pooler'.")
    return pooling


def take_positions(values: Any, positions: Any) -> Any:
    """Returns the vectors at some positions of each row, `(batch, count, dim)`.

    Args:
        values: `(batch, length, dim)`.
        positions: `(batch, count)`; those below 0 give the vector of position 0.
    """
    positions = ops.maximum(ops.cast(positions, "int32"), 0)
    return ops.take_along_axis(values, ops.expand_dims(positions, -1), axis=1)


def label_names(labels: Labels) -> Endpoint:
    """Returns the endpoint that gives the names of labels, strings `(labels,)`.

    Args:
        labels: The labels.
    """
    import tensorflow as tf

    output = Field("label_names", (len(labels),), "string", "the labels in the order of the probabilities")
    return Endpoint(lambda: tf.constant(labels.strings), (), (output,), "The names of the labels.")
