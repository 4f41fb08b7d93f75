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
