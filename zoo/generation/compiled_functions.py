"""Compiled functions of tensors, kept as long as they are used and few, and batches of few sizes for them."""

import collections
import functools
import threading
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from layers.fusion import portable_operations

# Programs that are kept. One compiled by XLA takes about 7 MB even for a model of one small layer, and TensorFlow 2.21
# never gives that back (https://github.com/tensorflow/tensorflow/issues/64170): here go the graphs and variables.
MOST_PROGRAMS = 64


def compiled(
    function: Callable[..., Any],
    jit_compile: bool = True,
    variables: Any = (),
    signature: Any = None,
    exact_shapes: bool = False,
) -> Callable[..., Any]:
    """Compiles a function of tensors for the current backend.

    * TensorFlow: `tf.function(jit_compile=jit_compile, autograph=False)`. Conditions and loops over tensors must use
      `keras.ops`. The result can be called eagerly or inside another `tf.function` (tokenization outside, XLA inside),
      and stays compiled in a SavedModel.
    * JAX: `jax.jit`. With `jit_compile=False` the function itself, because JAX always compiles with XLA.

    XLA compiles one program for each combination of shapes; see `pad_batch`.

    Args:
        function: Callable whose positional arguments and results are tensors or nested structures of them.
        jit_compile: Whether to compile with XLA.
        variables: The `keras.Variable`s that the function reads (`model.variables`), a sequence or a callable that
            returns one. They are passed at every call, so that a JAX program sees later training. Without them JAX
            would compile the values of the first call into the program. TensorFlow reads all variables at every call.
        signature: Shape and type of each argument, `[((None, None), "int32"), ...]`, with None for a size that varies.
            TensorFlow then traces the function once for all sizes; XLA still compiles for each. JAX ignores it.
        exact_shapes: Whether TensorFlow traces the function for each combination of shapes, so that it never has an
            unknown size. The arguments must be tensors then.

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

        # a prompt of a new length is not to wait for programs of its own
        function = portable_operations(jit_compile)(function)
        if signature is not None:
            signature = [tf.TensorSpec(shape, dtype) for shape, dtype in signature]
        if not exact_shapes:
            return tf.function(
                function, input_signature=signature, jit_compile=jit_compile, autograph=False, reduce_retracing=True
            )
        traces = {}

        def call_exact(*arguments: Any) -> Any:
            shapes = tuple((tuple(leaf.shape), leaf.dtype) for leaf in keras.tree.flatten(arguments))
            if shapes not in traces:
                program = tf.function(function, jit_compile=jit_compile, autograph=False)
                traces[shapes] = program.get_concrete_function(*arguments)
            return traces[shapes](*arguments)

        return call_exact
    if not jit_compile:
        return function
    if backend != "jax":
        raise ValueError(f"jit_compile must be False without the TensorFlow or JAX backend, got True with {backend!r}.")
    import jax

    @jax.jit
    def program(values: list[Any], *arguments: Any) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(current(), values, strict=True))):
            return function(*arguments)

    def current() -> list[Any]:
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

    Batches of all sizes then run in few compiled programs. Pass the `length_limit` of `decode` together with the other
    arguments: the added rows get the limit 0, so they are finished from the beginning and take no step. Cut the results
    with `[:batch]`. The batch size may be unknown inside a `tf.function`.

    Args:
        tensors: Nested structure of tensors with the same batch on axis 0.

    Returns:
        The structure with `next_power_of_two(batch)` rows everywhere.

    Example:

    >>> pad_batch({"ids": keras.ops.ones((3, 2))})["ids"].shape
    (4, 2)
    """

    def pad(tensor: Any) -> Any:
        tensor = ops.convert_to_tensor(tensor)
        shape = list(ops.shape(tensor))
        size = next_power_of_two(shape[0])
        if isinstance(size, int) and shape[0] == size:
            return tensor
        shape[0] = size - shape[0]
        return ops.concatenate([tensor, ops.zeros(shape, dtype=tensor.dtype)], axis=0)

    return keras.tree.map_structure(pad, tensors)


class CompiledFunctions:
    """A bounded store of compiled functions; the one that was not used for longest goes first.

    A program belongs to the variables that it reads. Adapters and quantization replace variables: programs of the old
    ones are not found any more, and hold on to them until they go, so that no new variable can be taken for an old one.

    Args:
        variables: Returns the variables that the functions read.
        most: Number of programs that are kept.
    """

    def __init__(self, variables: Callable[[], list[Any]], most: int = MOST_PROGRAMS) -> None:
        self._variables = variables
        self._most = most
        # a server calls from several threads
        self._lock = threading.Lock()
        self._kept: collections.OrderedDict[Any, tuple[Any, list[Any]]] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def run(
        self, key: Any, function: Callable[..., Any], jit_compile: bool, *arguments: Any, exact_shapes: bool = True
    ) -> Any:
        """Calls the compiled function on arguments.

        Args:
            key: What the function depends on other than shapes and variables; hashable.
            function: From tensors to tensors; compiled if there is no program of this key for these shapes.
            jit_compile: Whether XLA compiles it.
            arguments: Tensors, or nested structures of these.
            exact_shapes: Whether each combination of shapes has a program of its own, see `compiled`.
        """
        variables = self._variables()
        key = (key, jit_compile, tuple(map(id, variables)))
        if exact_shapes:
            key += tuple((tuple(leaf.shape), str(leaf.dtype)) for leaf in keras.tree.flatten(arguments))
        with self._lock:
            if key not in self._kept:
                program = compiled(function, jit_compile, variables=self._variables, exact_shapes=exact_shapes)
                self._kept[key] = program, variables
                if len(self._kept) > self._most:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            program, _ = self._kept[key]
        return program(*arguments)
