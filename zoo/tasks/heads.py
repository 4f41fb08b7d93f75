"""Heads, which map hidden states to the outputs of a task."""

from typing import Any

import keras
from keras import ops

from layers.activations import get_activation
from layers.constructor_arguments import ConfigFromArguments
from layers.dropout import Dropout
from layers.initializers import separate
from layers.norms import LayerNorm
from zoo.config import TransformerConfig


def initializer_of(config: TransformerConfig) -> Any:
    """Returns the initializer of a head: with the standard deviation of the backbone, or Glorot-uniform if it has none.

    Args:
        config: Configuration of the backbone.
    """
    deviation = config.initializer_range
    return "glorot_uniform" if deviation is None else keras.initializers.TruncatedNormal(stddev=deviation)


def classification_head(
    task: Any,
    num_outputs: int,
    hidden_activation: str | None,
    inner_bias: bool = True,
    inner_norm: bool = False,
    projection_bias: bool = True,
    dropout: float = 0.0,
    dropout_before: float | None = None,
) -> "ClassificationHead":
    """Returns the `ClassificationHead` of a task, with the initializer and the norm's epsilon of its backbone.

    Args:
        task: The task.
        num_outputs, hidden_activation, inner_bias, inner_norm, projection_bias, dropout, dropout_before: Arguments of
            the head.
    """
    config = task.backbone.config
    return ClassificationHead(
        num_outputs,
        hidden_activation,
        inner_bias=inner_bias,
        inner_norm=inner_norm,
        norm_epsilon=config.norm.epsilon,
        projection_bias=projection_bias,
        dropout=dropout,
        dropout_before=dropout_before,
        kernel_initializer=initializer_of(config),
        name="head",
        dtype=task.dtype_policy,
    )


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class ClassificationHead(ConfigFromArguments, keras.layers.Layer):
    """From a vector to logits: an optional inner layer, then a linear map.

    BERT's head on its pooler is `ClassificationHead(n)`, RoBERTa's `ClassificationHead(n, "tanh")`, DistilBERT's
    `ClassificationHead(n, "relu", dropout_before=0)`, ModernBERT's `ClassificationHead(n, "gelu", inner_norm=True,
    inner_bias=False)`, that of Llama and other decoders on the last token
    `ClassificationHead(n, projection_bias=False, dropout=0)`.

    Args:
        num_outputs: Number of logits.
        hidden_activation: Activation of the inner layer; None for no inner layer.
        inner_bias: Whether the inner layer has a bias.
        inner_norm: Whether a layer norm (without a bias, where the inner layer has none) follows the activation.
        norm_epsilon: Epsilon of that norm.
        projection_bias: Whether the linear map has a bias.
        dropout: Rate of the dropout before the linear map.
        dropout_before: Rate of the dropout before the inner layer; None for `dropout`.
        kernel_initializer: Of both maps.

    Call arguments:
        inputs: `(..., dim)`.
        training: Whether dropout is active.

    Returns:
        Logits `(..., num_outputs)` in float32.

    Example:

    >>> ClassificationHead(3, "tanh")(keras.ops.ones((2, 8))).shape
    (2, 3)

    Reference:
        Devlin et al. 2019, section 4.1; Liu et al. 2019, "RoBERTa", and its code.
    """

    def __init__(
        self,
        num_outputs: int,
        hidden_activation: str | None = None,
        *,
        inner_bias: bool = True,
        inner_norm: bool = False,
        norm_epsilon: float = 1e-5,
        projection_bias: bool = True,
        dropout: float = 0.1,
        dropout_before: float | None = None,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_outputs = num_outputs
        self.hidden_activation = hidden_activation
        self.inner_bias = inner_bias
        self.inner_norm = inner_norm
        self.norm_epsilon = norm_epsilon
        self.projection_bias = projection_bias
        self.dropout = float(dropout)
        self.dropout_before = None if dropout_before is None else float(dropout_before)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.dense = self.norm = self.first_dropout = None
        if hidden_activation is not None:
            self._activation = get_activation(hidden_activation)
        if hidden_activation is None and inner_norm:
            raise ValueError("inner_norm must be False without a hidden_activation, got True.")
        rate = dropout if dropout_before is None else dropout_before
        if hidden_activation is not None and rate:
            self.first_dropout = Dropout(rate, name="first_dropout", dtype=self.dtype_policy)
        self.last_dropout = Dropout(dropout, name="last_dropout", dtype=self.dtype_policy) if dropout else None
        self.projection = keras.layers.Dense(
            num_outputs,
            use_bias=projection_bias,
            kernel_initializer=self.kernel_initializer,
            name="projection",
            dtype=self.dtype_policy,
        )

    def build(self, inputs_shape: tuple[int | None, ...]) -> None:
        width = inputs_shape[-1]
        if self.hidden_activation is not None:
            self.dense = keras.layers.Dense(
                width,
                use_bias=self.inner_bias,
                kernel_initializer=separate(self.kernel_initializer, 1),
                name="dense",
                dtype=self.dtype_policy,
            )
            self.dense.build((None, width))
            if self.inner_norm:
                self.norm = LayerNorm(self.norm_epsilon, center=self.inner_bias, name="norm", dtype=self.dtype_policy)
                self.norm.build((None, width))
        self.projection.build((None, width))

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        x = inputs
        if self.dense is not None:
            if self.first_dropout is not None:
                x = self.first_dropout(x, training=training)
            x = self._activation(self.dense(x))
            if self.norm is not None:
                x = self.norm(x)
        if self.last_dropout is not None:
            x = self.last_dropout(x, training=training)
        return ops.cast(self.projection(x), "float32")

    def compute_output_shape(self, inputs_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (*inputs_shape[:-1], self.num_outputs)

    def task_options(self) -> dict[str, Any]:
        """Returns the choices of the head as arguments of its task."""
        return {
            "hidden_activation": self.hidden_activation,
            "inner_bias": self.inner_bias,
            "inner_norm": self.inner_norm,
            "projection_bias": self.projection_bias,
            "head_dropout": self.dropout,
        }


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class MaskedLMHead(ConfigFromArguments, keras.layers.Layer):
    """Head of a masked language model, between the hidden states and the tied projection to the vocabulary.

    `norm(activation(dense(x)))`, and the bias that is added to the logits. This is the head of BERT, RoBERTa and
    DistilBERT, of ALBERT with the `dim` of its factorised embedding, and of ModernBERT without the biases of the dense
    layer and the norm.

    Args:
        dim: Width of the output: that of the embedding table.
        vocabulary_size: Number of logits.
        activation: Name of the activation.
        use_bias: Whether the dense layer and the norm have biases.
        norm_epsilon: Epsilon of the layer norm.
        kernel_initializer: Of the dense layer.

    Call arguments:
        inputs: Hidden states `(..., hidden_dim)`.

    Returns:
        `(..., dim)`, to be projected to the vocabulary; `output_bias` `(vocabulary_size,)` is to be added then.

    Example:

    >>> MaskedLMHead(8, 100)(keras.ops.ones((2, 3, 8))).shape
    (2, 3, 8)

    Reference:
        Devlin et al. 2019, "BERT", section 3.1, and its code (`get_masked_lm_output`).
    """

    def __init__(
        self,
        dim: int,
        vocabulary_size: int,
        activation: str = "gelu",
        *,
        use_bias: bool = True,
        norm_epsilon: float = 1e-12,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dim = dim
        self.supports_masking = True
        self.vocabulary_size = vocabulary_size
        self.activation = activation
        self._activation = get_activation(activation)
        self.use_bias = use_bias
        self.norm_epsilon = norm_epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.dense = keras.layers.Dense(
            dim, use_bias=use_bias, kernel_initializer=self.kernel_initializer, name="dense", dtype=self.dtype_policy
        )
        self.norm = LayerNorm(norm_epsilon, center=use_bias, name="norm", dtype=self.dtype_policy)

    def build(self, inputs_shape: tuple[int | None, ...]) -> None:
        self.dense.build(inputs_shape)
        self.norm.build((*inputs_shape[:-1], self.dim))
        self.output_bias = self.add_weight(shape=(self.vocabulary_size,), initializer="zeros", name="output_bias")

    def call(self, inputs: Any) -> Any:
        return self.norm(self._activation(self.dense(inputs)))

    def compute_output_shape(self, inputs_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (*inputs_shape[:-1], self.dim)
