"""The forms of operations in TensorFlow graphs: those that TensorFlow fuses, and plain ones that all servers support.

At inference on a CPU, TensorFlow's graph optimizer replaces some chains of operations by one kernel of oneDNN: a matrix
product with its bias and activation, and a layer norm. It recognises them by the form of their operations. In
training, XLA makes one loop of the chains between the products. JAX and PyTorch are left unchanged.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

import keras

from layers.devices import has_accelerator, has_onednn, num_replicas

# Number of entries of the largest tensor from which on a separate XLA program pays. Compiling one takes as long as
# several hundred of the passes that it saves.
LEAST_SIZE = 2**18


class GraphForms(NamedTuple):
    """What the operations of the graph that is being built depend on besides their arguments.

    Args:
        portable: Whether the graph contains only plain operations, which all servers and converters support.
        jit_compile: Whether XLA compiles the whole graph.
        keras_forms: Whether operations keep the form that Keras gives them, which the LiteRT converter recognises,
            instead of the form that TensorFlow fuses.
        attention: Called in the place of `layers.attention.kernels.attend` and with its arguments, for a converter
            whose runtime has an operation for attention. None for the kernels.
        converted: Whether the graph is converted for another runtime, which has only the most common operations.
    """

    portable: bool = False
    jit_compile: bool = False
    keras_forms: bool = False
    attention: Callable[..., Any] | None = None
    converted: bool = False


_PLAIN = GraphForms()
_forms: ContextVar[GraphForms] = ContextVar("graph_forms", default=_PLAIN)


@contextlib.contextmanager
def portable_operations(
    jit_compile: bool = False,
    keras_forms: bool = False,
    attention: Callable[..., Any] | None = None,
    converted: bool = False,
) -> Iterator[None]:
    """A context in which graphs contain only plain operations.

    Args:
        jit_compile, keras_forms, attention, converted: See `GraphForms`. Keras's forms and a conversion are kept within
            another such context, too.

    Example:

    >>> with portable_operations():
    ...     keras.export.ExportArchive()  # and so on
    """
    outer = _forms.get()
    forms = GraphForms(True, jit_compile, keras_forms or outer.keras_forms, attention, converted or outer.converted)
    token = _forms.set(forms)
    try:
        yield
    finally:
        _forms.reset(token)


def graph_forms() -> GraphForms:
    """Returns the forms of the operations of the graph that is being built."""
    return _forms.get()


def update_slice(inputs: Any, start: Any, updates: Any) -> Any:
    """Returns `inputs` with `updates` written at a place, as `keras.ops.slice_update` does.

    On TensorFlow, `slice_update` is an XLA operation, which servers without XLA do not support. Portable graphs get a
    plain TensorFlow operation, which writes in place if nothing else reads `inputs`.

    Args:
        inputs: The tensor.
        start: The place, an integer or integer scalar for each axis, or a vector of these. It is moved so that the
            updates fit.
        updates: The values to write, of the rank of `inputs`.
    """
    forms = _forms.get()
    if keras.backend.backend() != "tensorflow" or not forms.portable or forms.jit_compile:
        return keras.ops.slice_update(inputs, start, updates)
    import tensorflow as tf

    size, most = sizes(updates), sizes(inputs)
    begin = start if tf.is_tensor(start) else tf.stack([tf.cast(place, tf.int32) for place in start])
    begin = tf.clip_by_value(begin, 0, [each - part for each, part in zip(most, size, strict=True)])
    written = tf.raw_ops.TensorStridedSliceUpdate(
        input=inputs, begin=begin, end=begin + size, strides=[1] * len(size), value=updates
    )
    written.set_shape(inputs.shape)
    return written


def update_places(inputs: Any, places: Any, updates: Any) -> Any:
    """Returns `inputs` with `updates` written at places, as `keras.ops.scatter_update` does.

    TensorFlow without XLA copies all of `inputs` for that, which for the cache of a layer takes longer than its
    attention. Portable graphs add to the bits of a place what makes them those of the update: the operation that adds
    writes in place if nothing else reads `inputs`, and integers are added without rounding.

    Args:
        inputs: The tensor `(..., width)`, of rank r.
        places: A place on all axes but the last for each update, integers `(updates, r - 1)`, no two of which are the
            same.
        updates: The values to write, `(updates, width)`.
    """
    forms = _forms.get()
    if keras.backend.backend() != "tensorflow" or not forms.portable or forms.jit_compile or forms.converted:
        return keras.ops.scatter_update(inputs, places, updates)
    import tensorflow as tf

    bits = {1: tf.uint8, 2: tf.uint16, 4: tf.uint32, 8: tf.uint64}[inputs.dtype.size]
    change = tf.bitcast(updates, bits) - tf.bitcast(tf.gather_nd(inputs, places), bits)
    written = tf.raw_ops.ScatterNdNonAliasingAdd(input=tf.bitcast(inputs, bits), indices=places, updates=change)
    written = tf.bitcast(written, inputs.dtype)
    written.set_shape(inputs.shape)
    return written


@functools.cache
def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function with the same results for training, which makes one pass over memory where this is faster.

    TensorFlow on a CPU computes one operation after the other. Each reads and writes memory, and keeps what the
    backward pass needs. XLA turns a chain into one loop, but it does not speed up matrix products, and slows them down
    in bfloat16. Therefore only the chains between the products are compiled by XLA. It makes steps in bfloat16 up to a
    sixth shorter, and those in float32 need less memory.

    Its backward pass computes the chain again from the inputs, so that no intermediate results are kept. Within the
    chain, half precision becomes float32.

    Args:
        function: An element-wise function of tensors of one shape and type, made of Keras operations, without variables
            or randomness. Functions that are equal are compiled once.

    Example:

    >>> square_of_tanh = fused(lambda x: ops.square(ops.tanh(x)))
    """
    programs = functools.cache(functools.partial(_programs, function))

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

            # so that a tape that watches the inputs does not also differentiate the program
            outputs = forward(*map(tf.stop_gradient, tensors))
            outputs.set_shape(tensors[0].shape)
            return outputs, derivative

        return run(*map(tf.convert_to_tensor, tensors))

    return call


