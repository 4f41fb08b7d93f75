"""What the tests of several recipes use."""

import keras
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
def eager_steps(monkeypatch):
    """Training steps run eagerly: to trace one takes longer than the few steps of these runs."""
    compile_model = keras.Model.compile

    def compile_eagerly(self, *arguments, **options):
        compile_model(self, *arguments, **{**options, "run_eagerly": True})

    monkeypatch.setattr(keras.Model, "compile", compile_eagerly)
