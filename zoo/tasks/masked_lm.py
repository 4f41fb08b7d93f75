"""Masked language model: predicts masked tokens."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.backbones.output_map import OutputMap
from zoo.export import Endpoint, Field
from zoo.inspect.row import Decisions, Row
from zoo.preprocessing import MaskedLMPreprocessor
from zoo.preprocessing.rows import as_text, require_count
from zoo.storage import quote
from zoo.tasks.encoder_task import EncoderTask
from zoo.tasks.heads import MaskedLMHead, initializer_of
from zoo.tasks.task import Task
from zoo.tasks.token_head import TokenHead
from zoo.training.losses import TokenCrossEntropy
from zoo.training.metrics import TokenAccuracy


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class MaskedLM(EncoderTask):
    """A masked language model: an encoder that predicts masked tokens from all others.

    `fit` masks different tokens of a text in each epoch. `evaluate` and validation always mask the same tokens.

    Args:
        backbone: An encoder.
        preprocessor: A `MaskedLMPreprocessor`; a tokenizer with a mask token; or None for use on token level.
        head: "transform" (dense, activation, norm, tied projection, bias, as in BERT), or "projection" (the backbone's
            projection alone).
        head_activation: Activation of the dense layer of "transform".
        head_bias: Whether the dense layer and the norm of "transform" have biases.
        head_norm_epsilon: Epsilon of the norm of "transform"; None for that of the backbone's norms.
        **options: Arguments of `MaskedLMPreprocessor` where none is given: `mask_rate`, `mask_share`, `random_share`,
            `whole_words`, `sequence_length` and `truncate`; and `name`, `dtype` and `trainable`.

    Call arguments:
        inputs: `{"token_ids", "padding_mask"}`, `(batch, length)`, optionally `"segment_ids"`. With
            `"mask_positions"`, `(batch, count)` padded with -1, only the tokens at these positions are predicted.
        training: Whether dropout is active.

    Returns:
        Logits `(batch, length, vocabulary)`, or `(batch, count, vocabulary)` with mask positions.

    Raises:
        ValueError: If the backbone is not an encoder, the tokenizer has no mask token, or an argument is out of range.

    Example:

    >>> model = MaskedLM.from_preset("path/to/model")
    >>> model.fill_mask("The capital of France is [MASK].")
    [[('Paris', 0.92), ...]]

    Reference:
        Devlin et al. 2019, "BERT", section 3.1.
    """

    preprocessor_class = MaskedLMPreprocessor
    positions_input = "mask_positions"
    labels_are_of_tokens = True

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: Any = None,
        *,
        head: str = "transform",
        head_activation: str = "gelu",
        head_bias: bool = True,
        head_norm_epsilon: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **options)
        if head not in ("transform", "projection"):
            raise ValueError(f"head must be 'transform' or 'projection', got {quote(head)}.")
        self.head_kind, self.head_activation, self.head_bias = head, head_activation, head_bias
        config = backbone.config
        if head == "projection" and config.embedding.output_dim is not None:
            raise ValueError(
                f"head must be 'transform' with embedding.output_dim={config.embedding.output_dim}, got {quote(head)}: "
                "no other head leads to that width."
            )
        self.head = None
        if head == "transform":
            self.head = MaskedLMHead(
                config.output_dim,
                config.vocabulary_size,
                head_activation,
                use_bias=head_bias,
                norm_epsilon=config.norm.epsilon if head_norm_epsilon is None else head_norm_epsilon,
                kernel_initializer=initializer_of(config),
                name="head",
                dtype=self.dtype_policy,
            )
            self.head.build((None, None, config.hidden_dim))
        self.token_head = TokenHead(self._score, self._output_map)
        self.built = True

    def own_options(self) -> dict[str, Any]:
        return {
            "head": self.head_kind,
            "head_activation": self.head_activation,
            "head_bias": self.head_bias,
            "head_norm_epsilon": None if self.head is None else self.head.norm_epsilon,
        }

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        return self.outputs_of(self.backbone(self.backbone_inputs(inputs), training=training), inputs, training)

    def finish(self, hidden: Any) -> Any:
        # the head reads them at the width of the model
        return self.backbone.finish(hidden)

    def outputs_of(self, hidden: Any, inputs: dict[str, Any], training: bool | None = None) -> Any:
        return self.token_head(self.head_inputs(hidden, inputs), training)

    def decisions(self, outputs: Any, tokens: Sequence[str]) -> Decisions:
        """Returns the probabilities of the token at each position."""
        return Decisions(ops.log_softmax(ops.cast(outputs, "float32"), axis=-1))

    def row_of(self, text: Any, target: Any = None) -> Row:
        """Returns the row of a text. Every token is predicted, and mask tokens have no known target."""
        row = super().row_of(text, target)
        inputs = self.backbone_inputs(row.inputs)
        ids = inputs["token_ids"][0].astype("int64")
        mask_id = getattr(self.tokenizer, "mask_id", None)
        return Row(inputs, np.where(ids == mask_id, -1, ids))

    def with_hidden(self, inputs: dict[str, Any], training: bool | None = None) -> tuple[Any, Any]:
        """Returns logits, and the last hidden states of all tokens, `(batch, length, hidden_dim)`.

        Args:
            inputs, training: As for the call.
        """
        hidden = self.backbone(self.backbone_inputs(inputs), training=training)
        return self._score(self.head_inputs(hidden, inputs)), hidden

    def head_inputs(self, hidden: Any, inputs: dict[str, Any]) -> Any:
        """Returns vectors of the tokens to guess, at the width of the output table."""
        guessed = super().head_inputs(hidden, inputs)
        return self.backbone.output_vectors(guessed) if self.head is None else self.head(guessed)

    def _score(self, vectors: Any) -> Any:
        logits = self.backbone.score(vectors)
        return logits if self.head is None else logits + ops.cast(self.head.output_bias, logits.dtype)

    def _output_map(self) -> OutputMap | None:
        output_map = self.backbone.output_map()
        if self.head is None or output_map is None:
            return output_map
        # the bias of the head is added to logits that have been capped
        return None if output_map.soft_cap is not None else output_map.plus(self.head.output_bias)

    # Training.

    def default_optimizer(self) -> keras.optimizers.Optimizer:
        """Returns Adam with rate 1e-4, gradients clipped to norm 1."""
        return Task.default_optimizer(self)

    def default_loss(self) -> TokenCrossEntropy:
        """Returns `TokenCrossEntropy()`."""
        return TokenCrossEntropy()

    def default_metrics(self) -> list[Any]:
        """Returns the accuracy of the predicted tokens."""
        return [TokenAccuracy()]

    # Use.

    @property
    def mask_token(self) -> str:
        """The string of the mask token in a text."""
        return self.preprocessor.mask_token

    @staticmethod
    def best_tokens(logits: Any, top_k: int) -> tuple[Any, Any]:
        """Returns the ids of the most probable tokens and their probabilities, `(batch, count, top_k)`.

        Args:
            logits: `(batch, count, vocabulary)`.
            top_k: Number of tokens.
        """
        probabilities, token_ids = ops.top_k(ops.softmax(ops.cast(logits, "float32"), axis=-1), top_k)
        return token_ids, probabilities

    def fill_mask(self, texts: str | Sequence[str], top_k: int = 5, *, batch_size: int = 32) -> list[Any]:
        """Returns the most probable tokens for each mask token in texts.

        Args:
            texts: One text or many, with at least one mask token each, see `mask_token`.
            top_k: Number of tokens for each mask.
            batch_size: Texts per batch.

        Returns:
            For each text a list with one entry per mask: `top_k` pairs of a token and its probability, the most
            probable first. For a single text its list alone.

        Raises:
            ValueError: If a text has no mask or is too long (the message names the row), or an argument is out of
                range.

        Example:

        >>> model.fill_mask("The capital of France is [MASK].", top_k=2)
        [[('paris', 0.71), ('lyon', 0.12)]]
        """
        if isinstance(texts, (str, bytes)):
            return self.fill_mask([as_text(texts, "texts")], top_k, batch_size=batch_size)[0]
        require_count(top_k, "top_k", 1, self.backbone.config.vocabulary_size)
        rows = self.preprocessor.rows(texts, "texts")
        self.preprocessor.require_masks(texts, rows.tokens)

        def guesses(numbers: np.ndarray, inputs: dict[str, Any], logits: Any) -> list[Any]:
            token_ids, probabilities = map(ops.convert_to_numpy, self.best_tokens(logits, top_k))
            return [
                [
                    list(zip(map(self.preprocessor.token_of, token_ids[row, mask]), shares.tolist(), strict=True))
                    for mask, shares in enumerate(probabilities[row][positions >= 0])
                ]
                for row, positions in enumerate(inputs["mask_positions"])
            ]

        return self.map_batches(guesses, rows, batch_size)

    def predict_texts(self, x: Any, batch_size: int) -> list[Any]:
        """Returns the result of `fill_mask`."""
        return self.fill_mask(x, batch_size=batch_size)

    def result_fields(self) -> tuple[Field, ...]:
        shape = ("batch", "length", self.backbone.config.vocabulary_size)
        return (Field("logits", shape, "float32", "of the token at each place"),)

    def results(self, outputs: Any) -> dict[str, Any]:
        return {"logits": outputs}

    def endpoints(self, *, top_k: int = 5) -> dict[str, Endpoint]:
        """Returns the endpoint `serve(texts)` of an export, for any batch size.

        It takes a string tensor `(batch,)` of texts with mask tokens, and returns "tokens", strings, and
        "probabilities", float32, both `(batch, masks, top_k)`, the most probable first. Texts with fewer masks than
        others are padded with "" and 0. A text longer than the model allows raises an `InvalidArgumentError`, unless
        the task truncates.

        Args:
            top_k: Number of tokens for each mask.

        Raises:
            ValueError: If `top_k` is out of range.
        """
        import tensorflow as tf

        vocabulary_size = self.backbone.config.vocabulary_size
        require_count(top_k, "top_k", 1, vocabulary_size)
        vocabulary = self.tokenizer.get_vocabulary()
        vocabulary = [*vocabulary, *[""] * (vocabulary_size - len(vocabulary))]

        def serve(texts: Any) -> dict[str, Any]:
            inputs = self.preprocessor.inference_batch(texts)
            token_ids, probabilities = self.best_tokens(self(inputs, training=False), top_k)
            is_mask = inputs["mask_positions"][:, :, tf.newaxis] >= 0
            return {
                "tokens": tf.where(is_mask, tf.gather(tf.constant(vocabulary), token_ids), ""),
                "probabilities": tf.where(is_mask, probabilities, 0.0),
            }

        shape = ("batch", "masks", top_k)
        outputs = (
            Field("tokens", shape, "string", "the likeliest tokens of each mask"),
            Field("probabilities", shape, "float32", "their probabilities"),
        )
        texts = Field("texts", ("batch",), "string", f"texts in which {self.mask_token} is spelled out")
        return {"serve": Endpoint(serve, (texts,), outputs, "Fills masks.")}
