"""Names of data sets beside names of files, as values of keys such as `data.train`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from recipes.common.errors import DataError
from recipes.common.text_lines import BadLines

Data = TypeVar("Data")


def is_name(files: Sequence[str]) -> bool:
    """Whether the value of a key is the name of a data set: one word that is no file.

    Args:
        files: The value.
    """
    return len(files) == 1 and re.fullmatch(r"\w+", str(files[0])) is not None and not Path(files[0]).exists()


def load_named(name: str, loaders: Mapping[str, Callable[[], Data]]) -> Data:
    """Returns the data set of a name.

    Args:
        name: The name.
        loaders: What loads each.

    Raises:
        DataError: If there is none of that name, naming the nearest.
    """
    if name not in loaders:
        near = difflib.get_close_matches(name, loaders, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(loaders)}"
        raise DataError(f"{name!r} is neither a file nor a named data set; {hint}")
    return loaders[name]()


def part_files(data: Any, split: str) -> list[str]:
    """Returns the value of a key for a part; where it is empty, the data set that `train` names.

    Args:
        data: A group of a config with the keys `train`, `validation` and perhaps `test`.
        split: "train", "validation" or "test".

    Returns:
        Files, the name of a data set, or nothing.

    Example:

    >>> part_files(config.data, "validation")
    ['multi30k_en_de']
    """
    given = getattr(data, split)
    return given or (data.train if is_name(data.train) else [])


def open_parts(data: Any, open_part: Callable[[list[str], str], tuple[Data | None, BadLines]]) -> list[Data]:
    """Returns the training, validation and test part, and says what was left out.

    Args:
        data: A group of a config with the keys `train`, `validation` and perhaps `test`.
        open_part: Given files, or the name of a data set, and the part: its data, None where the data set lacks it, and
            the account of the lines left out.

    Returns:
        A part for each of these keys; without a test part the validation part takes its place.

    Raises:
        DataError: If there is no validation part, or every row of a part is bad.
    """
    parts: list[Data] = []
    for split in ("train", "validation", "test")[: 2 + hasattr(data, "test")]:
        files, part = part_files(data, split), None
        if files:
            part, bad = open_part(files, split)
            if bad.total:
                print(f"{split}: {bad.report()}")
            if part is not None and not len(part):
                raise DataError(f"nothing is left of {' '.join(map(str, files))}: {bad.report()}")
        if part is None and split == "validation":
            raise DataError("data.validation must be given, unless data.train names a data set with a validation part")
        parts.append(parts[1] if part is None else part)
    return parts
