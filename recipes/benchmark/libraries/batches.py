"""The same random batches for every library."""

from __future__ import annotations

import numpy as np

from recipes.benchmark.works import Work


def token_ids(work: Work, *, longer: int = 0) -> np.ndarray:
    """Returns random tokens `(batch_size, length + longer)`, int32, none of the first four, which may be special.

    Args:
        work: The work.
        longer: Further tokens of a row, of which labels are made.

    Example:

    >>> token_ids(WORKS["train_decoder"], longer=1).shape
    (8, 257)
    """
    generator = np.random.default_rng(0)
    return generator.integers(4, work.vocabulary_size, (work.batch_size, work.length + longer)).astype("int32")


def padding_mask(work: Work) -> np.ndarray:
    """Returns which tokens are real, `(batch_size, length)`: rows end with no or a few padding positions.

    Args:
        work: The work.
    """
    lengths = np.random.default_rng(1).integers(max(1, work.length - 3), work.length + 1, (work.batch_size, 1))
    return np.arange(work.length) < lengths
