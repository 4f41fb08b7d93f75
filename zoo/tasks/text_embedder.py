"""Text embeddings: one vector per text. Texts of similar meaning have similar vectors."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from layers.activations import ACTIVATIONS, get_activation
from layers.constructor_arguments import ConfigFromArguments
from layers.initializers import separate
from zoo.backbones.backbone import Backbone
from zoo.config.checks import require
from zoo.export import Endpoint, Field
from zoo.preprocessing import TextEmbedderPreprocessor
from zoo.preprocessing.rows import require_count
from zoo.storage import to_dataclass
from zoo.tasks.encoder_task import EncoderTask
from zoo.tasks.heads import initializer_of
from zoo.tasks.pooling import require_pooling
from zoo.tasks.tokens_endpoint import embed_tokens_endpoint
from zoo.training.embedding_losses import InBatchNegatives, TripletLoss
from zoo.training.similarity_losses import CoSENT, CosineRegression
from zoo.training.vectors import unit_vectors

_MOST_UNITS = 2**16
LOSSES = {
    "in_batch_negatives": InBatchNegatives,
    "triplet": TripletLoss,
    "cosine_regression": CosineRegression,
    "cosent": CoSENT,
}


@dataclasses.dataclass(frozen=True)
class ProjectionOptions:
    """What a map computes.

    Args:
        units: Number of outputs.
        activation: Name of the function of its outputs, see `layers.activations`.
        use_bias: Whether it has a bias.

    Raises:
        ValueError: If a value is out of range.
    """

    units: int
    activation: str = "identity"
    use_bias: bool = True

    def __post_init__(self) -> None:
        require(1 <= self.units <= _MOST_UNITS, "units of a projection", self.units, f"from 1 to {_MOST_UNITS}")
        names = sorted(ACTIVATIONS)
        require(self.activation in names, "activation of a projection", self.activation, f"one of {names}")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class Projection(ConfigFromArguments, keras.layers.Dense):
    """A linear map with an activation by its name.

    Args:
        units, activation, use_bias: See `ProjectionOptions`.
        **kwargs: As for `keras.layers.Dense`.

    Call arguments:
        inputs: `(..., dim)`.

    Returns:
        `(..., units)`.

    Example:

    >>> Projection(3, "tanh")(keras.ops.ones((2, 8))).shape
    (2, 3)
    """

    argument_attributes = {"activation": "options.activation"}

    def __init__(self, units: int, activation: str = "identity", use_bias: bool = True, **kwargs: Any) -> None:
        super().__init__(units, activation=None, use_bias=use_bias, **kwargs)
        self.options = ProjectionOptions(units, activation, bool(use_bias))

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return get_activation(self.options.activation)(super().call(inputs, training=training))


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TextEmbedder(EncoderTask):
    """Text embedding: a vector for each text.

    The training data depend on the `objective`:

    * "in_batch_negatives": `(anchors, positives)` or `(anchors, positives, negatives, ...)`, without targets.
    * "triplet": `(anchors, positives, negatives)`, without targets.
    * "cosine_regression" and "cosent": `(first, second)` with their similarities as targets.

    To set a scale or a margin, or to train several widths at once (`MatryoshkaLoss`), pass a loss of `zoo.training` to
    `compile`.

    Args:
        backbone: An encoder, or a decoder.
        preprocessor: A `TextEmbedderPreprocessor`; a tokenizer; or None for use on token level.
        pooling: "mean" or "max" over the tokens, their sum divided by the root of their number ("mean_sqrt"), their
            mean with the weights 1, 2, 3 and so on ("weighted_mean"), "first" token, "last" token, or the backbone's
            "pooler".
        projections: Linear maps of the pooled vector, one after the other: for each a dictionary with `units`, and if
            wanted `activation` (see `layers.activations`; None for none) and `use_bias` (default True).
        normalize: Whether vectors have length 1.
        width: Number of entries of the vectors of `embed`, `predict` of texts and exports: the first ones, scaled to
            length 1 again if `normalize` is True. None for all. Training always uses whole vectors.
        **options: Arguments of `TextEmbedderPreprocessor` where none is given: `objective`, see above; `prompts`,
            `default_prompt` and `training_prompts`, strings that are put before texts; `sequence_length` and
            `truncate`; and `name`, `dtype` and `trainable`.

    Call arguments:
        inputs: `{"token_ids", "padding_mask"}`, `(batch, length)`, optionally `"segment_ids"`. For groups of texts,
            these for each text, with the prefixes `first_`, `second_`, `third_` and so on.
        training: Whether dropout is active.

    Returns:
        Vectors `(batch, width)`, or `(batch, texts, width)` for groups, float32, in whole width: that of the backbone,
        or of the last of the `projections`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> model = TextEmbedder.from_preset("path/to/model")
    >>> model.fit((questions, answers), epochs=3)
    >>> model.embed(["Where is Rome?"]).shape
    (1, 384)

    Reference:
        Reimers and Gurevych 2019, "Sentence-BERT", section 3; Kusupati et al. 2022, "Matryoshka Representation
        Learning" (`width`).
    """

    preprocessor_class = TextEmbedderPreprocessor
    architectures = ("encoder", "decoder")
    returns_logits = False
    # Reimers and Gurevych 2019, section 3.1
    learning_rate = 2e-5

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: Any = None,
        *,
        pooling: str = "mean",
        projections: Sequence[dict[str, Any]] = (),
        normalize: bool = True,
        width: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **options)
        self.pooling = require_pooling(pooling, backbone)
        self.normalize = bool(normalize)
        self.projections: list[Projection] = []
        for index, choices in enumerate(projections):
            options = dataclasses.asdict(to_dataclass(ProjectionOptions, choices, f"projections[{index}]"))
            initializer = separate(keras.initializers.get(initializer_of(backbone.config)), index)
            options |= {"kernel_initializer": initializer, "name": f"projection_{index}", "dtype": self.dtype_policy}
            projection = Projection(**options)
            projection.build((None, self.width))
            self.projections.append(projection)
        self.default_width = width if width is None else require_count(width, "width", 1, self.width)
        self.built = True

    @property
    def width(self) -> int:
        """Width of the whole vectors."""
        return self.projections[-1].units if self.projections else super().width

    def own_options(self) -> dict[str, Any]:
        return {
            "pooling": self.pooling,
            "projections": [dataclasses.asdict(projection.options) for projection in self.projections],
            "normalize": self.normalize,
            "width": self.default_width,
        }

    def outputs_of(self, hidden: Any, inputs: dict[str, Any], training: bool | None = None) -> Any:
        vectors = self.head_inputs(hidden, inputs)
        for projection in self.projections:
            vectors = projection(vectors)
        return unit_vectors(vectors) if self.normalize else ops.cast(vectors, "float32")

    # Training.

    def default_loss(self) -> keras.losses.Loss:
        """Returns the loss of the objective."""
        return LOSSES[self.preprocessor.objective]()

    # Use.

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        prompt: str | None = None,
        width: int | None = None,
        batch_size: int = 32,
    ) -> np.ndarray:
        """Returns the vectors of texts.

        Args:
            texts: One text or many.
            prompt: Name of the prompt that is put before each text, see `prompts` of the preprocessor; None for the
                default prompt, "" for no prompt.
            width: Number of entries of each vector; None for the `width` of the task.
            batch_size: Texts per batch.

        Returns:
            float32 `(texts, width)`, for a single text `(width,)`.

        Raises:
            TypeError, ValueError: If a row is not text or is too long (the message names the row), or an argument is
                out of range.
        """
        if isinstance(texts, (str, bytes)):
            return self.embed([texts], prompt=prompt, width=width, batch_size=batch_size)[0]
        width = self.default_width if width is None else require_count(width, "width", 1, self.width)
        rows = self.preprocessor.with_prompt(prompt).rows(texts, "texts")

        def vectors_of(numbers: np.ndarray, inputs: dict[str, Any], outputs: Any) -> np.ndarray:
            return ops.convert_to_numpy(self._cut(outputs, width))

        vectors = self.map_batches(vectors_of, rows, batch_size)
        return np.array(vectors, "float32").reshape(len(vectors), width or self.width)

    def predict_texts(self, x: Any, batch_size: int) -> np.ndarray:
        """Returns the result of `embed`."""
        return self.embed(x, batch_size=batch_size)

    def _cut(self, vectors: Any, width: int | None) -> Any:
        """The first entries of vectors, of the length that they have."""
        if width in (None, self.width):
            return vectors
        return unit_vectors(vectors[:, :width]) if self.normalize else vectors[:, :width]

    def result_fields(self) -> tuple[Field, ...]:
        return (Field("embeddings", ("batch", self.default_width or self.width), "float32", "a vector per text"),)

    def results(self, outputs: Any) -> dict[str, Any]:
        return {"embeddings": self._cut(outputs, self.default_width)}

    def result_properties(self) -> dict[str, Any]:
        """Returns the prompts, which a client puts before a text before tokenization."""
        return {"prompts": dict(self.preprocessor.prompts)}

    def endpoints(self) -> dict[str, Endpoint]:
        """Returns the endpoints of an export.

        `serve(texts)`: string tensor `(batch,)` to "embeddings", float32 `(batch, width)`, with the default prompt.
        Each prompt has its own endpoint, such as `serve_query` for "query". Characters of its name other than letters,
        digits and underscores become underscores. A text longer than the model allows raises an `InvalidArgumentError`,
        unless the task truncates.

        `tokens(texts)`, `tokens_query(texts)`: the ids that the model reads, with the prompt.
        `embed_tokens(token_ids)`: the ids of texts to "embeddings", if there is no default prompt, which belongs before
        the text itself. See `zoo.tasks.tokens_endpoint`.

        Raises:
            ValueError: If the endpoints of two prompts would have the same name.
        """

        def endpoint(prompt: str | None, description: str) -> Endpoint:
            found = self.serve_endpoint(description, self.preprocessor.with_prompt(prompt))
            # a tensor, not a dictionary
            return dataclasses.replace(found, function=lambda texts: found.function(texts)["embeddings"])

        endpoints, tokens = {"serve": endpoint(None, "Embeds texts.")}, {"tokens": self.tokens_endpoint()}
        for prompt in self.preprocessor.prompts:
            ending = re.sub(r"\W", "_", prompt, flags=re.ASCII)
            if f"serve_{ending}" in endpoints:
                raise ValueError(f"prompts must differ in their letters and digits to be exported, got {prompt!r} too.")
            endpoints[f"serve_{ending}"] = endpoint(prompt, f"Embeds texts with the prompt {prompt!r}.")
            tokens[f"tokens_{ending}"] = self.tokens_endpoint(self.preprocessor.with_prompt(prompt))
        if self.preprocessor.default_prompt is None:
            [output] = self.result_fields()
            tokens["embed_tokens"] = embed_tokens_endpoint(self, self._vectors, output)
        return endpoints | tokens

    def _vectors(self, inputs: dict[str, Any]) -> Any:
        return self.results(self(inputs, training=False))["embeddings"]
