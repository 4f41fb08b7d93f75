"""The base class of position encodings, their registry, and functions that they share."""

import difflib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import keras
from keras import ops

from layers.constructor_arguments import ConfigFromArguments, constructor_arguments
from layers.roles import WHOLE

T = TypeVar("T", bound=type)

_KINDS: dict[str, type["PositionEncoding"]] = {}


class Projections(NamedTuple):
    """The query and key projections of an attention layer, for encodings whose vectors are as wide as its inputs.

    Args:
        queries: Maps vectors `(count, width)` to queries `(heads, count, head_dim)`.
        keys: Maps vectors `(count, width)` to keys `(key_value_heads, count, head_dim)`.
    """

    queries: Callable[[Any], Any]
    keys: Callable[[Any], Any]


class PositionHooks:
    """The hooks of a position encoding: the places at which positions can enter a model. By default they do nothing.

    Positions are integers `(length,)` or `(batch, length)`. They need not begin at zero or rise by one. Attention calls
    its hooks in the order in which they are defined here.
    """

    # Whether the encoding depends on the number of tokens of the whole text. Queries and cached keys must then be
    # encoded for the same number, so attention needs a `sequence_length`.
    depends_on_length = False

    # Whether `on_output` needs the attention weights. Only the plain path of attention has them.
    needs_weights = False

    # Whether all blocks of a model share one instance with its weights, instead of one instance per block.
    shared_by_blocks = False

    def on_embeddings(self, x: Any, positions: Any) -> Any:
        """Returns the embedded tokens `(batch, length, dim)` with their positions, before the first block."""
        return x

    def prepare(self, positions: Any, sequence_length: Any = None) -> Any:
        """Returns what `on_queries` and `on_keys` need. It is computed once if both have the same positions.

        Args:
            positions: Integers `(length,)` or `(batch, length)`.
            sequence_length: Number of tokens of the whole text: a scalar, one per row `(batch,)` or one per token
                `(batch, length)`; None if it is not known.
        """
        return positions

    def on_queries(self, query: Any, prepared: Any) -> Any:
        """Returns the encoded queries `(batch, length, heads, head_dim)`; `prepared` is the result of `prepare`."""
        return query

    def on_keys(self, key: Any, prepared: Any) -> Any:
        """Returns the encoded keys `(batch, length, key_value_heads, head_dim)`; `prepared` comes from `prepare`."""
        return key

    def on_pairs(self, query: Any, key: Any, query_positions: Any, key_positions: Any) -> tuple[Any, Any]:
        """Returns queries and keys after what both must be known for, such as a factor that depends on the distance.

        Args:
            query: The result of `on_queries`, transposed to `(batch, heads, query_length, head_dim)`.
            key: The result of `on_keys`, transposed to `(batch, key_value_heads, key_length, head_dim)`, including
                cached keys.
            query_positions: `(query_length,)` or `(batch, query_length)`.
            key_positions: `(key_length,)` or `(batch, key_length)`.
        """
        return query, key

    def length_group(self, sequence_length: Any) -> Any:
        """Returns the group of each text length. Within a group the encoding is the same for all lengths.

        While a text grows within a group during decoding, its cached keys stay valid.

        Args:
            sequence_length: Numbers of tokens of whole texts, an integer tensor of any shape.

        Raises:
            ValueError: If the encoding does not depend on the length, or changes at every length.
        """
        raise ValueError(f"length_group() needs an encoding that differs between few lengths, got {self!r}.")

    def score_bias(
        self,
        query: Any,
        key: Any,
        query_positions: Any,
        key_positions: Any,
        scale: float,
        projections: Projections,
    ) -> Any:
        """Returns the bias that is added to the scaled scores, or None.

        Args:
            query: Queries of `on_pairs`, `(batch, heads, query_length, head_dim)`.
            key: Keys of `on_pairs`, `(batch, key_value_heads, key_length, head_dim)`.
            query_positions: `(query_length,)` or `(batch, query_length)`.
            key_positions: `(key_length,)` or `(batch, key_length)`.
            scale: Factor on the scores.
            projections: The projections of the attention layer.

        Returns:
            A tensor that broadcasts to `(batch, heads, query_length, key_length)`; or a callable of query positions and
            key positions that returns one. A callable that depends on the difference of positions alone should have an
            attribute `depends_on_distance = True`: it then takes memory linear in the length.
        """
        return None

    def on_output(self, output: Any, weights: Any, query_positions: Any, key_positions: Any) -> Any:
        """Returns the output of attention `(batch, heads, query_length, value_head_dim)`, changed by the positions.

        Args:
            output: The weighted mean of the values, of the same shape.
            weights: Attention weights after dropout `(batch, heads, query_length, key_length)`; None unless
                `needs_weights` is true.
            query_positions: `(query_length,)` or `(batch, query_length)`.
            key_positions: `(key_length,)` or `(batch, key_length)`.
        """
        return output


