"""A dense layer to which several named low-rank updates (LoRA) can be added."""

import json
import math
import numbers
from collections.abc import Callable, Collection, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from layers.constructor_arguments import ConfigFromArguments
from layers.dropout import Dropout
from layers.fusion import as_matrix
from layers.keras_internals import has_value, stored_kernel, unlocked

# how a kernel may be stored whose norms are asked for in each call: int4 would have to be unpacked
DORA_MODES = (None, "int8")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class LowRankUpdate(ConfigFromArguments, keras.layers.Layer):
    """A low-rank update (LoRA) of the outputs of a dense layer: `alpha / rank * dropout(x) A B`.

    `A` starts random and `B` at zero, so that a new update changes nothing. Both are kept in float32 whatever the
    policy, because their steps in training are small.

    With DoRA, the update also sets the norm of each column of the kernel `W`: the new kernel is
    `magnitude * V / |V|`, where `V = W + alpha / rank * A B`. The magnitude starts as the norms of `W`. As in section
    4.3 of the paper, `|V|` is a constant in the backward pass.

    Args:
        units: Number of outputs.
        rank: Number of columns of `A` and rows of `B`.
        alpha: The product is multiplied by `alpha / rank`. Default `rank`.
        dropout: Rate of the dropout on the inputs of `A`, in [0, 1).
        dora: Whether to learn the norms of the columns too.

    Call arguments:
        inputs: `(..., dim)`.
        training: Whether dropout is active.
        products: With DoRA, a function that returns `x W` for inputs `x` of the same shape.
        kernel: With DoRA, a function that returns `W` in float32, `(dim, units)`.

    Returns:
        `(..., units)`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> LowRankUpdate(64, rank=8)(keras.ops.ones((2, 5, 32))).shape
    (2, 5, 64)

    Reference:
        Hu et al. 2022, "LoRA", section 4.1; Liu et al. 2024, "DoRA: Weight-Decomposed Low-Rank Adaptation", equation 5.
    """

    def __init__(
        self,
        units: int,
        rank: int,
        alpha: float | None = None,
        dropout: float = 0.0,
        dora: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise ValueError(f"rank must be an integer of at least 1, got {rank!r}.")
        if alpha is not None and not (_is_number(alpha) and 0 < alpha < math.inf):
            raise ValueError(f"alpha must be a finite number above 0, got {alpha!r}.")
        if not (_is_number(dropout) and 0 <= dropout < 1):
            raise ValueError(f"dropout must be a number of at least 0 and below 1, got {dropout!r}.")
        if not isinstance(dora, bool):
            raise ValueError(f"dora must be True or False, got {dora!r}.")
        self.units, self.rank, self.dropout, self.dora = units, rank, float(dropout), dora
        self.alpha = float(rank if alpha is None else alpha)
        # norms and gains are of the weights in float32; `call` casts the factors itself
        self.autocast = False
        self.input_dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout") if dropout else None

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        # as in the code of Hu et al.: the range of the weights of a linear layer of PyTorch
        self.lora_a = self.add_weight(
            name="lora_a", shape=(input_shape[-1], self.rank), initializer="he_uniform", dtype="float32"
        )
        self.lora_b = self.add_weight(
            name="lora_b", shape=(self.rank, self.units), initializer="zeros", dtype="float32"
        )

        self.lora_magnitude = (
            self.add_weight(name="lora_magnitude", shape=(self.units,), initializer="ones", dtype="float32")
            if self.dora
            else None
        )

    def call(
        self,
        inputs: Any,
        training: bool | None = None,
        products: Callable[[Any], Any] | None = None,
        kernel: Callable[[], Any] | None = None,
    ) -> Any:
        if self.input_dropout is not None:
            inputs = self.input_dropout(inputs, training=training)
        first, second = (ops.cast(factor, inputs.dtype) for factor in (self.lora_a, self.lora_b))
        update = self.alpha / self.rank * ops.matmul(ops.matmul(inputs, first), second)
        if self.lora_magnitude is None:
            return update
        gain = self._gain(kernel())
        # the factor minus 1 in float32: near 1, half precision has few digits for it
        change = ops.cast(gain - 1.0, update.dtype) * ops.cast(products(inputs), update.dtype)
        return change + ops.cast(gain, update.dtype) * update

    def change_of(self, kernel: Any) -> Any:
        """Returns what the update adds to a kernel, `(dim, units)`, in float32.

        Args:
            kernel: The kernel in float32, `(dim, units)`.
        """
        product = self._product()
        if self.lora_magnitude is None:
            return product
        return self._gain(kernel) * (kernel + product) - kernel

    def start_from(self, kernel: Any) -> None:
        """Sets the magnitude to the norms of the columns of a kernel plus `alpha / rank * A B`.

        Args:
            kernel: The kernel in float32, `(dim, units)`.
        """
        self.lora_magnitude.assign(column_norms(kernel + self._product()))

    def _product(self) -> Any:
        """`alpha / rank * A B`, `(dim, units)`, in float32."""
        # a layer around may have its weights cast
        first, second = (ops.cast(factor, "float32") for factor in (self.lora_a, self.lora_b))
        return self.alpha / self.rank * ops.matmul(first, second)

    def _gain(self, kernel: Any) -> Any:
        """What the columns of `V` are multiplied by, `(units,)`, in float32."""
        norms = column_norms(kernel + self._product())
        # a column of zeros has no direction: it stays as it is
        return ops.divide_no_nan(ops.cast(self.lora_magnitude, "float32"), ops.stop_gradient(norms))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (*input_shape[:-1], self.units)


def require_dora_mode(where: str, mode: str | None) -> None:
    """Raises a ValueError if updates with DoRA cannot have the norms of a kernel that is stored in some way.

    Args:
        where: What errors call the layer.
        mode: The quantization mode; None for floating point.
    """
    if mode not in DORA_MODES:
        raise ValueError(f"The kernel of {where} must be in floating point or int8 for DoRA, got {mode}.")


def column_norms(kernel: Any) -> Any:
    """Returns the Euclidean norms of the columns of a matrix, `(units,)`.

    Args:
        kernel: `(dim, units)`.
    """
    return ops.sqrt(ops.sum(ops.square(kernel), axis=0))


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` with low-rank updates: `activation(x W + b + sum of active updates)`.

    The kernel may be quantized. The updates are computed apart from it, in floating point. Each update is relative to
    `W`: with DoRA it adds what it changes `W` by.

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

    def add_update(
        self, name: str, rank: int, alpha: float | None = None, dropout: float = 0.0, dora: bool = False
    ) -> LowRankUpdate:
        """Adds an update that is active and trainable. The layer's own weights do not change.

        Args:
            name: Name of the update.
            rank, alpha, dropout, dora: See `LowRankUpdate`.

        Raises:
            ValueError: If the name is in use, a number is out of range, or the layer cannot have updates.
        """
        if name in self.updates:
            raise ValueError(f"{self.path} has an update named {name!r} already.")
        self._require_no_activation(self.quantization_mode is not None)
        if dora:
            require_dora_mode(self.path, self.quantization_mode)
        policy = self.dtype_policy
        if policy.quantization_mode is not None:
            policy = policy.name.partition("_from_")[2]
        update = LowRankUpdate(self.units, rank, alpha, dropout, dora, dtype=policy, name=f"update_{name}")
        with keras.name_scope(self.name, override_parent=self.path.rpartition("/")[0]):
            update.build((None, self.input_spec.axes[-1]))
        # of a model whose weights are still to be read, the magnitude is read with them
        if update.dora and has_value(stored_kernel(self)):
            update.start_from(self.plain_kernel())
        with unlocked(self):
            self.updates[name] = update
        self.active_updates = (*self.active_updates, name)
        return update

    def remove_updates(self, names: Collection[str], *, merge: bool = False) -> None:
        """Removes updates.

        Args:
            names: Names of the updates.
            merge: Whether to add them to the kernel first.

        Raises:
            ValueError: If `merge` is true and the kernel is quantized, or an update with DoRA, which is relative to
                the kernel, would be left.
        """
        if merge:
            self.require_mergeable(names)
            kernel = stored_kernel(self)
            kernel.assign(self._kernel_with(names))
        with unlocked(self):
            for name in names:
                self.updates.pop(name)
        self.active_updates = tuple(name for name in self.active_updates if name not in names)

    def require_mergeable(self, names: Collection[str]) -> None:
        """Raises a ValueError if updates cannot be added to the kernel, see `remove_updates`.

        Args:
            names: Names of the updates.
        """
        self._require_no_quantization()
        left = [name for name, update in self.updates.items() if update.dora and name not in names]
        if left:
            raise ValueError(
                f"Updates of {self.path} that are merged must include {left[0]!r}, got {sorted(names)}: with DoRA it "
                "depends on the kernel. Merge it too, or remove it first."
            )

    def updated_kernel(self) -> Any:
        """Returns the kernel with the active updates in the dtype of the kernel. The sum is computed in float32.

        Raises:
            ValueError: If the kernel is quantized.
        """
        self._require_no_quantization()
        return self._kernel_with(self.active_updates) if self.active_updates else stored_kernel(self).value

    def plain_kernel(self) -> Any:
        """Returns the kernel without updates in float32, `(dim, units)`; of int8 the numbers that it stands for.

        Raises:
            ValueError: If the kernel is quantized otherwise.
        """
        require_dora_mode(self.path, self.quantization_mode)
        kernel = ops.cast(stored_kernel(self).value, "float32")
        return kernel if self.quantization_mode is None else kernel / ops.cast(self.kernel_scale, "float32")

    def _kernel_with(self, names: Collection[str]) -> Any:
        """The kernel, which is not quantized, with some updates, in its dtype."""
        kernel = self.plain_kernel()
        # each is relative to the kernel as it is
        changes = [self.updates[name].change_of(kernel) for name in names]
        return ops.cast(sum(changes, start=kernel), stored_kernel(self).dtype)

    def _require_no_quantization(self) -> None:
        if self.quantization_mode is not None:
            raise ValueError(f"The kernel of {self.path} must not be quantized, got {self.quantization_mode}.")

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return as_matrix(lambda rows: self._call_rows(rows, training), inputs)

    def _call_rows(self, inputs: Any, training: bool | None) -> Any:
        """`(rows, units)` of inputs `(rows, dim)`."""
        if not self.active_updates:
            return super().call(inputs, training=training)
        products = ops.matmul(inputs, self.kernel)
        outputs = products if self.bias is None else ops.add(products, self.bias)
        return self.activation(
            self._updated(
                outputs, inputs, training, lambda rows: products if rows is inputs else ops.matmul(rows, self.kernel)
            )
        )

    def quantized_call(self, inputs: Any, training: bool | None = None) -> Any:
        outputs = super().quantized_call(inputs, training=training)

        def products(rows: Any) -> Any:
            results = outputs if rows is inputs else super(Dense, self).quantized_call(rows, training=training)
            return results if self.bias is None else ops.subtract(results, self.bias)

        return self._updated(outputs, inputs, training, products)

    def _updated(self, outputs: Any, inputs: Any, training: bool | None, products: Callable[[Any], Any]) -> Any:
        """Outputs plus the active updates; `products` returns inputs times the kernel."""
        for name in self.active_updates:
            update = self.updates[name](inputs, training=training, products=products, kernel=self.plain_kernel)
            outputs = ops.add(outputs, ops.cast(update, outputs.dtype))
        return outputs

    def quantize(self, mode: str | None = None, type_check: bool = True, config: Any = None) -> None:
        """As `keras.layers.Dense.quantize`, which refuses subclasses unless `type_check` is false."""
        self._require_no_activation(bool(self.updates))
        if any(update.dora for update in self.updates.values()):
            require_dora_mode(self.path, mode if config is None else config.mode)
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
