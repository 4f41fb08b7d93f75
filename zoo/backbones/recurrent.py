"""The recurrent encoder-decoder: fixed context or soft attention, as its configuration says."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
from keras import ops

from layers.capture import is_captured, point
from layers.dense import Dense
from layers.devices import seed_of_replica
from layers.dropout import Dropout
from layers.embeddings import TokenEmbedding
from layers.recurrent import RecurrentDecoder, RecurrentEncoder, ScheduledSampling
from layers.roles import OUTPUT_VOCABULARY, Role
from zoo.backbones.backbone import Backbone, require_right_padding
from zoo.backbones.output_map import OutputMap
from zoo.config import RecurrentConfig
from zoo.config.checks import arguments_of
from zoo.distribution.layouts import laid_out
from zoo.generation.random import draw


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class RecurrentSeq2Seq(Backbone):
    """A recurrent encoder-decoder of any configuration.

    In training (`training=True`), `config.feeding` decides which tokens the decoder reads: the true tokens, its own, or
    a random mixture. Otherwise it reads the given tokens. The decoder's own token is the one that it chooses after the
    inputs so far. No gradient passes through the choice.

    Args:
        config: The configuration.

    Call arguments:
        inputs: `{"encoder_token_ids", "encoder_padding_mask", "decoder_token_ids", "decoder_padding_mask"}`, ids and
            masks (true where a token is real) `(batch, encoder_length)` and `(batch, decoder_length)`, padded on the
            right.
        training: Whether dropout and `config.feeding` are active.

    Returns:
        `{"encoder_sequence_output": (batch, encoder_length, config.memory_dim),
        "decoder_sequence_output": (batch, decoder_length, config.readout_width)}`.

    Raises:
        ValueError: If keys are missing or unknown, or, outside of compiled programs, a decoder sequence is padded on
            the left.

    Example:

    >>> config = RecurrentConfig(vocabulary_size=1000, hidden_dim=64, attention="previous_state")
    >>> backbone = RecurrentSeq2Seq(config)
    >>> ids = np.ones((2, 10), "int32")
    >>> mask = np.ones((2, 10), "bool")
    >>> outputs = backbone({"encoder_token_ids": ids, "encoder_padding_mask": mask,
    ...                     "decoder_token_ids": ids, "decoder_padding_mask": mask})
    >>> backbone.logits(outputs["decoder_sequence_output"]).shape
    (2, 10, 1000)

    Reference:
        Cho et al. 2014; Sutskever et al. 2014; Bahdanau et al. 2015; Luong et al. 2015; Bengio et al. 2015.
    """

    config_class = RecurrentConfig
    unrolls_prompts = True
    has_one_width = False
    weight_roles: ClassVar[Mapping[str, Role]] = {"output_projection": OUTPUT_VOCABULARY}

    def __init__(self, config: RecurrentConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        options = {"dtype": self.dtype_policy}
        self.source_embedding = TokenEmbedding(
            config.vocabulary_size, config.embedding_dim, name="source_embedding", **options
        )
        self.target_embedding = self.source_embedding
        if not config.share_embeddings:
            self.target_embedding = TokenEmbedding(
                config.vocabulary_size, config.embedding_dim, name="target_embedding", **options
            )
        self.source_dropout = Dropout(config.dropout, name="source_dropout", **options)
        self.readout_dropout = Dropout(config.dropout, name="readout_dropout", **options)
        layers = {"units": config.encoder_dim or config.hidden_dim, "backwards": config.reverse_source}
        self.encoder = RecurrentEncoder(
            **arguments_of(RecurrentEncoder, config) | layers, return_states=True, name="encoder", **options
        )
        layers = {"units": config.hidden_dim, "num_layers": config.num_decoder_layers or config.num_layers}
        self.decoder = RecurrentDecoder(**arguments_of(RecurrentDecoder, config) | layers, name="decoder", **options)
        self.output_projection = None
        if not config.tie_output:
            self.output_projection = Dense(config.vocabulary_size, name="output_projection", **options)
        self.sampling = None
        if config.feeding == "scheduled_sampling":
            self.sampling = ScheduledSampling(
                config.schedule,
                config.schedule_constant,
                config.schedule_slope,
                config.schedule_minimum,
                name="sampling",
                dtype="float32",
            )
        self.seed_generator = keras.random.SeedGenerator()
        self.build(None)

    def build(self, input_shape: Any) -> None:
        with laid_out(self):
            self._build_parts()
        self.built = True

    def _build_parts(self) -> None:
        self.source_embedding.build((None, None))
        if self.target_embedding is not self.source_embedding:
            self.target_embedding.build((None, None))
        embedded = (None, None, self.config.embedding_dim)
        self.source_dropout.build(embedded)
        self.encoder.build(embedded)
        self.decoder.build(embedded, (None, None, self.encoder.output_dim))
        if self.output_projection is not None:
            self.output_projection.build((None, None, self.decoder.output_dim))
        self.readout_dropout.build((None, None, self.decoder.output_dim))
        if self.sampling is not None:
            self.sampling.build((None, None))

    @property
    def output_widths(self) -> tuple[int, int]:
        return self.config.memory_dim, self.config.readout_width

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> dict[str, Any]:
        self._check_inputs(inputs, training)
        mask = inputs["encoder_padding_mask"]
        memory, states = self.encode(inputs["encoder_token_ids"], mask, training=training)
        token_ids = inputs["decoder_token_ids"]
        embedded = point("decoder.hidden", point("decoder.embeddings", self.target_embedding(token_ids)))
        return_weights = is_captured("decoder.cross_attention")
        result = self.decoder(
            embedded,
            memory,
            mask,
            states,
            return_weights=return_weights,
            training=training,
            **(self._feeding(token_ids) if training else {}),
        )
        hidden, weights = result if return_weights else (result, None)
        if weights is not None:
            # one layer, one head
            point("decoder.cross_attention", ops.expand_dims(weights, 1), may_change=False)
        hidden = point("decoder.hidden", self.readout_dropout(hidden, training=training))
        return {"encoder_sequence_output": memory, "decoder_sequence_output": hidden}

    def _check_inputs(self, inputs: dict[str, Any], training: bool | None = None) -> None:
        if set(inputs) != set(self.input_names):
            raise ValueError(f"inputs must have the keys {sorted(self.input_names)}, got {sorted(inputs)}.")
        require_right_padding("decoder_padding_mask", inputs["decoder_padding_mask"], training)

    def _feeding(self, token_ids: Any) -> dict[str, Any]:
        """What the decoder is told about its inputs in training."""
        if self.config.feeding == "teacher_forcing":
            return {}
        shape = ops.shape(token_ids)
        use_gold = ops.zeros(shape, "bool") if self.sampling is None else self.sampling(token_ids)
        numbers = keras.random.uniform(shape, seed=seed_of_replica(self.seed_generator))
        return {"use_gold": use_gold, "choose": self._choose, "numbers": numbers}

    def _choose(self, hidden: Any, numbers: Any) -> Any:
        """The embedding of the tokens that the model chooses, `(batch, embedding_dim)`."""
        logits = ops.cast(self.logits(hidden), "float32")
        if self.config.feeding_choice == "argmax":
            token_ids = ops.argmax(logits, axis=-1)
        else:
            token_ids = draw(ops.exp(logits - ops.max(logits, axis=-1, keepdims=True)), numbers)
        return self.target_embedding(token_ids)

    def encode(self, token_ids: Any, padding_mask: Any, training: bool | None = None) -> tuple[Any, list[Any]]:
        """Returns the outputs and the last states of the encoder.

        Args:
            token_ids: `(batch, length)`.
            padding_mask: True where a token is real, `(batch, length)`, padding on the right.
            training: Whether dropout is active.
        """
        embedded = point("encoder.embeddings", self.source_embedding(token_ids))
        return self.encoder(self.source_dropout(embedded, training=training), padding_mask, training=training)

    def output_vectors(self, hidden: Any) -> Any:
        return self.target_embedding.narrow(hidden) if self.output_projection is None else hidden

    def score(self, vectors: Any) -> Any:
        if self.output_projection is None:
            return self.target_embedding.score(vectors)
        return self.output_projection(vectors)

    def output_map(self) -> OutputMap | None:
        tied = self.output_projection is None
        return OutputMap.of_layer(self.target_embedding.table if tied else self.output_projection)

    def start_decoding(self, inputs: dict[str, Any], capacity: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the state that a decoding loop changes, and the tensors that it only reads.

        Args:
            inputs, capacity: See `Backbone.start_decoding`. The state has the same size for any capacity.

        Returns:
            `(state, constants)`: the recurrent state; the encoder's outputs with their projected keys and mask, or the
            fixed context, and the first real position of each row, where there is a `padding_mask`.
        """
        mask = inputs["encoder_padding_mask"]
        memory, states = self.encode(inputs["encoder_token_ids"], mask, training=False)
        state, constants = self.decoder.start(memory, ops.cast(mask, "bool"), states)
        if "padding_mask" in inputs:
            first = ops.argmax(ops.cast(inputs["padding_mask"], "int32"), axis=1)
            constants = {**constants, "start": ops.cast(first, "int32")}
        return state, constants

    def advance(
        self, token_ids: Any, index: Any, state: dict[str, Any], constants: dict[str, Any], count: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        if count is not None:
            raise ValueError("count must be None for a recurrent model, whose rows share one index.")
        constants = dict(constants)
        start = constants.pop("start", None)
        embedded = self.target_embedding(token_ids)
        index = ops.cast(index, "int32")
        readouts = []
        for place in range(token_ids.shape[1]):
            hidden, _, new = self.decoder.step(embedded[:, place], state, constants)
            # the state of a row begins to move with its first token
            state = new if start is None else _chosen(index + place >= start, new, state)
            readouts.append(hidden)
        return ops.stack(readouts, axis=1), state

    @property
    def attention_kinds(self) -> tuple[str, ...]:
        return () if self.config.attention == "none" else ("cross",)


def _chosen(rows: Any, new: Any, old: Any) -> Any:
    """The new state of the rows, and the old one of the others."""

    def choose(after: Any, before: Any) -> Any:
        return ops.where(ops.reshape(rows, (-1, *[1] * (len(after.shape) - 1))), after, before)

    return keras.tree.map_structure(choose, new, old)
