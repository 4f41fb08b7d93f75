"""Models whose weights get their values from a file: shapes first, then one value after the other, no initial ones."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
from tqdm import tqdm

from layers.keras_internals import has_value, initialize, new_variables, overwrite, stateless_scope

# what takes less is over before one has read a line
_SECONDS_WITHOUT_BAR = 2


class _Made(list[Any]):
    """Variables that Keras has made, and which of them were made to be trained."""

    def __init__(self) -> None:
        super().__init__()
        self._could_train: dict[int, bool] = {}

    def append(self, variable: keras.Variable) -> None:
        super().append(variable)
        self._could_train[id(variable)] = variable.trainable

    def take_over(self, others: "_Made", variables: Iterable[keras.Variable]) -> None:
        """Adds variables of another list."""
        self.extend(variables)
        self._could_train |= others._could_train

    @contextlib.contextmanager
    def as_made(self, variable: keras.Variable) -> Iterator[None]:
        """Inside, a variable may be trained as it could when it was made.

        TensorFlow's gradient tape never sees a variable whose value was made while it could not be trained. A weight
        that low-rank updates have frozen in the meantime must train when these are taken away.
        """
        now, variable.trainable = variable.trainable, self._could_train.get(id(variable), variable.trainable)
        try:
            yield
        finally:
            variable.trainable = now


class Deferred(keras.StatelessScope):
    """A scope in which variables are made without values, and `assign` gives them theirs.

    Attributes:
        variables: All variables that were made inside.
    """

    def __init__(self, label: str) -> None:
        super().__init__(initialize_variables=False)
        self.variables: _Made = _Made()
        self._label = label
        self._bar: tqdm | None = None

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        variable, value = update
        if not has_value(variable):
            with self.variables.as_made(variable):
                initialize(variable, value)
            self._show(variable)
        else:
            overwrite(variable, value)

    def _show(self, variable: keras.Variable) -> None:
        if self._bar is None:
            total = sum(map(_bytes_of, self.variables))
            self._bar = tqdm(
                **{"total": total, "unit": "B", "unit_scale": True, "desc": self._label, "leave": False},
                **{"delay": _SECONDS_WITHOUT_BAR, "disable": None},  # None: no bar where nobody sees it
            )
        self._bar.update(_bytes_of(variable))

    def forget(self, variables: Iterable[keras.Variable]) -> None:
        """Leaves out variables that are of no use any more: they get no initial values at the end.

        Args:
            variables: The variables.
        """
        gone = {id(variable) for variable in variables}
        self.variables[:] = [variable for variable in self.variables if id(variable) not in gone]

    def close(self) -> None:
        """Ends the progress bar."""
        if self._bar is not None:
            self._bar.close()


@contextlib.contextmanager
def deferred(label: str = "weights") -> Iterator[Deferred]:
    """Models made inside have weights without values, which `assign` gives them; nothing else is allocated.

    Weights that have none when the block ends get their initial ones then. While values are given, a bar shows how many
    are there, if it takes seconds.

    Args:
        label: What is read, for the bar.

    Example:

    >>> with deferred():
    ...     backbone = Backbone.from_config(config)  # at once, however large
    ...     backbone.token_embedding.table.embeddings.assign(table)
    """
    with _collected(Deferred(label)) as scope:
        yield scope
    left = [variable for variable in scope.variables if not has_value(variable)]
    if isinstance(scope.original_scope, Deferred):
        scope.original_scope.variables.take_over(scope.variables, left)
        return
    for variable in left:
        with scope.variables.as_made(variable):
            initialize(variable)


@contextlib.contextmanager
def shapes_only() -> Iterator[None]:
    """Models made inside have weights that never get a value: to ask for shapes and names."""
    with _collected(Deferred("")):
        yield


class _PassedOn(keras.StatelessScope):
    def __init__(self, scope: Deferred, receivers: Iterable[tuple[keras.Variable, Callable[[Any], None]]]) -> None:
        super().__init__(initialize_variables=False)
        self._scope = scope
        self._own = {id(variable) for variable in scope.variables}
        self._receivers = {id(variable): receive for variable, receive in receivers}

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        variable, value = update
        if id(variable) in self._own:
            self._scope.add_update(update)
        elif id(variable) in self._receivers:
            self._receivers[id(variable)](value)


@contextlib.contextmanager
def intercept_assignments(
    scope: Deferred, receivers: Iterable[tuple[keras.Variable, Callable[[Any], None]]]
) -> Iterator[None]:
    """What is assigned inside to the variables of another model is given to functions; that model stays as it is.

    Args:
        scope: The scope in which our model was made: what is assigned to its variables reaches them.
        receivers: Variables of the other model, and what is called with the value of each.
    """
    with _PassedOn(scope, receivers):
        yield


def assign_value(variable: keras.Variable, value: np.ndarray) -> None:
    """Assigns to a variable; where it is passed on, no tensor is made of the value on the way.

    Args:
        variable: The variable.
        value: Its value, of its shape.
    """
    scope = stateless_scope()
    if isinstance(scope, _PassedOn):
        scope.add_update((variable, value))
    else:
        variable.assign(value)


@contextlib.contextmanager
def _collected(scope: Deferred) -> Iterator[Deferred]:
    try:
        with new_variables(scope.variables), scope:
            yield scope
    finally:
        scope.close()


def _bytes_of(variable: keras.Variable) -> int:
    size = np.dtype("uint16" if variable.dtype == "bfloat16" else variable.dtype).itemsize
    return size * int(np.prod(variable.shape))
