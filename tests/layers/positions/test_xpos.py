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


def encoded(position, x, positions):
    """Queries and keys `(batch, heads, length, head_dim)` of the same vectors `(batch, length, heads, head_dim)`."""
    x, prepared = keras.ops.convert_to_tensor(x), position.prepare(positions)
    pair = (keras.ops.transpose(hook(x, prepared), (0, 2, 1, 3)) for hook in (position.on_queries, position.on_keys))
    return [keras.ops.convert_to_numpy(x) for x in position.on_pairs(*pair, positions, positions)]


@pytest.mark.parametrize("shift", [0, 90_000])
@pytest.mark.parametrize("layout", ["interleaved", "half_split"])
def test_products_of_queries_and_keys(layout, shift, numbers):
    """At any position, those of the published algorithm at positions where it does not overflow."""
    x = numbers.normal(size=(1, 3, 2, 8))
    places = np.array([0, 5, 40])
    position = XPos(8, base=100.0, layout=layout, scale_base=16.0, dtype="float64")
    order = np.arange(8) if layout == "interleaved" else np.arange(8).reshape(4, 2).T.ravel()
    query, key = encoded(position, x[..., order], keras.ops.convert_to_tensor([places + shift]))
    products = query @ key.swapaxes(2, 3)
    for head, i, j in np.ndindex(2, 3, 3):
        expected = formula(x[0, i, head], places[i], 1) @ formula(x[0, j, head], places[j], -1)
        if j <= i:
            np.testing.assert_allclose(products[0, head, i, j], expected, **NEAR)


def test_products_depend_on_the_distance_and_fall_with_it(numbers):
    x = np.ones((1, 5, 1, 8))
    position = XPos(8, base=100.0, scale_base=8.0, dtype="float64")
    products = []
    for shift in (0, 7):
        query, key = encoded(position, x, keras.ops.arange(5) + shift)
        products.append(query[0, 0] @ key[0, 0].T)
    np.testing.assert_allclose(products[0], products[1], **NEAR)
    # equation 10: each pair turns by the distance and is scaled by a power of it
    distance, ratio = np.arange(5)[:, None, None] - np.arange(5)[:, None], np.arange(4) / 4
    zeta = (ratio + 0.4) / 1.4
    expected = (2 * np.cos(distance * 100.0**-ratio) * zeta ** (distance / 8.0)).sum(-1)
    np.testing.assert_allclose(products[0], expected, **NEAR)


def test_without_growth_it_is_rotary(numbers):
    x, positions = numbers.normal(size=(2, 4, 3, 8)), keras.ops.arange(4)
    expected = encoded(RotaryEmbedding(8, dtype="float64"), x, positions)
    actual = encoded(XPos(8, scale_base=1e12, dtype="float64"), x, positions)
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
