"""TensorFlow, for tests of graphs and tapes."""

import keras
import pytest


def require_tensorflow():
    """Returns TensorFlow; where it is not the backend, Keras takes none of its tensors, and the test is skipped."""
    if keras.backend.backend() != "tensorflow":
        pytest.skip("a test of TensorFlow's graphs or tapes")
    return pytest.importorskip("tensorflow")
