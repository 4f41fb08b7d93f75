"""Text embeddings: one vector per text, near for texts of like meaning."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.export import Endpoint, Field
from zoo.preprocessing import TextEmbedderPreprocessor
from zoo.preprocessing.text_embedder import PARTS
from zoo.tasks.encoder_task import EncoderTask, pool, require_pooling
from zoo.training.embedding_losses import CosineRegression, InBatchNegatives


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TextEmbedder(EncoderTask):
    """Gives each text a vector.

    Training takes groups of texts: `(anchors, positives)` or `(anchors, positives, negatives)` without targets for
    "in_batch_negatives", `(first, second)` with their similarities for "cosine_regression".

    Args:
        backbone: An encoder, or a decoder.
        preprocessor: A `TextEmbedderPreprocessor`; a tokenizer; or None for use on token level.
        pooling: "mean" or "max" over the tokens, "first" token, "last" token, or the backbone's "pooler".
        normalize: Whether vectors have length 1.
        **options: Arguments of `TextEmbedderPreprocessor` where none is given: `objective`, what `fit` trains for, see
            above; `sequence_length` and `truncate`; and `name`, `dtype` and `trainable`.

    Call arguments:
        inputs: `{"token_ids", "padding_mask"}`, `(batch, length)`, optionally `"segment_ids"`; or these for each text
            of a group, with `first_`, `second_` and perhaps `third_` before their names.
        training: Whether dropout is active.

    Returns:
        Vectors `(batch, hidden_dim)`, or `(batch, texts, hidden_dim)` for groups, float32.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> model = TextEmbedder.from_preset("path/to/model")
    >>> model.fit((questions, answers), epochs=3)
    >>> model.embed(["Where is Rome?"]).shape
    (1, 384)

    Reference:
        Reimers and Gurevych 2019, "Sentence-BERT", section 3.
    """

    preprocessor_class = TextEmbedderPreprocessor
    architectures = ("encoder", "decoder")
    returns_logits = False

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: Any = None,
        *,
        pooling: str = "mean",
        normalize: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **options)
        self.pooling = require_pooling(pooling, backbone)
        self.normalize = bool(normalize)
        self.uses_pooler = self.pooling == "pooler"
        self.built = True

    def own_options(self) -> dict[str, Any]:
        return {"pooling": self.pooling, "normalize": self.normalize}

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        groups = [
            {name.removeprefix(f"{part}_"): value for name, value in inputs.items() if name.startswith(f"{part}_")}
            for part in PARTS
        ]
        if groups[0]:
            return ops.stack([self._embed(group, training) for group in groups if group], axis=1)
        return self._embed(inputs, training)

    def _embed(self, inputs: dict[str, Any], training: bool | None) -> Any:
        hidden = self.hidden(inputs, training)
        vectors = ops.cast(pool(hidden, inputs["padding_mask"], self.pooling, self.backbone), "float32")
        return ops.normalize(vectors, axis=-1) if self.normalize else vectors

    # Training.

    def default_optimizer(self) -> keras.optimizers.Optimizer:
        """Returns AdamW with rate 2e-5 (Reimers and Gurevych 2019, section 3.1), gradients clipped to norm 1."""
        return keras.optimizers.AdamW(2e-5, weight_decay=0.01, global_clipnorm=1.0)

    def default_loss(self) -> keras.losses.Loss:
        """Returns the loss of the objective."""
        return InBatchNegatives() if self.preprocessor.objective == "in_batch_negatives" else CosineRegression()

    # Use.

    def embed(self, texts: str | Sequence[str], *, batch_size: int = 32) -> np.ndarray:
        """Returns the vectors of texts.

        Args:
            texts: One text or many.
            batch_size: Texts per batch.

        Returns:
            float32 `(texts, hidden_dim)`, for a single text `(hidden_dim,)`.

        Raises:
            TypeError, ValueError: If something is no text or too long, naming the row.
        """
        if isinstance(texts, (str, bytes)):
            return self.embed([texts], batch_size=batch_size)[0]
        rows = self.preprocessor.rows(texts, "texts")
        vectors = self.map_batches(lambda numbers, inputs, outputs: ops.convert_to_numpy(outputs), rows, batch_size)
        return np.array(vectors, "float32").reshape(len(vectors), self.width)

    def predict_texts(self, x: Any, batch_size: int) -> np.ndarray:
        """Returns what `embed` does."""
        return self.embed(x, batch_size=batch_size)

    def endpoints(self) -> dict[str, Endpoint]:
        """Returns the endpoint `serve(texts)` of an export: string tensor `(batch,)` to "embeddings".

        These are float32 `(batch, hidden_dim)`. A text longer than the model is an `InvalidArgumentError`, unless the
        task truncates.
        """

        def serve(texts: Any) -> Any:
            return self(self.preprocessor.inference_batch(texts), training=False)

        vectors = Field("embeddings", ("batch", self.width), "float32", "a vector per text")
        return {"serve": Endpoint(serve, (Field("texts", ("batch",), "string", "texts"),), (vectors,), "Embeds texts.")}
