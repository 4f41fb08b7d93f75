"""One pass over memory for a chain of element-wise operations, where each of them would be a pass of its own.

TensorFlow on a CPU computes one operation after the other, each from memory to memory, and keeps what the backward pass
will need of each. XLA makes one loop of them, but is no faster with matrix products, and slower with those in bfloat16.
So chains between the products are handed to XLA by themselves. JAX compiles whole steps anyway; PyTorch and GPUs are
left as they are.

Where nothing is differentiated, the optimizer of TensorFlow's graphs joins some chains by itself into one kernel of
oneDNN: the product of two matrices with its bias and activation, and a layer norm. It knows them by their form.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import keras

from layers.devices import has_accelerator, has_onednn, num_replicas

# Numbers in the largest tensor from which on a program of its own pays: compiling one takes as long as some hundred
# of the passes that it saves.
LEAST_SIZE = 2**18

_portable = ContextVar("portable", default=False)
# whether XLA compiles all of the graph
_compiled = ContextVar("compiled", default=False)
# whether operations have the forms of Keras, and not those that TensorFlow joins
_keras_forms = ContextVar("keras_forms", default=False)


@contextlib.contextmanager
def portable_operations(jit_compile: bool = False, keras_forms: bool = False) -> Iterator[None]:
    """Within it graphs get plain operations only, which every server and converter knows.

    Args:
        jit_compile: Whether XLA compiles the graph anyway.
        keras_forms: Whether operations have the forms of Keras, by which the converter of LiteRT knows them, and not
            those that TensorFlow joins.

    Example:

    >>> with portable_operations():
    ...     keras.export.ExportArchive()  # and so on
    """
    variables = _portable, _compiled, _keras_forms
    tokens = [
        variable.set(value)
        for variable, value in zip(variables, (True, jit_compile, keras_forms or _keras_forms.get()), strict=True)
    ]
    try:
        yield
    finally:
        for variable, token in zip(variables, tokens, strict=True):
            variable.reset(token)


def has_keras_forms() -> bool:
    """Whether operations of the graph that is being built have the forms of Keras."""
    return _keras_forms.get()


def update_slice(inputs: Any, start: Any, updates: Any) -> Any:
    """Returns `inputs` with `updates` written at a place, as `keras.ops.slice_update` does.

    That is an operation of XLA on TensorFlow, which compiles it in the middle of a plain graph; servers without XLA
    lack it. Portable graphs get one of TensorFlow, which writes in place where nobody else reads `inputs`.

    Args:
        inputs: The tensor.
        start: The place, an integer or integer scalar for each axis; moved so that the updates fit.
        updates: What is written, of the rank of `inputs`.
    """
    if keras.backend.backend() != "tensorflow" or not _portable.get() or _compiled.get():
        return keras.ops.slice_update(inputs, start, updates)
    import tensorflow as tf

    size = tf.shape(updates)
    begin = tf.stack([tf.cast(place, tf.int32) for place in start])
    begin = tf.maximum(tf.minimum(begin, tf.shape(inputs) - size), 0)
    written = tf.raw_ops.TensorStridedSliceUpdate(
        input=inputs, begin=begin, end=begin + size, strides=tf.ones_like(begin), value=updates
    )
    written.set_shape(inputs.shape)
    return written


def fused(function: Callable) -> Callable:
    """Returns a function that does the same in one pass over memory where that is worth it.

    Its backward pass computes the chain again from the inputs, so that nothing between them and the output is kept.
    Half precision is float32 within the chain.

    Args:
        function: An element-wise function of tensors of one shape and type; made of operations of Keras, without
            variables or randomness. Each one is compiled by itself: make one, not one for each layer.

    Example:

    >>> square_of_tanh = fused(lambda x: ops.square(ops.tanh(x)))
    """
    programs = functools.lru_cache(maxsize=None)(functools.partial(_programs, function))

    @functools.wraps(function)
    def call(*tensors: Any) -> Any:
        if not _may_fuse(tensors[0]):
            return function(*tensors)
        import tensorflow as tf

        forward, backward = programs()

        @tf.custom_gradient
        def run(*tensors: Any) -> Any:
            def derivative(gradient: Any) -> Any:
                gradients = backward(gradient, *tensors)
                for result, tensor in zip(gradients, tensors, strict=True):
                    result.set_shape(tensor.shape)
                return gradients

            # a tape that watches them is not to differentiate the program, too
            outputs = forward(*map(tf.stop_gradient, tensors))
            outputs.set_shape(tensors[0].shape)
            return outputs, derivative

        return run(*map(tf.convert_to_tensor, tensors))

    return call


def by_rows(function: Callable, x: Any) -> Any:
    """Returns `function(x)`, with TensorFlow of one matrix: it joins products of matrices with what follows.

    Products of tensors with more axes are those of such matrices, too, but what follows is behind a reshape.

    Args:
        function: From `(rows, width)` to `(rows, new_width)`, each row for itself.
        x: `(..., width)`.

    Returns:
        `(..., new_width)`.

    Example:

    >>> by_rows(lambda rows: keras.ops.relu(keras.ops.matmul(rows, kernel) + bias), x)
    """
    if keras.backend.backend() != "tensorflow" or len(x.shape) <= 2:
        return function(x)
    outputs = function(keras.ops.reshape(x, (-1, x.shape[-1])))
    return keras.ops.reshape(outputs, (*keras.ops.shape(x)[:-1], outputs.shape[-1]))


def joins_operations(training: bool | None) -> bool:
    """Whether a graph is built that TensorFlow will join operations of.

    Args:
        training: Whether the graph is differentiated, for which each operation must leave its result.
    """
    if training or has_keras_forms() or not has_onednn():
        return False
    import tensorflow as tf

    return tf.inside_function()


def layer_norm_is_joined(x: Any, training: bool | None) -> bool:
    """Whether `joined_layer_norm` is one pass over memory, where the usual operations are ten.

    Args:
        x: The inputs of the norm.
        training: Whether the graph is differentiated.
    """
    has_kernel = keras.backend.standardize_dtype(x.dtype) in ("float32", "bfloat16") and len(x.shape) in (2, 3)
    return has_kernel and not _portable.get() and joins_operations(training)


def joined_layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Layer normalisation over the last axis in the form that TensorFlow replaces by oneDNN's kernel.

    It is that of Keras 2: a batch norm of one row for each position, here with statistics in float32 in any case. Where
    it is not replaced it is right, but slow.

    Args:
        x: `(rows, dim)` or `(batch, length, dim)`, float32 or bfloat16.
        gamma, beta: `(dim,)`, of the same type.
        epsilon: Added to the variance.

    Returns:
        The shape and type of `x`.
    """
    import tensorflow as tf

    shape = tf.shape(x)
    # A count that is not known: constants in place of what is filled with it are not recognised.
    rows = tf.compat.v1.placeholder_with_default(tf.reduce_prod(shape[:-1]), ())
    nothing = tf.constant([], tf.float32)
    normed, *_ = tf.raw_ops.FusedBatchNormV3(
        x=tf.reshape(x, tf.stack([1, rows, x.shape[-1], 1])),
        scale=tf.fill([rows], 1.0),
        offset=tf.fill([rows], 0.0),
        mean=nothing,
        variance=nothing,
        epsilon=epsilon,
        data_format="NCHW",
        is_training=True,
    )
    return beta + tf.reshape(normed, shape) * gamma


