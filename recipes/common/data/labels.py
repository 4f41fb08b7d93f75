"""What a label of a row is: a name, written in one way, or a number."""

from __future__ import annotations

import math
import re
import unicodedata
from decimal import Decimal
from typing import Any

from recipes.common.errors import shown

# a label that may be meant for another one: a whole number, true or false
_NUMBER = re.compile(r"[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,3})?", re.IGNORECASE)
_BOOLEANS = {"true": "1", "false": "0"}


def read_name(value: Any, *, is_json: bool = False) -> str:
    """Returns the name that a field of a file holds, without white space around it.

    Args:
        value: Text; or of JSON a number, true or false, which become text as JSON writes them.
        is_json: Whether it is a value of JSON, where "nan" in quotes is a name. A cell that holds it has no value.

    Raises:
        ValueError: If it holds none: nothing, null, NaN, a list or an object.

    Example:

    >>> read_name(" spam "), read_name(1), read_name(True)
    ('spam', '1', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        name = str(value).strip()
        if name and (is_json or name.casefold() != "nan"):
            return name
    hint = ', which stands for a missing value; in JSON, "nan" in quotes is a name'
    is_nan = isinstance(value, str) and bool(value.strip())
    raise ValueError(f"the field must hold a name, got {shown(value)}{hint if is_nan else ''}")


def read_number(value: Any) -> float:
    """Returns the finite number that a field of a file holds.

    Args:
        value: Text, or a number of JSON.

    Raises:
        ValueError: If it holds none.

    Example:

    >>> read_number(" 0.5 ")
    0.5
    """
    # Python takes "1_000" and true for numbers
    if isinstance(value, str | int | float) and not isinstance(value, bool) and "_" not in str(value):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
    raise ValueError(f"the field must hold a number, got {shown(value)}")


class Labels:
    """Reads the labels of rows, and sees to it that each label is written in one way.

    `1`, `1.0`, `1e0` and `true` are one label, and so is `café`, composed (NFC) or not: where the first row has one of
    them, another one is an error.

    Example:

    >>> labels = Labels()
    >>> labels.read("1", "a.csv:1"), labels.read_several("1, 2", ",", "a.csv:2")
    ('1', ['1', '2'])
    """

    def __init__(self) -> None:
        self._first: dict[str, tuple[str, str]] = {}

    def read(self, value: Any, origin: str, *, is_json: bool = False) -> str:
        """Returns the label of a field.

        Args:
            value, is_json: See `read_name`.
            origin: Where it stands, `FILE:line`.

        Raises:
            ValueError: If it holds none, or a label that an earlier row has written in another way.
        """
        label = read_name(value, is_json=is_json)
        name, place = self._first.setdefault(_same(label), (label, origin))
        if name != label:
            raise ValueError(
                f"{shown(label)} is written {shown(name)} in {place}; each label must be written in one way"
            )
        return label

    def read_several(self, value: Any, separator: str, origin: str, *, is_json: bool = False) -> list[str]:
        """Returns the labels of a field, perhaps none.

        Args:
            value: Text, or of JSON a list of labels.
            separator: What separates those of a text.
            origin: Where it stands, `FILE:line`.
            is_json: See `read_name`.

        Raises:
            ValueError: If the field is null or an object, a label is none (see `read`), or one is there twice.
        """
        if isinstance(value, list):
            parts = value
        else:
            text = value if isinstance(value, str) and not value.strip() else read_name(value, is_json=is_json)
            parts = [part for part in text.split(separator) if part.strip()]
        labels = [self.read(part, origin, is_json=is_json) for part in parts]
        twice = next((label for label in labels if labels.count(label) > 1), None)
        if twice is not None:
            raise ValueError(f"the label {shown(twice)} stands twice in {shown(value)}")
        return labels


def _same(label: str) -> str:
    """What labels have in common that are written in different ways."""
    # digits of other scripts, such as those of Japanese or Arabic, are digits
    digits = "".join(str(unicodedata.decimal(character, character)) for character in label)
    number = Decimal(digits) if _NUMBER.fullmatch(digits) else None
    if number is not None and number == number.to_integral_value():
        return str(int(number))
    # composed or not, a letter with an accent looks the same
    return _BOOLEANS.get(label.casefold(), unicodedata.normalize("NFC", label))
