"""The Transformer: encoder-only, decoder-only or encoder-decoder, as its configuration says."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from layers.dense import Dense
from layers.embeddings import SegmentEmbedding, TokenEmbedding, with_token_dropout
from layers.roles import OUTPUT_VOCABULARY, VOCABULARY, WHOLE, Role
from zoo.backbones import lengths
from zoo.backbones.backbone import Backbone, require_right_padding
from zoo.backbones.output_map import OutputMap
from zoo.backbones.stack import TransformerStack
from zoo.config import TransformerConfig
from zoo.config.checks import arguments_of
from zoo.distribution.layouts import laid_out
from zoo.export import Field


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class Transformer(Backbone):
    """A Transformer of any configuration.

    Args:
        config: The configuration.

    Call arguments:
        inputs: For one stack: `{"token_ids", "padding_mask"}`, both `(batch, length)`, the mask true where a token is
            real, and optionally `"segment_ids"` (token types), `"sequence_ids"` and `"positions"` (packed sequences);
            with `attention.global_tokens` also `"global_mask"`, true where a token is global.
            For two stacks: `{"encoder_token_ids", "encoder_padding_mask", "decoder_token_ids",
            "decoder_padding_mask"}`; decoder sequences are padded on the right. For packed pairs also
            `"encoder_sequence_ids"`, `"decoder_sequence_ids"`, equal for source and target of a pair, and optionally
            `"encoder_positions"`, `"decoder_positions"`. With `attention.global_tokens` also `"encoder_global_mask"`.
        training: Whether dropout is active.

    Returns:
        For one stack hidden states `(batch, length, hidden_dim)`; for two `{"encoder_sequence_output":
        (batch, encoder_length, hidden_dim), "decoder_sequence_output": (batch, decoder_length, hidden_dim)}`.

    Raises:
        ValueError: If keys are missing or unknown, or, outside of compiled programs, a decoder sequence is padded on
            the left.

    Example:

    >>> config = TransformerConfig("encoder_decoder", vocabulary_size=1000, hidden_dim=64, num_layers=2)
    >>> backbone = Transformer(config)
    >>> ids = np.ones((2, 10), "int32")
    >>> mask = np.ones((2, 10), "bool")
    >>> outputs = backbone({"encoder_token_ids": ids, "encoder_padding_mask": mask,
    ...                     "decoder_token_ids": ids, "decoder_padding_mask": mask})
    >>> backbone.logits(outputs["decoder_sequence_output"]).shape
    (2, 10, 1000)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.
    """

    config_class = TransformerConfig
    weight_roles: ClassVar[Mapping[str, Role]] = {
        **{"output_projection": OUTPUT_VOCABULARY, "output_bias": VOCABULARY},
        **{"output_factor": WHOLE, "pooler": WHOLE},
    }

    def __init__(self, config: TransformerConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        embedding = config.embedding
        deviation = config.initializer_range
        initializer = (
            keras.initializers.RandomNormal(stddev=(embedding.factor_dim or config.hidden_dim) ** -0.5)
            if deviation is None
            else keras.initializers.TruncatedNormal(stddev=deviation)
        )
        options = {"dtype": self.dtype_policy}
        self.token_embedding = TokenEmbedding(
            config.vocabulary_size,
            config.hidden_dim,
            **arguments_of(TokenEmbedding, embedding),
            kernel_initializer=initializer,
            name="token_embedding",
            **options,
        )
        self.segment_embedding = None
        if embedding.num_segments:
            self.segment_embedding = SegmentEmbedding(
                embedding.num_segments,
                config.embedding_dim,
                kernel_initializer="glorot_uniform" if deviation is None else initializer.clone(),
                name="segment_embedding",
                **options,
            )
        widen = self.token_embedding.widen if embedding.factor_after_norm else None
        self.encoder = self.decoder = None
        if config.architecture != "decoder":
            self.encoder = TransformerStack(
                config, config.num_layers, causal=False, widen=widen, name="encoder", **options
            )
        if config.architecture != "encoder":
            self.decoder = TransformerStack(
                config.of_stack("decoder"),
                config.num_decoder_layers or config.num_layers,
                causal=True,
                cross_attention=config.architecture == "encoder_decoder",
                widen=widen,
                name="decoder",
                **options,
            )
        self.output_factor = None
        if embedding.factor_output:
            self.output_factor = Dense(
                embedding.factor_dim,
                use_bias=False,
                kernel_initializer="glorot_uniform" if deviation is None else initializer.clone(),
                name="output_factor",
                **options,
            )
        self.output_projection = None
        if not embedding.tie_output:
            self.output_projection = Dense(
                config.vocabulary_size,
                use_bias=embedding.output_bias,
                kernel_initializer="glorot_uniform" if deviation is None else initializer.clone(),
                name="output_projection",
                **options,
            )
        self.output_bias = None
        self.pooler = None
        if config.pooler:
            self.pooler = Dense(
                config.hidden_dim,
                activation="tanh",
                kernel_initializer="glorot_uniform" if deviation is None else initializer.clone(),
                name="pooler",
                **options,
            )
        self.build(None)

    def build(self, input_shape: Any) -> None:
        with laid_out(self):
            self._build_parts()
        self.built = True

    def _build_parts(self) -> None:
        config = self.config
        self.token_embedding.build((None, None))
        if self.segment_embedding is not None:
            self.segment_embedding.build((None, None))
        for stack in (self.encoder, self.decoder):
            if stack is not None:
                stack.build((None, None, config.hidden_dim))
        if self.output_factor is not None:
            self.output_factor.build((None, None, config.hidden_dim))
        if self.output_projection is not None:
            self.output_projection.build((None, None, config.output_dim))
        elif config.embedding.output_bias:
            self.output_bias = self.add_weight(shape=(config.vocabulary_size,), initializer="zeros", name="output_bias")
        if self.pooler is not None:
            self.pooler.build((None, config.hidden_dim))

    def optional_fields(self) -> tuple[Field, ...]:
        if self.segment_embedding is None or self.config.embedding.num_segments < 2:
            return ()
        return (Field("segment_ids", ("batch", "length"), "int32", "number of the text that a token is of"),)

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        self._check_inputs(inputs, training)
        if self.config.architecture != "encoder_decoder":
            stack = self.encoder or self.decoder
            return stack(
                self.embed(
                    inputs["token_ids"],
                    inputs.get("segment_ids"),
                    padding_mask=inputs["padding_mask"],
                    sequence_ids=inputs.get("sequence_ids"),
                ),
                padding_mask=inputs["padding_mask"],
                sequence_ids=inputs.get("sequence_ids"),
                global_mask=self._global_mask(inputs),
                positions=inputs.get("positions"),
                training=training,
            )
        memory = self.encode(
            inputs["encoder_token_ids"],
            inputs["encoder_padding_mask"],
            sequence_ids=inputs.get("encoder_sequence_ids"),
            global_mask=self._global_mask(inputs, "encoder_"),
            positions=inputs.get("encoder_positions"),
            training=training,
        )
        hidden = self.decoder(
            self.embed(inputs["decoder_token_ids"]),
            padding_mask=self._decoder_padding_mask(inputs),
            sequence_ids=inputs.get("decoder_sequence_ids"),
            positions=inputs.get("decoder_positions"),
            memory=memory,
            memory_padding_mask=inputs["encoder_padding_mask"],
            memory_sequence_ids=inputs.get("encoder_sequence_ids"),
            training=training,
        )
        return {"encoder_sequence_output": memory, "decoder_sequence_output": hidden}

    def _global_mask(self, inputs: dict[str, Any], side: str = "") -> Any:
        """Which tokens are global, as given or by default."""
        given = inputs.get(f"{side}global_mask")
        if given is not None or self.config.attention.global_tokens != "first":
            return given
        return first_tokens(inputs[f"{side}padding_mask"], inputs.get(f"{side}sequence_ids"))

    def _check_inputs(self, inputs: dict[str, Any], training: bool | None = None) -> None:
        if self.config.architecture == "encoder_decoder":
            sides = ("encoder", "decoder")
            needed = {f"{side}_{name}" for side in sides for name in ("token_ids", "padding_mask")}
            optional = {f"{side}_{name}" for side in sides for name in ("sequence_ids", "positions")}
            if self.config.attention.global_tokens is not None:
                optional.add("encoder_global_mask")
            if len({"encoder_sequence_ids", "decoder_sequence_ids"} & set(inputs)) == 1:
                raise ValueError("inputs must have encoder_sequence_ids and decoder_sequence_ids together, got one.")
        else:
            needed, optional = {"token_ids", "padding_mask"}, {"sequence_ids", "positions"}
            if self.segment_embedding is not None:
                optional.add("segment_ids")
            if self.config.attention.global_tokens is not None:
                optional.add("global_mask")
        given = set(inputs)
        if not needed <= given <= needed | optional:
            raise ValueError(
                f"inputs must have the keys {sorted(needed)}"
                + (f" and may have {sorted(optional)}" if optional else "")
                + f" with architecture={self.config.architecture!r} and "
                f"embedding.num_segments={self.config.embedding.num_segments}, got {sorted(given)}."
            )
        if "decoder_padding_mask" in given and "decoder_sequence_ids" not in given:
            require_right_padding("decoder_padding_mask", inputs["decoder_padding_mask"], training)

    def _decoder_padding_mask(self, inputs: dict[str, Any]) -> Any:
        # causal attention over right-padded rows never reaches the padding from a real token and needs no mask;
        # batch norm counts the padding without one, and experts spend their capacity on it
        needs_mask = any(block.counts_padding for block in self.decoder.blocks)
        needs_mask = needs_mask or self.decoder.position_by_length is not None
        return inputs["decoder_padding_mask"] if needs_mask else None

    def embed(self, token_ids: Any, segment_ids: Any = None, padding_mask: Any = None, sequence_ids: Any = None) -> Any:
        """Returns embedded tokens `(batch, length, embedding_dim)`, without positions.

        Args:
            token_ids: `(batch, length)`.
            segment_ids: `(batch, length)`. Default all 0.
            padding_mask: True where a token is real, `(batch, length)`, for `embedding.token_dropout`. Default all.
            sequence_ids: Integers `(batch, length)` of packed sequences, for `embedding.token_dropout`.
        """
        embedding = self.token_embedding
        # where the factor comes later, the stack applies it
        embedded = (embedding.look_up if self.config.embedding.factor_after_norm else embedding)(token_ids)
        mask_id = self.config.embedding.token_dropout
        if mask_id is not None:
            embedded = with_token_dropout(embedded, token_ids, mask_id, padding_mask, sequence_ids)
        if self.segment_embedding is None:
            return embedded
        segment_ids = ops.zeros_like(token_ids) if segment_ids is None else segment_ids
        return embedded + self.segment_embedding(segment_ids)

    def encode(
        self,
        token_ids: Any,
        padding_mask: Any,
        sequence_ids: Any = None,
        positions: Any = None,
        training: bool | None = None,
        global_mask: Any = None,
    ) -> Any:
        """Returns the hidden states of the encoder.

        Args:
            token_ids: `(batch, length)`.
            padding_mask: True where a token is real, `(batch, length)`.
            sequence_ids: Integers `(batch, length)` of packed sequences.
            positions: `(length,)` or `(batch, length)`. Default `0, 1, 2, ...`, in each packed sequence anew.
            training: Whether dropout is active.
            global_mask: True where a token is global, `(batch, length)`, with `attention.global_tokens`.
        """
        return self.encoder(
            self.embed(token_ids),
            padding_mask=padding_mask,
            sequence_ids=sequence_ids,
            global_mask=global_mask,
            positions=positions,
            training=training,
        )

    def output_vectors(self, hidden: Any) -> Any:
        if self.output_factor is not None:
            return self.output_factor(hidden)
        return self.token_embedding.narrow(hidden) if self.output_projection is None else hidden

    def score(self, vectors: Any) -> Any:
        embedding = self.config.embedding
        if embedding.output_scale is not None:
            vectors = vectors * embedding.output_scale
        if self.output_projection is not None:
            logits = self.output_projection(vectors)
        else:
            logits = self.token_embedding.score(vectors)
            if self.output_bias is not None:
                logits = logits + ops.cast(self.output_bias, logits.dtype)
        cap = embedding.logit_soft_cap
        return logits if cap is None else cap * ops.tanh(logits / cap)

    def output_map(self) -> OutputMap | None:
        embedding = self.config.embedding
        options = {"scale": embedding.output_scale, "soft_cap": embedding.logit_soft_cap}
        if self.output_projection is not None:
            return OutputMap.of_layer(self.output_projection, **options)
        return OutputMap.of_layer(self.token_embedding.table, self.output_bias, **options)

    def pool(self, hidden: Any) -> Any:
        """Returns one vector per row: `tanh(dense(first hidden state))`.

        Args:
            hidden: Hidden states of an encoder, padded on the right, `(batch, length, hidden_dim)`.

        Returns:
            `(batch, hidden_dim)`.

        Raises:
            ValueError: If the configuration has no pooler.

        Reference:
            Devlin et al. 2019, "BERT", section 3, and its published code.
        """
        if self.pooler is None:
            raise ValueError("pooler of the configuration must be True for pool(), got False.")
        return self.pooler(hidden[:, 0])

    def start_decoding(self, inputs: dict[str, Any], capacity: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the state that a decoding loop changes, and the tensors that it only reads.

        Args:
            inputs, capacity: See `Backbone.start_decoding`.

        Returns:
            `(state, constants)`: `state` holds empty key-value caches; `constants` the projected memory and its mask,
            and the first real position of each row, where there is a `padding_mask`.
        """
        if self.config.architecture == "encoder":
            raise ValueError("architecture must be 'decoder' or 'encoder_decoder' to decode, got 'encoder'.")
        constants = {}
        if self.config.architecture == "encoder_decoder":
            mask = inputs["encoder_padding_mask"]
            global_mask = self._global_mask(inputs, "encoder_")
            memory = self.encode(inputs["encoder_token_ids"], mask, training=False, global_mask=global_mask)
            constants = {"memory": self.decoder.project_memory(memory), "memory_padding_mask": mask}
        if "padding_mask" in inputs:
            mask = inputs["padding_mask"]
            constants["start"] = ops.argmax(ops.cast(mask, "int32"), axis=1)
        state = {"caches": self.decoder.make_caches(ops.shape(mask)[0], capacity)}
        if self.decoder.position_by_length is not None:
            state |= lengths.begin(ops.shape(mask)[0], capacity)
        return state, constants

    @property
    def decodes_rows(self) -> bool:
        return self.config.architecture == "decoder" and self.decoder.position_by_length is None

    def advance(
        self, token_ids: Any, index: Any, state: dict[str, Any], constants: dict[str, Any], count: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        options = {}
        if "memory" in constants:
            options = {
                "projected_memory": constants["memory"],
                "memory_padding_mask": constants["memory_padding_mask"],
            }
        if self.decoder.position_by_length is not None:
            return lengths.advance(self.decoder, self.embed, token_ids, index, state, constants.get("start"), options)
        if "start" in constants:
            steps = ops.arange(ops.shape(token_ids)[1]) + index
            options["positions"] = steps - ops.expand_dims(ops.cast(constants["start"], steps.dtype), 1)
        if count is not None:
            steps = ops.arange(ops.shape(token_ids)[1], dtype="int32")
            places = ops.expand_dims(ops.cast(index, "int32"), 1) + steps
            options["positions"] = ops.where(steps < ops.expand_dims(count, 1), places, -1)
        hidden, caches = self.decoder(
            self.embed(token_ids), caches=state["caches"], cache_index=index, training=False, **options
        )
        return hidden, {"caches": caches}

    def resize_state(self, state: dict[str, Any], capacity: int, shift: Any = None) -> dict[str, Any] | None:
        old = state["caches"]
        fresh = {"caches": self.decoder.make_caches(keras.tree.flatten(old)[0].shape[0], capacity)}
        new = fresh["caches"]
        if shift is None:
            if "token_ids" in state:
                fresh |= {**lengths.begin(state["token_ids"].shape[0], capacity), "lengths": state["lengths"]}
            return {name: keras.tree.map_structure(_grown, state[name], fresh[name]) for name in fresh}
        # caches of a window keep the last tokens only, which are gone where another row was longer
        if not self.can_rewind(capacity) or len({cache.shape[2] for cache in keras.tree.flatten(old)}) > 1:
            return None
        if "token_ids" in state:
            return None  # cached keys are right for the length that a text had
        return {"caches": keras.tree.map_structure(lambda before, after: _moved(before, after, shift), old, new)}

    def can_rewind(self, capacity: int) -> bool:
        if self.config.mixer is not None:
            return False  # its cache is of the last tokens alone
        if self.decoder.position_by_length is not None:
            return False  # with fewer tokens the length may be of another group
        return all(cache.shape[2] == capacity for cache in keras.tree.flatten(self.decoder.make_caches(1, capacity)))

    @property
    def attention_kinds(self) -> tuple[str, ...]:
        if self.config.mixer is not None:
            return ()  # weights are of each layer, and layers with a mixer have none
        architecture = self.config.architecture
        return ("encoder", "decoder", "cross") if architecture == "encoder_decoder" else (architecture,)

    def finish(self, hidden: Any) -> Any:
        return (self.decoder or self.encoder).finish(hidden)


def first_tokens(padding_mask: Any, sequence_ids: Any = None) -> Any:
    """Returns where the first token of a text is, booleans `(batch, length)`.

    Args:
        padding_mask: True where a token is real, `(batch, length)`.
        sequence_ids: Integers `(batch, length)` of packed sequences, each of which has a first token.
    """
    real = ops.cast(padding_mask, "bool")
    if sequence_ids is None:
        return ops.logical_and(real, ops.equal(ops.cumsum(ops.cast(real, "int32"), axis=1), 1))
    is_new = ops.not_equal(sequence_ids[:, 1:], sequence_ids[:, :-1])
    return ops.logical_and(real, ops.concatenate([ops.ones_like(real[:, :1]), is_new], axis=1))


def _grown(before: Any, after: Any) -> Any:
    """A cache `(rows, heads, positions, width)` at the beginning of a larger one."""
    return before if before.shape == after.shape else ops.slice_update(after, (0,) * len(before.shape), before)


def _moved(before: Any, after: Any, shift: np.ndarray) -> Any:
    """A cache in one of another size, row b moved by `shift[b]` positions to the right."""
    places = np.arange(after.shape[2])[None] - shift[:, None]
    places = np.clip(places, 0, before.shape[2] - 1)[:, None, :, None].astype("int32")
    return ops.take_along_axis(before, ops.convert_to_tensor(places), axis=2)
