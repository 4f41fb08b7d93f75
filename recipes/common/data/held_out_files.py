"""The keys of the held-out parts of the data, the same in all recipes that train."""

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


def deduplicate_key() -> Any:
    """Returns the field `deduplicate` of the config dataclass of a recipe's data.

    Example:

    >>> deduplicate: bool = deduplicate_key()
    """
    return setting(
        False,
        "Whether to leave out rows of the training data that validation or test have, too, rows of the validation that "
        "test has, and rows that a part repeats. They are counted in any case.",
    )


def test_part() -> Any:
    """Returns the field `test` of the config dataclass of a recipe's data.

    Example:

    >>> test: list[str] = test_part()
    """
    return setting(
        [], f"{_AS_TRAIN}the test set of the data set, or the validation set if there is none.", offers="paths"
    )
