"""Compiling functions of tensors, and padding their arguments so that few programs are compiled."""

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from zoo.generation.checks import require_count


def compiled(
    function: Callable,
    jit_compile: bool = True,
    variables: Any = (),
    signature: Any = None,
    exact_shapes: bool = False,
) -> Callable:
    """Compiles a function of tensors for the current backend.

    TensorFlow: `tf.function(jit_compile=jit_compile)`; the result can be called eagerly
    or inside another `tf.function` (tokenization outside, XLA inside) and stays compiled in a SavedModel.
    JAX: `jax.jit`; with `jit_compile=False` the function as it is, because JAX compiles with XLA or not at all.

    XLA compiles one program for each combination of shapes: see `pad_batch` and `pad_length`.

    Args:
        function: Callable whose positional arguments and results are tensors or nested structures of them.
        jit_compile: Whether to compile with XLA.
        variables: The `keras.Variable`s that the function reads (`model.variables`), a sequence or a callable that
            returns one. JAX would bake the values of variables into the program at the first call; the ones given
            here are passed in at every call, so that later training is seen. TensorFlow reads all variables
            at every call.
        signature: Shape and type of each argument, `[((None, None), "int32"), ...]`, None for a size that varies. With
            it TensorFlow traces the function once, whatever the sizes (XLA still compiles for each); JAX has no use
            for it.
        exact_shapes: Whether TensorFlow traces the function for each combination of shapes, so that it never sees an
            unknown size, instead of for few. The arguments must be tensors then.

    Returns:
        Callable with the positional arguments of `function`.

    Raises:
        ValueError: On a backend without a compiler here, if `jit_compile` is true.

    Example:

    >>> compiled(lambda x: keras.ops.sum(x, axis=-1))(keras.ops.ones((2, 3)))    # [3., 3.]
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        if signature is not None:
            signature = [tf.TensorSpec(shape, dtype) for shape, dtype in signature]
        if not exact_shapes:
            return tf.function(function, input_signature=signature, jit_compile=jit_compile, reduce_retracing=True)
        traces = {}

        def call_exact(*arguments: Any) -> Any:
            shapes = tuple((tuple(leaf.shape), leaf.dtype) for leaf in keras.tree.flatten(arguments))
            if shapes not in traces:
                traces[shapes] = tf.function(function, jit_compile=jit_compile).get_concrete_function(*arguments)
            return traces[shapes](*arguments)

        return call_exact
    if not jit_compile:
        return function
    if backend != "jax":
        raise ValueError(f"jit_compile must be False without the TensorFlow or JAX backend, got True with {backend!r}.")
    import jax

    @jax.jit
    def program(values: list, *arguments: Any) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(current(), values, strict=True))):
            return function(*arguments)

    def current() -> list:
        return list(variables() if callable(variables) else variables)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return program([variable.value for variable in current()], *arguments)

    return call


def next_power_of_two(count: Any) -> Any:
    """Returns the smallest power of two that is at least `count` and 1; a Python integer or an integer tensor."""
    if isinstance(count, int):
        return 1 << max(count - 1, 0).bit_length()
    filled = ops.maximum(count - 1, 0)
    for shift in (1, 2, 4, 8, 16):
        filled = ops.bitwise_or(filled, ops.right_shift(filled, shift))
    return filled + 1


def pad_batch(tensors: Any) -> Any:
    """Adds rows of zeros (false) until the number of rows is a power of two.

    A batch of any size then runs in one of few compiled programs. Give the `length_limit` of `decode` along with
    the other arguments: the added rows get the limit 0, are finished from the beginning and cost no extra step.
    Cut the results with `[:batch]`. Works on tensors of unknown batch size inside a `tf.function`.

    Args:
        tensors: Nested structure of tensors with the same batch on axis 0.

    Returns:
        The structure with `next_power_of_two(batch)` rows everywhere.

    Example:

    >>> pad_batch({"ids": keras.ops.ones((3, 2))})["ids"].shape
    (4, 2)
    """
    return keras.tree.map_structure(
        lambda tensor: _pad_to(tensor, 0, next_power_of_two(ops.shape(tensor)[0]), 0), tensors
    )


def pad_length(tensor: Any, multiple: int = 16, value: Any = 0) -> Any:
    """Pads axis 1 at its end to the next multiple, and to one multiple at least.

    Args:
        tensor: Tensor `(batch, length, ...)`; the length may be unknown inside a `tf.function`.
        multiple: Positive Python integer.
        value: What to pad with: the padding id for token ids, 0 (false) for masks.

    Returns:
        Tensor `(batch, padded length, ...)`.

    Raises:
        ValueError: If `multiple` is not a positive integer.
    """
    require_count("multiple", multiple)
    tensor = ops.convert_to_tensor(tensor)
    length = ops.shape(tensor)[1]
    multiples = (length + multiple - 1) // multiple
    multiples = max(multiples, 1) if isinstance(multiples, int) else ops.maximum(multiples, 1)
    return _pad_to(tensor, 1, multiples * multiple, value)


def _pad_to(tensor: Any, axis: int, size: Any, value: Any) -> Any:
    """Returns `tensor` with entries of `value` added at the end of `axis` up to `size`, known or not."""
    tensor = ops.convert_to_tensor(tensor)
    shape = list(ops.shape(tensor))
    if isinstance(size, int) and shape[axis] == size:
        return tensor
    shape[axis] = size - shape[axis]
    return ops.concatenate([tensor, ops.full(shape, value, dtype=tensor.dtype)], axis=axis)
