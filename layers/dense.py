"""A dense layer to which several named low-rank updates (LoRA) can be added."""

import json
import math
import numbers
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from layers.dropout import Dropout
from layers.fusion import by_rows
from layers.keras_internals import stored_kernel, unlocked


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class LowRankUpdate(keras.layers.Layer):
    """A low-rank update (LoRA) of the outputs of a dense layer: `alpha / rank * dropout(x) A B`.

    `A` starts random and `B` at zero, so that a new update changes nothing. Both are kept in float32 whatever the
    policy, because their steps in training are small.

    Args:
        units: Number of outputs.
        rank: Number of columns of `A` and rows of `B`.
        alpha: The product is multiplied by `alpha / rank`. Default `rank`.
        dropout: Rate of the dropout on the inputs of `A`, in [0, 1).

    Call arguments:
        inputs: `(..., dim)`.
        training: Whether dropout is active.

    Returns:
        `(..., units)`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> LowRankUpdate(64, rank=8)(keras.ops.ones((2, 5, 32))).shape
    (2, 5, 64)

    Reference:
        Hu et al. 2022, "LoRA", section 4.1.
    """

    def __init__(self, units: int, rank: int, alpha: float | None = None, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise ValueError(f"rank must be an integer of at least 1, got {rank!r}.")
        if alpha is not None and not (_is_number(alpha) and 0 < alpha < math.inf):
            raise ValueError(f"alpha must be a finite number above 0, got {alpha!r}.")
        if not (_is_number(dropout) and 0 <= dropout < 1):
            raise ValueError(f"dropout must be a number of at least 0 and below 1, got {dropout!r}.")
        self.units, self.rank, self.dropout = units, rank, float(dropout)
        self.alpha = float(rank if alpha is None else alpha)
        self.input_dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout") if dropout else None

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        # as in the code of Hu et al.: the range of the weights of a linear layer of PyTorch
        self.lora_a = self.add_weight(
            name="lora_a", shape=(input_shape[-1], self.rank), initializer="he_uniform", dtype="float32"
        )
        self.lora_b = self.add_weight(
            name="lora_b", shape=(self.rank, self.units), initializer="zeros", dtype="float32"
        )

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        if self.input_dropout is not None:
            inputs = self.input_dropout(inputs, training=training)
        first, second = (ops.cast(factor, inputs.dtype) for factor in (self.lora_a, self.lora_b))
        return self.alpha / self.rank * ops.matmul(ops.matmul(inputs, first), second)

    def product(self) -> Any:
        """Returns the update of the kernel, `alpha / rank * A B`, `(dim, units)`, in float32."""
        return self.alpha / self.rank * ops.matmul(self.lora_a.value, self.lora_b.value)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (*input_shape[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        own = {"units": self.units, "rank": self.rank, "alpha": self.alpha, "dropout": self.dropout}
        return {**super().get_config(), **own}


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` with low-rank updates: `activation(x W + b + sum of active updates)`.

    The kernel may be quantized. The updates are computed apart from it, in floating point.

    Args:
        units: Number of outputs.
        **kwargs: As for `keras.layers.Dense`.

    Attributes:
        updates: The updates by name, active or not, in the order in which they were added.
        active_updates: Names of the updates that a call adds.

    Example:

    >>> layer = Dense(64)
    >>> layer.build((None, 32))
    >>> layer.add_update("default", rank=8)
    >>> layer(keras.ops.ones((2, 32))).shape
    (2, 64)
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(units, **kwargs)
        self.updates: dict[str, LowRankUpdate] = {}
        self.active_updates: Sequence[str] = ()

    def add_update(self, name: str, rank: int, alpha: float | None = None, dropout: float = 0.0) -> LowRankUpdate:
        """Adds an update that is active and trainable. The layer's own weights do not change.

        Args:
            name: Name of the update.
            rank, alpha, dropout: See `LowRankUpdate`.

        Raises:
            ValueError: If the name is in use, a number is out of range, or the layer cannot have updates.
        """
        if name in self.updates:
            raise ValueError(f"{self.path} has an update named {name!r} already.")
        self._require_no_activation(self.quantization_mode is not None)
        policy = self.dtype_policy
        if policy.quantization_mode is not None:
            policy = policy.name.partition("_from_")[2]
        update = LowRankUpdate(self.units, rank, alpha, dropout, dtype=policy, name=f"update_{name}")
        with keras.name_scope(self.name, override_parent=self.path.rpartition("/")[0]):
            update.build((None, self.input_spec.axes[-1]))
        with unlocked(self):
            self.updates[name] = update
        self.active_updates = (*self.active_updates, name)
        return update

    def remove_update(self, name: str, *, merge: bool = False) -> None:
        """Removes an update.

        Args:
            name: Name of the update.
            merge: Whether to add it to the kernel first.

        Raises:
            ValueError: If `merge` is true and the kernel is quantized.
        """
        if merge:
            if self.quantization_mode is not None:
                raise ValueError(f"The kernel of {self.path} must not be quantized, got {self.quantization_mode}.")
            kernel = stored_kernel(self)
            kernel.assign(ops.cast(ops.cast(kernel.value, "float32") + self.updates[name].product(), kernel.dtype))
        with unlocked(self):
            self.updates.pop(name)
        self.active_updates = tuple(other for other in self.active_updates if other != name)

    def updated_kernel(self) -> Any:
        """Returns the kernel with the active updates in the dtype of the kernel. The sum is computed in float32.

        Raises:
            ValueError: If the kernel is quantized.
        """
        if self.quantization_mode is not None:
            raise ValueError(f"The kernel of {self.path} must not be quantized, got {self.quantization_mode}.")
        kernel = stored_kernel(self)
        if not self.active_updates:
            return kernel.value
        total = ops.cast(kernel.value, "float32")
        for name in self.active_updates:
            total = total + self.updates[name].product()
        return ops.cast(total, kernel.dtype)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return by_rows(lambda rows: self._call_rows(rows, training), inputs)

    def _call_rows(self, inputs: Any, training: bool | None) -> Any:
        """`(rows, units)` of inputs `(rows, dim)`."""
        if not self.active_updates:
            return super().call(inputs, training=training)
        outputs = ops.matmul(inputs, self.kernel)
        if self.bias is not None:
            outputs = ops.add(outputs, self.bias)
        return self.activation(self._updated(outputs, inputs, training))

    def quantized_call(self, inputs: Any, training: bool | None = None) -> Any:
        return self._updated(super().quantized_call(inputs, training=training), inputs, training)

    def _updated(self, outputs: Any, inputs: Any, training: bool | None) -> Any:
        for name in self.active_updates:
            update = self.updates[name](inputs, training=training)
            outputs = ops.add(outputs, ops.cast(update, outputs.dtype))
        return outputs

    def quantize(self, mode: str | None = None, type_check: bool = True, config: Any = None) -> None:
        """As `keras.layers.Dense.quantize`, which refuses subclasses unless `type_check` is false."""
        self._require_no_activation(bool(self.updates))
        super().quantize(mode, type_check=False, config=config)

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        if self.updates:
            store["updates"] = np.frombuffer(json.dumps(list(self.updates)).encode("utf-8"), "uint8")

    def load_own_variables(self, store: Any) -> None:
        values = {name: store[name] for name in store.keys()}
        # Keras ignores weights of the file that the model does not have
        saved = json.loads(np.asarray(values.pop("updates")).tobytes()) if "updates" in values else []
        if saved != list(self.updates) or (not values and self.built):
            # Keras tries again if the file has nothing for the layer, and shows the last error
            found = saved if values else "others"
            raise ValueError(
                f"The low-rank updates of {self.path} must be those of the weights that are loaded, got "
                f"{list(self.updates)} in the model and {found} in the file: add those of the same names first, or "
                "merge them before weights are saved."
            )
        super().load_own_variables(values)

    def _require_no_activation(self, is_needed: bool) -> None:
        if is_needed and self.activation is not keras.activations.linear:
            # Keras applies it together with the product of integers
            raise ValueError(
                f"{self.path} must have no activation to be both quantized and updated, got {self.activation.__name__}."
            )

    def enable_lora(self, *args: Any, **kwargs: Any) -> None:
        """Raises an error: Keras's LoRA allows one update and makes it part of the kernel. Use `add_update`."""
        raise NotImplementedError("Low-rank updates of this layer are added by add_update(name, rank).")
