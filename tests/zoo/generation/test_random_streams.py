import keras
import numpy as np
import pytest
from keras import ops

from zoo.generation.checks import as_seed
from zoo.generation.random import threefry_2x32, uniforms


def words(values):
    return ops.convert_to_tensor(np.array(values, dtype="uint32"))


@pytest.mark.parametrize(
    "counter, key, expected",
    [
        # The known answers that the authors publish with their Random123 library (threefry2x32, 20 rounds).
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_known_answers(counter, key, expected):
    result = threefry_2x32([words([k]) for k in key], [words([c]) for c in counter])
    assert tuple(int(ops.convert_to_numpy(word)[0]) for word in result) == expected


def test_threefry_equals_the_one_of_jax():
    jax = pytest.importorskip("jax")
    if keras.backend.backend() != "jax":
        pytest.skip("needs the JAX backend")
    from jax.extend.random import threefry_2x32 as of_jax

    bits = np.random.default_rng(0).integers(0, 2**32, (6, 50), dtype="uint64").astype("uint32")
    for key in bits[:2].T[:5]:
        expected = of_jax(jax.numpy.array(key), jax.numpy.array(bits[2:4]))
        actual = threefry_2x32([words([k]) for k in key], [words(bits[2]), words(bits[3])])
        np.testing.assert_array_equal(np.array(expected), np.stack([np.array(word) for word in actual]))


def test_golden_numbers():
    # Word 0 of the first known answer, 0x6B200159: (2 * (word >> 9) + 1) / 2**24. All backends must agree on it.
    first = ops.convert_to_numpy(uniforms(0, [0], 1))
    assert first.shape == (1, 1) and first.dtype == np.float32
    assert first[0, 0] == (2 * (0x6B200159 >> 9) + 1) / 2**24


def pearson(counts):
    """Pearson's statistic against equal frequencies, in standard deviations from its mean."""
    expected = counts.sum() / counts.size
    statistic = np.sum((counts - expected) ** 2) / expected
    degrees = counts.size - 1
    return (statistic - degrees) / np.sqrt(2 * degrees)


@pytest.fixture(scope="module")
def sample():
    """(seed, step, stream): the numbers of 3 neighbouring seeds, 300 steps, 300 streams."""
    return np.stack([ops.convert_to_numpy(uniforms(seed, np.arange(300), 300)) for seed in (0, 1, 2)])


def test_numbers_are_uniform(sample):
    assert sample.min() > 0 and sample.max() < 1
    for numbers in (sample, sample[0], sample[:, 0], sample[:, :, 0], sample[:, -1], sample[:, :, -1]):
        counts, _ = np.histogram(numbers, bins=64, range=(0, 1))
        # Four standard deviations either way: frequencies that are too even are no better than uneven ones.
        assert abs(pearson(counts)) < 4


def test_low_bits_are_uniform(sample):
    low = (sample * 2**23).astype("int64") % 64
    assert abs(pearson(np.bincount(low.ravel(), minlength=64))) < 4


@pytest.mark.parametrize("axis", [0, 1, 2], ids=["seeds", "steps", "streams"])
@pytest.mark.parametrize("distance", [1, 2])
def test_neighbours_are_independent(sample, axis, distance):
    size = sample.shape[axis]
    left = np.take(sample, range(size - distance), axis=axis)
    right = np.take(sample, range(distance, size), axis=axis)
    counts, _, _ = np.histogram2d(left.ravel(), right.ravel(), bins=16, range=((0, 1), (0, 1)))
    assert abs(pearson(counts)) < 4


def test_a_number_depends_on_seed_stream_and_step_alone():
    whole = ops.convert_to_numpy(uniforms(5, list(range(9)), 12))
    assert len(np.unique(whole)) == whole.size
    part = ops.convert_to_numpy(uniforms(5, [7, 2], 4))
    np.testing.assert_array_equal(part, whole[:4][:, [7, 2]])
    of_a_tensor = ops.convert_to_numpy(uniforms(ops.convert_to_tensor(5, dtype="int32"), [7, 2], 4))
    np.testing.assert_array_equal(of_a_tensor, part)
    assert not np.any(ops.convert_to_numpy(uniforms(6, [7, 2], 4)) == part)


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "a", None, True])
def test_bad_seed(seed):
    with pytest.raises(ValueError, match="seed must be"):
        uniforms(seed, [0], 1)


@pytest.mark.parametrize("seed", [2**31 - 1, 2**31, 2**32 - 1])
def test_large_seeds(seed):
    """As a number and as a tensor, whose integers may be too short on some backends."""
    numbers = ops.convert_to_numpy(uniforms(seed, [0, 3], 2))
    np.testing.assert_array_equal(ops.convert_to_numpy(uniforms(as_seed(seed), [0, 3], 2)), numbers)
    words = threefry_2x32((np.uint32(seed), np.uint32(3)), (np.uint32(1), np.uint32(0)))
    assert numbers[1, 1] == (2 * (int(ops.convert_to_numpy(words[0])) >> 9) + 1) * 2.0**-24