ATTENTION_HOOKS = ("prepare", "on_queries", "on_keys", "on_pairs", "score_bias", "on_output")
NO_POSITION = PositionHooks()


class PositionEncoding(PositionHooks, ConfigFromArguments, keras.layers.Layer):
    """Base class of position encodings: a Keras layer that overrides some of the hooks.

    To add an encoding, derive a class. `register_position` makes it known by name to configurations of models.

    Example:

    ```python
    @register_position("recency")
    class Recency(PositionEncoding):
        def score_bias(self, query, key, query_positions, key_positions, scale, projections):
            distance = ops.expand_dims(query_positions, -1) - ops.expand_dims(key_positions, -2)
            return -0.1 * ops.cast(ops.reshape(distance, (-1, 1, *ops.shape(distance)[-2:])), "float32")

    MultiHeadAttention(8, 64, causal=True, position=Recency())
    ```
    """

    # small, and the same on all devices
    weight_role = WHOLE

    @classmethod
    def acts_in_attention(cls) -> bool:
        """Whether it overrides a hook that attention calls."""
        return any(getattr(cls, hook) is not getattr(PositionHooks, hook) for hook in ATTENTION_HOOKS)

    @classmethod
    def acts_on_embeddings(cls) -> bool:
        """Whether it overrides the hook for the embedded tokens."""
        return cls.on_embeddings is not PositionHooks.on_embeddings

    def build(self, *input_shapes: Any) -> None:
        self.built = True

    def check_heads(self, num_heads: int, head_dim: int, value_dim: int) -> None:
        """Raises a ValueError if the encoding was made for another number or width of heads.

        Args:
            num_heads: Number of query heads.
            head_dim: Width of a query and key head.
            value_dim: Width of a value head.
        """
        for name, expected in (("num_heads", num_heads), ("head_dim", head_dim), ("value_dim", value_dim)):
            actual = getattr(self, name, expected)
            if actual != expected:
                raise ValueError(f"position={self!r} must have {name}={expected}, got {actual}.")


def register_position(kind: str) -> Callable[[T], T]:
    """Returns a decorator that registers a position encoding by name, also for Keras files.

    Args:
        kind: The name, for `make_position` and for `PositionConfig.kind` of models.

    Raises:
        ValueError: If another class has the name.
        TypeError: If the class is not a `PositionEncoding`.

    Example:

    >>> @register_position("nothing")
    ... class Nothing(PositionEncoding):
    ...     pass
    """

    def register(cls: T) -> T:
        if not (isinstance(cls, type) and issubclass(cls, PositionEncoding)):
            raise TypeError(f"register_position({kind!r}) must decorate a subclass of PositionEncoding, got {cls!r}.")
        known = _KINDS.get(kind)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"kind must be a new name of a position encoding, got {kind!r}, which is {known!r}.")
        if keras.saving.get_registered_name(cls) == cls.__name__:
            keras.saving.register_keras_serializable("positions")(cls)
        _KINDS[kind] = cls
        return cls

    return register


def position_kinds() -> tuple[str, ...]:
    """Returns the names of all registered position encodings."""
    return tuple(_KINDS)


def position_class(kind: str) -> type[PositionEncoding]:
    """Returns the position encoding class of a name.

    Raises:
        ValueError: If the name is not registered. The message suggests the nearest name.
    """
    if kind not in _KINDS:
        near = difflib.get_close_matches(str(kind), _KINDS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"kind must be one of {', '.join(map(repr, _KINDS))}, got {kind!r}.{hint}")
    return _KINDS[kind]


def make_position(kind: str, sizes: dict[str, Any], **options: Any) -> PositionEncoding:
    """Makes a position encoding by name.

    Args:
        kind: Its name.
        sizes: Sizes of the model, such as `num_heads`, `head_dim`, `dim`, `max_length`. Those that are arguments of the
            constructor are passed to it.
        **options: Further arguments of the constructor. They override `sizes`.

    Raises:
        ValueError: If the kind is unknown.

    Example:

    >>> make_position("alibi", {"num_heads": 8, "head_dim": 64}).num_heads
    8
    """
    cls = position_class(kind)
    names = constructor_arguments(cls)
    return cls(**{name: value for name, value in sizes.items() if name in names} | options)


