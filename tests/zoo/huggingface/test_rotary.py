"""Angles of rotary positions as the Transformers library computes them from a configuration."""

import numpy as np
import pytest

from layers.positions.rotary_scaling import inverse_frequencies
from zoo.huggingface.rotary import rotary_position


@pytest.mark.parametrize(("partial", "entries"), [(1.0, 8), (0.5, 4), (0.375, 3), (0.7, 5)])
def test_frequencies_of_a_part_of_the_head(partial, entries):
    """The library has `base ** (-i / n)` for each even `i` below `n = int(head_dim * partial)`, also if n is odd."""
    position = rotary_position({"rope_theta": 1000.0, "partial_rotary_factor": partial}, 8, 16)
    expected = 1000.0 ** (-np.arange(0, entries, 2) / entries)
    np.testing.assert_allclose(inverse_frequencies(position.base, position.rotary_dim or 8), expected, rtol=1e-12)
