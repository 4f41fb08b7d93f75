"""`MirroredStrategy` on two logical processors trains as one device does with the same batches."""

import keras
import pytest

pytest.importorskip("tensorflow")
if keras.backend.backend() != "tensorflow":
    pytest.skip("of TensorFlow", allow_module_level=True)

from distributed_runs import assert_same, fit  # noqa: E402

MIRRORED = {"distribution": "mirrored", "devices": 2}


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["decoder", "encoder", "encoder_decoder"])
def test_same_as_one_device(tmp_path, shape):
    """Texts of different lengths, so that replicas have different numbers of tokens, and clipped gradients."""
    one, _ = fit(tmp_path, "one", {"shape": shape})
    two, _ = fit(tmp_path, "two", {"shape": shape, **MIRRORED})
    assert_same(two, one)
