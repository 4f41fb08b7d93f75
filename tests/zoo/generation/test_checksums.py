"""Checksums of weights change with the weights; run with KERAS_BACKEND=jax too."""

import types

import keras
import numpy as np
import pytest
from keras import ops

from zoo.generation.checksums import Checksums, device_checksums

pytestmark = pytest.mark.backends

CHANGES = {
    "one entry": lambda w: w + np.pad([[0.25]], [(3, w.shape[0] - 4), (0, w.shape[1] - 1)]),
    "twice": lambda w: 2 * w,
    "half": lambda w: w / 2,
    "other sign": lambda w: -w,
    "other order": lambda w: w[::-1],
    "other columns": lambda w: np.roll(w, 1, axis=1),
    # in each 255 entries, whatever their number
    "signs of pairs": lambda w: w * np.where(np.arange(w.size) % 255 < 2, -1, 1).reshape(w.shape),
    "scaled": lambda w: 1.01 * w,
}


def in_memory(variables, quick=False):
    return Checksums(types.SimpleNamespace(active_variables=variables))(quick)


@pytest.mark.parametrize("checksums", [in_memory, device_checksums])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64", "int8"])
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen(dtype, change, checksums):
    if dtype == "float64" and keras.backend.backend() == "jax":
        dtype = "float32"
    # sizes that are and are not powers of 2; values that bfloat16 can tell, too, whose last bits in float32 are 0
    for shape in ((64, 64), (7, 33), (512, 2)):
        values = np.random.default_rng(0).integers(-60, 60, shape) / (1 if dtype == "int8" else 64)
        variables = [keras.Variable(values.astype("float32"), dtype=dtype), keras.Variable(np.ones(3))]
        before = ops.convert_to_numpy(checksums(variables))
        few = ops.convert_to_numpy(checksums(variables, quick=True))
        old = ops.convert_to_numpy(ops.cast(variables[0], "float32")).copy()
        variables[0].assign(ops.cast(CHANGES[change](values).astype("float32"), dtype))
        if np.array_equal(ops.convert_to_numpy(ops.cast(variables[0], "float32")), old):
            continue  # what is half of 1 in whole numbers
        after = ops.convert_to_numpy(checksums(variables))
        assert after[0] != before[0] and after[1] == before[1], shape
        if change not in ("one entry", "signs of pairs"):
            assert not np.array_equal(ops.convert_to_numpy(checksums(variables, quick=True)), few), shape


@pytest.mark.parametrize("checksums", [in_memory, device_checksums])
def test_small_variables(checksums):
    for shape in ((), (1,), (0, 4), (255,), (256,)):
        variables = [keras.Variable(np.zeros(shape), dtype="float32")]
        assert ops.convert_to_numpy(checksums(variables)).shape == (1,)
        assert ops.convert_to_numpy(checksums(variables, quick=True)).shape == (min(int(np.prod(shape)), 256),)
