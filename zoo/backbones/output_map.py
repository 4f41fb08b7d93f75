"""The linear map from hidden states to logits as tensors, for losses that compute a part of the logits at a time."""

from typing import Any, NamedTuple

import keras
from keras import ops

from layers.dense import Dense


class OutputMap(NamedTuple):
    """Logits are `soft_cap * tanh((scale * vectors @ kernel^T + bias) / soft_cap)`.

    Args:
        kernel: `(vocabulary, dim)`, in the dtype of the matrix products.
        bias: `(vocabulary,)` in float32, or None.
        scale: What vectors are multiplied by, or None.
        soft_cap: What the logits stay below in size, or None.
        trains: Whether the kernel or the bias train.
    """

    kernel: Any
    bias: Any
    scale: float | None
    soft_cap: float | None
    trains: bool

    @classmethod
    def of_layer(
        cls,
        layer: Dense | keras.layers.ReversibleEmbedding,
        bias: keras.Variable | None = None,
        *,
        scale: float | None = None,
        soft_cap: float | None = None,
    ) -> "OutputMap | None":
        """Returns the map that a layer computes; None if it is no map of floating-point weights alone.

        That is the case where the weights are quantized, or inputs of low-rank updates are dropped at random.

        Args:
            layer: A dense layer, or an embedding whose table is transposed.
            bias: A bias that is added to what the layer returns.
            scale, soft_cap: See the class.
        """
        if layer.quantization_mode is not None:
            return None
        trains = bool(layer.trainable_variables)
        if isinstance(layer, Dense):
            if any(layer.updates[name].dropout for name in layer.active_updates):
                return None
            kernel, bias = ops.transpose(layer.updated_kernel()), layer.bias
        else:
            kernel = layer.embeddings
        own = cls(ops.cast(kernel, layer.compute_dtype), None, scale, soft_cap, trains)
        return own if bias is None else own.plus(bias)

    def plus(self, bias: keras.Variable) -> "OutputMap":
        """Returns the map with another bias added, before the soft cap.

        Args:
            bias: `(vocabulary,)`.
        """
        total = ops.cast(bias, "float32")
        if self.bias is not None:
            total = total + self.bias
        return self._replace(bias=total, trains=self.trains or bias.trainable)