def positions_from(index: Any, length: Any) -> Any:
    """Returns the positions of new entries, from entry `index` on.

    Args:
        index: Number of entries before, a scalar or `(batch,)`; None for 0.
        length: Number of new entries.

    Returns:
        `(length,)`, or `(batch, length)` for an index per row.
    """
    positions = ops.arange(length)
    if index is None:
        return positions
    per_row = not isinstance(index, int) and len(index.shape) == 1
    return positions + (ops.expand_dims(index, -1) if per_row else index)


def float32_or_wider(dtype: str) -> str:
    """Returns the dtype for angles and attention scores: float32 for half precision, else `dtype` itself."""
    return "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"


def check_positive_integer(name: str, value: Any) -> int:
    """Returns `value` if it is an integer above zero, else raises a `ValueError` that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}.")
    return value


def check_even(name: str, value: Any) -> int:
    """Returns `value` if it is an even positive integer, as pairs of features need; else raises a `ValueError`."""
    check_positive_integer(name, value)
    if value % 2:
        raise ValueError(f"{name} must be even, because features are used in pairs, got {value}.")
    return value


def check_offset(value: Any) -> int:
    """Returns `value` if it is an integer of at least 0, what is added to each position; else raises a `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"offset must be an integer of at least 0, got {value!r}.")
    return value


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Returns `value` if it is one of `allowed`, else raises a `ValueError` that lists them."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}.")
    return value


def check_above_zero(name: str, value: Any) -> float:
    """Returns `value` as a float if it is a number above zero, else raises a `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{name} must be a number above zero, got {value!r}.")
    return float(value)


def integer_positions(name: str, positions: Any, ranks: tuple[int, ...] | None = None) -> Any:
    """Returns `positions` as a tensor of integers.

    Args:
        name: Name of the argument, for the message.
        positions: Tensor, array or list of integers.
        ranks: Allowed numbers of axes; None for any.

    Raises:
        ValueError: If the numbers are not integers, or the rank is wrong. Floats are refused because they lose digits
            in half precision.
    """
    positions = ops.convert_to_tensor(positions)
    dtype = keras.backend.standardize_dtype(positions.dtype)
    if not dtype.startswith(("int", "uint")):
        raise ValueError(f"{name} must hold integers, got dtype {dtype}.")
    if ranks is not None and len(positions.shape) not in ranks:
        raise ValueError(f"{name} must have shape (length,) or (batch, length), got shape {tuple(positions.shape)}.")
    return positions


def spec_of_vectors(layer: keras.layers.Layer, positions: Any) -> keras.KerasTensor:
    """Returns the shape and dtype of a vector for each position.

    Args:
        layer: The layer that makes them.
        positions: Symbolic integers.

    Raises:
        ValueError: If they are no integers, such as the vectors of an `Embedding` before the layer in a `Sequential`.
    """
    dtype = keras.backend.standardize_dtype(positions.dtype)
    if not dtype.startswith(("int", "uint")):
        raise ValueError(
            f"positions must hold integers, such as 0, 1, 2, got shape {tuple(positions.shape)} and dtype {dtype}. "
            f"{type(layer).__name__} does not take the vectors of tokens: add its output to them."
        )
    return keras.KerasTensor(layer.compute_output_shape(tuple(positions.shape)), dtype=layer.compute_dtype)


def distances(query_positions: Any, key_positions: Any) -> Any:
    """Returns the distance of each key from each query, positive for keys to the right.

    Args:
        query_positions: Integers, shape `(query_length,)` or `(batch, query_length)`.
        key_positions: Integers, shape `(key_length,)` or `(batch, key_length)`.

    Returns:
        `key_positions - query_positions`, int32, shape `(1 or batch, query_length, key_length)`.
    """
    query_positions = integer_positions("query_positions", query_positions, ranks=(1, 2))
    key_positions = integer_positions("key_positions", key_positions, ranks=(1, 2))
    query_positions, key_positions = ops.cast(query_positions, "int32"), ops.cast(key_positions, "int32")
    difference = ops.expand_dims(key_positions, -2) - ops.expand_dims(query_positions, -1)
    return ops.expand_dims(difference, 0) if len(difference.shape) == 2 else difference


def bias_shape(
    num_heads: int, query_positions_shape: tuple[int | None, ...], key_positions_shape: tuple[int | None, ...]
) -> tuple[int | None, ...]:
    """Returns the static shape `(1 or batch, num_heads, query_length, key_length)` of a bias of the scores."""
    batch = 1
    for shape in (query_positions_shape, key_positions_shape):
        if len(shape) == 2 and batch in (1, None):
            batch = shape[0]
    return (batch, num_heads, query_positions_shape[-1], key_positions_shape[-1])
