"""The keys that name the held-out parts of the data, the same in all recipes that train."""

from __future__ import annotations

from typing import Any

from recipes.common.config import setting

_AS_TRAIN = "Files or a data set, as for train. Empty: "


def validation_part() -> Any:
    """Returns the field `validation` of the config dataclass of a recipe's data.

    Example:

    >>> validation: list[str] = validation_part()
    """
    return setting([], f"{_AS_TRAIN}the validation set of the data set that train names.", offers="paths")


def test_part() -> Any:
    """Returns the field `test` of the config dataclass of a recipe's data.

    Example:

    >>> test: list[str] = test_part()
    """
    return setting(
        [], f"{_AS_TRAIN}the test set of the data set, or the validation set if there is none.", offers="paths"
    )
