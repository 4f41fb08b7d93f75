"""Which values results may have, by their names: no interval is to reach further."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

Range = tuple[float, float]

# the first that is found in the name of a result, or of its group, decides
_RANGES: tuple[tuple[str, Range], ...] = (
    (r"bleu|chrf|rouge", (0, 100)),
    (r"spearman|pearson", (-1, 1)),
    (r"nll|bits_per|absolute_error|seconds", (0, math.inf)),
    (r"perplexity", (1, math.inf)),
)
# shares, which some recipes write in percent (those of SQuAD) and others as they are
_SHARES = re.compile(r"accuracy|f1|precision|recall|exact_match|ndcg|mrr")


def range_of(metric: str, values: Sequence[float]) -> Range:
    """Returns the lowest and the highest value that a result may have, infinite if it is unbounded or unknown.

    Args:
        metric: Its name, as in `results.json`.
        values: Some of its values: shares of which one is above 1 are in percent.

    Example:

    >>> range_of("accuracy", [0.97, 0.99]), range_of("test_reward_margin", [0.5])
    ((0, 1), (-inf, inf))
    """
    name = metric.lower()
    for pattern, found in _RANGES:
        if re.search(pattern, name):
            return found
    if _SHARES.search(name):
        return 0, 100 if max(values, default=0) > 1 else 1
    return -math.inf, math.inf


def clipped(interval: Range | None, low: float, high: float) -> Range | None:
    """Returns an interval clipped to two values; None for None.

    Args:
        interval: The interval.
        low, high: The values.

    Example:

    >>> clipped((0.97, 1.02), 0, 1)
    (0.97, 1)
    """
    return None if interval is None else (max(interval[0], low), min(interval[1], high))
