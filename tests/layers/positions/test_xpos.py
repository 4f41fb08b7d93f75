"""xPos against its formula."""

import keras
import numpy as np
import pytest

from layers.positions import RotaryEmbedding, XPos

# JAX has no float64 unless the whole process is told
NEAR = {"rtol": 1e-5, "atol": 1e-6} if keras.backend.backend() == "jax" else {"rtol": 1e-10, "atol": 1e-12}


def formula(x, position, sign, base=100.0, scale_base=16.0, gamma=0.4):
    """Sun et al. 2023, algorithm 1, for one vector of the interleaved layout; `sign` is 1 for queries, -1 for keys."""
    result = np.zeros_like(x)
    for pair in range(len(x) // 2):
        angle = position * base ** (-2 * pair / len(x))
        zeta = (2 * pair / len(x) + gamma) / (1 + gamma)
        a, b = x[2 * pair], x[2 * pair + 1]
        growth = zeta ** (sign * position / scale_base)
        result[2 * pair] = growth * (a * np.cos(angle) - b * np.sin(angle))
        result[2 * pair + 1] = growth * (a * np.sin(angle) + b * np.cos(angle))
    return result


def encoded(position, x, positions, which):
    hook = {"query": position.on_queries, "key": position.on_keys}[which]
    return keras.ops.convert_to_numpy(hook(keras.ops.convert_to_tensor(x), position.prepare(positions)))


@pytest.mark.parametrize("layout", ["interleaved", "half_split"])
def test_queries_and_keys(layout, numbers):
    x = numbers.normal(size=(1, 3, 2, 8))
    positions = np.array([[0, 5, 40]])
    position = XPos(8, base=100.0, layout=layout, scale_base=16.0, dtype="float64")
    order = np.arange(8) if layout == "interleaved" else np.arange(8).reshape(4, 2).T.ravel()
    for which, sign in (("query", 1), ("key", -1)):
        actual = encoded(position, x[..., order], positions, which)
        for index, place in enumerate(positions[0]):
            for head in range(2):
                expected = formula(x[0, index, head], place, sign)[order]
                np.testing.assert_allclose(actual[0, index, head], expected, **NEAR)


def test_products_depend_on_the_distance_and_fall_with_it(numbers):
    x = np.ones((1, 5, 1, 8))
    position = XPos(8, base=100.0, scale_base=8.0, dtype="float64")
    products = []
    for shift in (0, 7):
        query = encoded(position, x, np.arange(5) + shift, "query")[0, :, 0]
        key = encoded(position, x, np.arange(5) + shift, "key")[0, :, 0]
        products.append(query @ key.T)
    np.testing.assert_allclose(products[0], products[1], **NEAR)
    # equation 10: each pair turns by the distance and is scaled by a power of it
    distance, ratio = np.arange(5)[:, None, None] - np.arange(5)[:, None], np.arange(4) / 4
    zeta = (ratio + 0.4) / 1.4
    expected = (2 * np.cos(distance * 100.0**-ratio) * zeta ** (distance / 8.0)).sum(-1)
    np.testing.assert_allclose(products[0], expected, **NEAR)


def test_without_growth_it_is_rotary(numbers):
    x, positions = numbers.normal(size=(2, 4, 3, 8)), np.arange(4)
    expected = encoded(RotaryEmbedding(8, dtype="float64"), x, positions, "key")
    actual = encoded(XPos(8, scale_base=1e12, dtype="float64"), x, positions, "key")
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)
