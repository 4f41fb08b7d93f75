"""Checks of arguments that samplers and logit processors share."""

import dataclasses
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import keras
import numpy as np
from keras import ops

T = TypeVar("T", bound=type)

# Logits of ordinary size that are multiplied by more than this may exceed the largest float32 number.
LARGEST = 1e30


def is_integer(value: Any) -> bool:
    """Whether `value` is one integer, of Python or NumPy, or a tensor that holds one."""
    if isinstance(value, bool):
        return False
    try:
        operator.index(value)
    except (TypeError, AttributeError):  # the latter of tensors that hold no integer
        return False
    return True


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
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    is_number = is_number and math.isfinite(value)
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


def is_of_rows(value: Any) -> bool:
    """Whether `value` is a tensor `(rows, ...)` of two axes: a setting of each row in the place of one for all."""
    return ops.is_tensor(value) and len(value.shape) == 2


def require_own_equality(name: str, value: Any) -> None:
    """Checks that two values of a user's class are equal only if they do the same: equal ones share their programs.

    A class without `@dataclass` that derives from one with it inherits a comparison that does not know its attributes.

    Args:
        name: What the value is, for the error.
        value: A sampler or processor.

    Raises:
        TypeError: If its class inherits the comparison of a dataclass.
    """
    kind = type(value)
    if not {"__dataclass_params__", "__eq__"} & set(vars(kind)) and kind.__eq__ is not object.__eq__:
        raise TypeError(f"{name} must be of a class with @dataclass(frozen=True), as its base is, got {kind.__name__}.")


def as_seed(seed: Any) -> Any:
    """Returns a seed as an integer scalar that compiled programs take on every backend.

    Args:
        seed: Integer in [0, 2**32), or an integer tensor, which is returned as it is.

    Raises:
        ValueError: If it is no such integer.
    """
    if ops.is_tensor(seed):
        return seed
    value = np.uint32(require_count("seed", seed, 0, 2**32 - 1))
    # JAX has no 64 bits; TensorFlow moves no unsigned integers to a GPU
    return ops.convert_to_tensor(value if keras.backend.backend() == "jax" else value.astype("int64"))


def as_ids(name: str, ids: Any) -> tuple[int, ...]:
    """Returns one id or several as a tuple of Python integers.

    Raises:
        ValueError: If one is not an integer of at least 0.
    """
    ids = (ids,) if is_integer(ids) or not isinstance(ids, Iterable) else tuple(ids)
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


def plain_fields(value: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass as a dictionary of JSON values; numbers of NumPy as those of Python."""

    def plain(leaf: Any) -> Any:
        return leaf.item() if isinstance(leaf, np.generic) else leaf

    return keras.tree.map_structure(plain, dataclasses.asdict(value))


class Register:
    """Classes that are found by name, as in a YAML file, and known to Keras files.

    Args:
        what: What they are, for errors: "sampler".
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._classes: dict[str, type] = {}

    def __call__(self, name: str) -> Callable[[T], T]:
        """Returns a decorator that makes a class known by a name.

        Args:
            name: The name. A class that is defined again takes the place of the first.

        Raises:
            ValueError: If another class has the name.
        """

        def register(cls: T) -> T:
            known = self._classes.get(name)
            if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                raise ValueError(f"name must be a new name of a {self._what}, got {name!r}, which is {known!r}.")
            self._classes[name] = cls
            return keras.saving.register_keras_serializable("keras_transformer_zoo")(cls)

        return register

    def name_of(self, value: Any) -> str | None:
        """Returns the name of the class of an object; None where it has none."""
        return next((name for name, kind in self._classes.items() if kind is type(value)), None)

    @property
    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._classes)

    def make(self, identifier: dict[str, Any]) -> Any:
        """Returns the object that a dictionary with the key "name" and arguments describes.

        Raises:
            ValueError: For a name that does not exist, or an argument that the object does not have or lacks.
        """
        arguments = dict(identifier)
        name = arguments.pop("name", None)
        if not isinstance(name, str) or name not in self._classes:
            raise ValueError(f"The name of a {self._what} must be one of {self.names}, got {name!r}.")
        fields = dataclasses.fields(self._classes[name])
        names = [field.name for field in fields]
        unknown = sorted(set(arguments) - set(names), key=str)
        if unknown:
            raise ValueError(f"The arguments of {self._what} {name!r} must be among {names}, got {unknown} too.")
        missing = [field.name for field in fields if _is_needed(field) and field.name not in arguments]
        if missing:
            raise ValueError(f"The arguments of {self._what} {name!r} must have {missing}, got {list(arguments)}.")
        return self._classes[name](**arguments)


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    """Whether an object cannot be made without a value for the field."""
    return field.init and field.default is field.default_factory is dataclasses.MISSING
