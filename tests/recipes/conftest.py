"""What the tests of several recipes use."""

import pytest


@pytest.fixture(scope="module")
def without_xla():
    """Programs of TensorFlow are not compiled by XLA, which takes seconds for each shape; the tests of zoo do that."""
    import tensorflow as tf

    function = tf.function

    def without(*arguments, **options):
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