def as_matrix(function: Callable[[Any], Any], x: Any) -> Any:
    """Returns `function(x)`. With TensorFlow, `x` is reshaped to one matrix first, so that operations are fused.

    TensorFlow fuses the product of two matrices with the operations after it. For tensors with more axes, a reshape
    stands between them.

    Args:
        function: From `(rows, width)` to `(rows, new_width)`, computed for each row separately.
        x: `(..., width)`.

    Returns:
        `(..., new_width)`.

    Example:

    >>> as_matrix(lambda rows: keras.ops.relu(keras.ops.matmul(rows, kernel) + bias), x)
    """
    outputs, shape = function(to_matrix(x)), sizes(x)
    return outputs if len(outputs.shape) == len(shape) else keras.ops.reshape(outputs, (*shape[:-1], outputs.shape[-1]))


def to_matrix(x: Any) -> Any:
    """Returns `x` `(..., width)` as one matrix `(rows, width)` with TensorFlow, else `x` itself, see `as_matrix`."""
    if keras.backend.backend() != "tensorflow" or len(x.shape) <= 2:
        return x
    return keras.ops.reshape(x, (-1, x.shape[-1]))


def sizes(x: Any) -> tuple[Any, ...]:
    """Returns `keras.ops.shape(x)` with few operations in a graph of TensorFlow: two, or none if all are known.

    Keras makes four for each size that is not known, an eighth of the operations of an export.
    """
    shape = tuple(x.shape)
    if None not in shape:
        return shape
    if keras.backend.backend() != "tensorflow" or isinstance(x, keras.KerasTensor):
        return tuple(keras.ops.shape(x))
    import tensorflow as tf

    found = tf.unstack(tf.shape(x))
    return tuple(number if size is None else size for size, number in zip(shape, found, strict=True))


def layer_norm_is_joined(x: Any, training: bool | None) -> bool:
    """Returns whether `joined_layer_norm` takes one pass over memory, instead of ten.

    Args:
        x: The inputs of the norm.
        training: Whether the graph is differentiated. The backward pass needs the result of each operation.
    """
    has_kernel = keras.backend.standardize_dtype(x.dtype) in ("float32", "bfloat16") and len(x.shape) in (2, 3)
    if training or not has_kernel or _forms.get().portable or not has_onednn():
        return False
    import tensorflow as tf

    return tf.inside_function()


def joined_layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Returns the layer norm over the last axis, in the form that TensorFlow replaces by oneDNN's kernel.

    It is the form of Keras 2: a batch norm with one row for each position. Statistics are always in float32. If it is
    not replaced, the result is correct but slow.

    Args:
        x: `(rows, dim)` or `(batch, length, dim)`, float32 or bfloat16.
        gamma, beta: `(dim,)`, of the same type.
        epsilon: Added to the variance.

    Returns:
        The shape and type of `x`.
    """
    import tensorflow as tf

    shape = tf.shape(x)
    # a count that TensorFlow cannot fold into constants: with constants it does not recognise the form
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
    if keras.backend.backend() != "tensorflow" or has_accelerator():
        return False
    # XLA programs inside replicas of `tf.distribute` deadlock
    if num_replicas() > 1:
        return False
    if isinstance(tensor, keras.KerasTensor):
        return False
    shape = keras.ops.convert_to_tensor(tensor).shape
    if shape.rank is None:
        return False
    # an unknown length may be long; a tensor with an unknown batch size alone, as in a decoding step, is small
    size = math.prod(_ROWS if size is None else size for size in shape)
    return None in tuple(shape[1:]) or size >= LEAST_SIZE


# Number of rows assumed for a batch of unknown size whose other sizes are known.
_ROWS = 32


def _programs(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns the forward and the backward pass as TensorFlow functions that all calls of `function` share."""
    import tensorflow as tf

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

    def where_large(plain: Callable[..., Any]) -> Callable[..., Any]:
        compiled = tf.function(plain, jit_compile=True, autograph=False, reduce_retracing=True)

        def either(*tensors: Any) -> Any:
            if tensors[0].shape.is_fully_defined():
                return compiled(*tensors)
            is_large = tf.size(tensors[0]) >= LEAST_SIZE
            return tf.cond(is_large, lambda: compiled(*tensors), lambda: plain(*tensors))

        return tf.function(either, autograph=False, reduce_retracing=True)

    return where_large(wide), where_large(derivative)
