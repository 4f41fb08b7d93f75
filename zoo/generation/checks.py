"""Checks of arguments that samplers and logit processors share."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any


def is_integer(value: Any) -> bool:
    """Whether `value` is an integer, of Python or NumPy."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def require_count(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Returns an integer.

    Raises:
        ValueError: If it is no integer, or out of range.
    """
    if not is_integer(value) or int(value) < least or (most is not None and int(value) > most):
        allowed = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be an integer {allowed}, got {value!r}.")
    return int(value)


def require_number(
    name: str,
    value: Any,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    hint: str = "",
) -> None:
    """Checks a finite number.

    Raises:
        ValueError: If it is no number, or out of range.
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if least is not None and most is not None:
        allowed = f" from {least} to {most}"
    else:
        bounds = ((above, f"above {above}"), (least, f"of at least {least}"), (most, f"at most {most}"))
        allowed = " and".join(f" {text}" for limit, text in bounds if limit is not None)
    if (
        not is_number
        or (above is not None and value <= above)
        or (least is not None and value < least)
        or (most is not None and value > most)
    ):
        raise ValueError(f"{name} must be a number{allowed}{hint}, got {value!r}.")


def as_ids(name: str, ids: Any) -> tuple[int, ...]:
    """Returns one id or several as a tuple of Python integers.

    Raises:
        ValueError: If one is not an integer of at least 0.
    """
    ids = (ids,) if hasattr(ids, "__index__") or not isinstance(ids, Iterable) else tuple(ids)
    if any(not is_integer(i) or int(i) < 0 for i in ids):
        raise ValueError(f"{name} must be made of integers of at least 0, got {ids!r}.")
    return tuple(int(i) for i in ids)


def as_sequences(name: str, sequences: Any) -> tuple[tuple[int, ...], ...]:
    """Returns ids and sequences of ids as a tuple of tuples: `[3, [4, 5]]` becomes `((3,), (4, 5))`.

    Raises:
        ValueError: If a sequence is empty or holds something else than integers of at least 0.
    """
    if not isinstance(sequences, Iterable) or isinstance(sequences, str):
        raise ValueError(f"{name} must be a list of token ids and of lists of token ids, got {sequences!r}.")
    result = tuple(as_ids(name, sequence) for sequence in sequences)
    if not all(result):
        raise ValueError(f"{name} must not hold an empty sequence, got {sequences!r}.")
    return result


def from_name(what: str, identifier: dict[str, Any], by_name: dict[str, type]) -> Any:
    """Returns the object that a dictionary with the key "name" and arguments describes, as in a YAML file.

    Raises:
        ValueError: For a name that does not exist or an argument that the object does not have.
    """
    arguments = dict(identifier)
    name = arguments.pop("name", None)
    if name not in by_name:
        raise ValueError(f"The name of a {what} must be one of {sorted(by_name)}, got {name!r}.")
    fields = [field.name for field in dataclasses.fields(by_name[name])]
    unknown = sorted(set(arguments) - set(fields))
    if unknown:
        raise ValueError(f"The arguments of {what} {name!r} must be among {fields}, got {unknown} too.")
    return by_name[name](**arguments)
