"""What TensorFlow tells of the function that it traces, by parts of it that are not public."""

import keras
import pytest

from layers.devices import is_recorded, is_traced_for_xla

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="functions of TensorFlow")


@pytest.mark.parametrize("jit_compile", [False, True])
def test_functions_of_xla(jit_compile):
    import tensorflow as tf

    found = {}

    @tf.function
    def inner(x):
        found["inner"] = is_traced_for_xla()
        return x

    @tf.function(jit_compile=jit_compile)
    def outer(x):
        found["outer"] = is_traced_for_xla()
        return inner(x)

    outer(tf.constant(1.0))
    assert found == {"outer": jit_compile, "inner": jit_compile}
    assert not is_traced_for_xla()


@pytest.mark.parametrize("in_function", [False, True])
def test_tapes(in_function):
    import tensorflow as tf

    found = []

    def computed(x):
        found.append(is_recorded())
        with tf.GradientTape() as tape:
            found.append(is_recorded())
            with tape.stop_recording():
                found.append(is_recorded())
        return x

    (tf.function(computed) if in_function else computed)(tf.constant(1.0))
    assert found == [False, True, False]
