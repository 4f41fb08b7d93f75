"""Which values results may have, by their names: no interval is to reach further."""

from __future__ import annotations

import math
import re
from collections.abc import Collection

Range = tuple[float, float]

# the first that is found in the name of a result decides
_RANGES: tuple[tuple[str, Range], ...] = (
    (r"bleu|chrf|rouge", (0, 100)),
    (r"spearman|pearson", (-1, 1)),
    (r"nll|bits_per|absolute_error|seconds", (0, math.inf)),
    (r"perplexity", (1, math.inf)),
    (r"accuracy|f1|precision|recall|exact_match|ndcg|mrr|thresholds", (0, 1)),
)
# groups whose results have the names of labels
_BY_LABEL = re.compile(r"_by_label$|^thresholds$")
_OF_ANSWERS = re.compile(r"(exact_match|f1)(_with(out)?_answer)?")


def range_of(metric: str, others: Collection[str] = ()) -> Range:
    """Returns the lowest and the highest value that a result may have, infinite if it is unbounded or unknown.

    Args:
        metric: Its name, as in `results.json`; those of a group have the name of the group and a point before theirs.
        others: Names of the other results: `exact_match` beside `f1` is that of SQuAD, in percent.

    Example:

    >>> range_of("accuracy"), range_of("exact_match", ["exact_match", "f1"]), range_of("test_reward_margin")
    ((0, 1), (0, 100), (-inf, inf))
    """
    groups = metric.split(".")
    name = next((group for group in groups[:-1] if _BY_LABEL.search(group)), groups[-1])
    if _OF_ANSWERS.fullmatch(name) and metric.removesuffix(name) + "f1" in (metric, *others):
        return 0, 100
    found = (of_name for pattern, of_name in _RANGES if re.search(pattern, name.lower()))
    return next(found, (-math.inf, math.inf))


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
