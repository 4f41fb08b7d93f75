"""Norms made by name, or as copies of a norm."""

from collections.abc import Callable
from typing import Any

import keras

from layers.constructor_arguments import constructor_arguments
from layers.masked_batch_norm import MaskedBatchNorm
from layers.norms import DynamicTanh, LayerNorm, RMSNorm, ScaleNorm

_NORMS = {
    "layer": LayerNorm,
    "rms": RMSNorm,
    "scale": ScaleNorm,
    "dynamic_tanh": DynamicTanh,
    "batch": MaskedBatchNorm,
}


def norm_class(kind: str) -> type[keras.layers.Layer]:
    """Returns the class of a kind of norm.

    Args:
        kind: "layer", "rms", "scale", "dynamic_tanh" or "batch"; or the name of your own norm that is registered with
            Keras, "package>name".

    Raises:
        ValueError: If the kind is unknown.
    """
    if kind in _NORMS:
        return _NORMS[kind]
    found = keras.saving.get_registered_object(kind) if isinstance(kind, str) else None
    if not (isinstance(found, type) and issubclass(found, keras.layers.Layer)):
        kinds = ", ".join(map(repr, _NORMS))
        raise ValueError(
            f"kind must be one of {kinds}, or a layer that is registered with Keras, 'package>name'; got {kind!r}."
        )
    return found


def make_norm(kind: str, epsilon: float | None = None, **options: Any) -> keras.layers.Layer:
    """Returns a norm layer by name.

    Args:
        kind: The name, see `norm_class`.
        epsilon: Epsilon of the layer, ignored by a layer without one. Default that of the layer.
        **options: Further arguments of the layer, such as `name` and `dtype`.

    Raises:
        ValueError: If the kind is unknown.

    Example:

    >>> norm = make_norm("rms", 1e-6, unit_offset=True, name="attention_norm")
    """
    cls = norm_class(kind)
    if epsilon is not None and "epsilon" in constructor_arguments(cls):
        options = {"epsilon": epsilon, **options}
    return cls(**options)


class NormMaker:
    """Makes norms of the same kind with the same options.

    Args:
        norm: A norm layer to copy, or a callable without arguments that returns one.

    Raises:
        ValueError: If `norm` is neither.

    Example:

    >>> make = NormMaker(RMSNorm(1e-6))
    >>> make("attention_norm", "mixed_bfloat16").name
    'attention_norm'
    """

    def __init__(self, norm: keras.layers.Layer | Callable[[], keras.layers.Layer]) -> None:
        given = norm
        if callable(norm) and not isinstance(norm, keras.layers.Layer):
            norm = norm()
        if not isinstance(norm, keras.layers.Layer):
            raise ValueError(f"norm must be a norm layer or a callable that makes one, got {given!r}.")
        self.norm = self._copy(norm, name="norm")

    def __call__(self, name: str, dtype: Any) -> keras.layers.Layer:
        """Returns a norm with weights of its own.

        Args:
            name: Its name.
            dtype: Its dtype policy.
        """
        return self._copy(self.norm, name=name, dtype=dtype)

    @staticmethod
    def _copy(norm: keras.layers.Layer, **options: Any) -> keras.layers.Layer:
        return type(norm).from_config({**norm.get_config(), **options})