def _may_fuse(tensor: Any) -> bool:
    """Whether a tensor may be large enough, as far as its shape is known."""
    if keras.backend.backend() != "tensorflow" or _portable.get() or has_accelerator():
        return False
    # XLA and the replicas of `tf.distribute` wait for each other
    if num_replicas() > 1:
        return False
    if isinstance(tensor, keras.KerasTensor):
        return False
    shape = keras.ops.convert_to_tensor(tensor).shape
    if shape.rank is None:
        return False
    # of rows of unknown length there may be many; a batch alone, as in a step of a decoder, is small
    size = math.prod(_ROWS if size is None else size for size in shape)
    return None in tuple(shape[1:]) or size >= LEAST_SIZE


# Rows that a batch of unknown size counts as, where its rows have a known size.
_ROWS = 32


def _programs(function: Callable) -> tuple[Callable, Callable]:
    """Returns the forward and the backward pass as functions of TensorFlow, which all calls of `function` share."""
    import tensorflow as tf

    @portable_operations()  # chains within the chain are part of it
    def wide(*tensors: Any) -> Any:
        narrow = tensors[0].dtype
        if narrow not in (tf.bfloat16, tf.float16):
            return function(*tensors)
        return tf.cast(function(*(tf.cast(tensor, tf.float32) for tensor in tensors)), narrow)

    def derivative(gradient: Any, *tensors: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = wide(*tensors)
        return tape.gradient(outputs, tensors, gradient, unconnected_gradients="zero")

    def where_large(plain: Callable) -> Callable:
        compiled = tf.function(plain, jit_compile=True, autograph=False, reduce_retracing=True)

        def either(*tensors: Any) -> Any:
            if tensors[0].shape.is_fully_defined():
                return compiled(*tensors)
            is_large = tf.size(tensors[0]) >= LEAST_SIZE
            return tf.cond(is_large, lambda: compiled(*tensors), lambda: plain(*tensors))

        return tf.function(either, autograph=False, reduce_retracing=True)

    return where_large(wide), where_large(derivative)
