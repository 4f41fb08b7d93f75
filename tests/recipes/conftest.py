"""What the tests of several recipes use."""

import sys

import pytest


class Untraced:
    """Stands in the place of a `tf.function`: calls the Python function."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments):
        return self.function(*arguments)

    def get_concrete_function(self, *arguments):
        return self


@pytest.fixture(scope="module")
def without_xla():
    """Nothing is compiled by XLA, and generation is not traced: both take seconds each time; the tests of zoo do it."""
    import tensorflow as tf

    function = tf.function

    def without(*arguments, **options):
        if sys._getframe(1).f_globals["__name__"] == "zoo.generation.compiled_functions":
            return Untraced(*arguments)
        return function(*arguments, **{**options, "jit_compile": None})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf, "function", without)
        yield


@pytest.fixture
def eagerly():
    """Functions of TensorFlow run eagerly, but for exports: to trace them takes longer than the few steps of a run."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
