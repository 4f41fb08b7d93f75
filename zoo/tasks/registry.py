"""The tasks that files may name, and their checked arguments."""

import contextlib
import inspect
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import keras

from zoo.backbones.backbone import Backbone
from zoo.preprocessing.labels import have_same_outputs
from zoo.storage import errors_of_file, quote, require_type
from zoo.tasks.saving import PREPROCESSOR, registered_kind

# what helps where a file names another task
OWN_TASKS = (
    "A class of one's own is read by its own from_preset(), and by that of others after zoo.tasks.register_tasks()."
)
_TASKS: dict[str, type] = {}


def register_tasks(*tasks: type) -> None:
    """Registers task classes by name, so that saved models of these tasks can be loaded.

    Args:
        *tasks: Task classes.

    Raises:
        ValueError: If another class has the same name.
    """
    for task in tasks:
        if _TASKS.get(task.__name__, task) is not task:
            raise ValueError(f"A task named {task.__name__!r} is registered already.")
        _TASKS[task.__name__] = task


def registered_tasks() -> dict[str, type]:
    """Returns the tasks that a saved model may name, by their names."""
    return _TASKS


def task_class_of(name: str, where: str) -> type:
    """Returns the task of a name.

    Args:
        name: The name.
        where: What names it, for the error.

    Raises:
        ValueError: If there is none.
    """
    if name not in _TASKS:
        raise ValueError(f"{where}: task must be one of {sorted(_TASKS)}, got {quote(name)}. {OWN_TASKS}")
    return _TASKS[name]


def parameters_of(*kinds: type) -> dict[str, Any]:
    """Returns the arguments of classes: their names and types.

    Args:
        *kinds: A task, and the preprocessor that it makes.
    """
    found: dict[str, Any] = {}
    for kind in kinds:
        found = keyword_arguments(kind) | found
    return found


def keyword_arguments(made: type) -> dict[str, Any]:
    """Returns the keyword arguments of a class, including those that it passes on.

    Args:
        made: The class.
    """
    found: dict[str, Any] = {}
    for kind in made.__mro__:
        # those that `**options` takes are named further up
        if issubclass(kind, keras.Model) and kind.__module__.startswith("keras."):
            break
        parameters = inspect.signature(kind.__init__).parameters.values()
        hints = typing.get_type_hints(kind.__init__)
        names = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        found = {name: hints.get(name, Any) for name in names} | found
    return found


class FittedOption:
    """An argument of a task that is fitted to data after training: an attribute that is checked whenever it is set.

    It belongs to the trained head: a head that starts untrained has the default. `Task.checked_fitted` checks it.
    """

    def __set_name__(self, owner: Any, name: str) -> None:
        self._name = name
        owner.fitted_options = (*owner.fitted_options, name)

    def __get__(self, task: Any, owner: type | None = None) -> Any:
        return self if task is None else getattr(task, f"_{self._name}")

    def __set__(self, task: Any, value: Any) -> None:
        setattr(task, f"_{self._name}", task.checked_fitted(self._name, value))


def default_of(kind: type, name: str) -> Any:
    """Returns the default of an argument of a class.

    Args:
        kind: The class.
        name: Name of the argument, which the class or one of its bases has.
    """
    signatures = (inspect.signature(base.__init__).parameters for base in kind.__mro__)
    return next(parameters[name].default for parameters in signatures if name in parameters)


# options of another task that hold for any: those of the texts
_SHARED = ("sequence_length", "truncate", "pair_separators")


class SavedOptions(NamedTuple):
    """A task and its preprocessor as a file describes them.

    Args:
        task: The class of the task.
        preprocessor: The class of the preprocessor.
        parameters: The names and types of their arguments.
        options: Those that the file names.
    """

    task: type
    preprocessor: type
    parameters: dict[str, Any]
    options: dict[str, Any]

    def make(self, backbone: Backbone, tokenizer: Any, options: Mapping[str, Any]) -> Any:
        """Returns the task with initial weights.

        Args:
            backbone: Its backbone.
            tokenizer: Its tokenizer, or None.
            options: Its arguments.
        """
        if self.preprocessor is self.task.preprocessor_class:
            return self.task(backbone, tokenizer, **options)
        names = keyword_arguments(self.preprocessor)
        preprocessor = self.preprocessor(tokenizer, **{name: options[name] for name in options if name in names})
        return self.task(backbone, preprocessor, **{name: options[name] for name in options if name not in names})

    def has_head_for(self, given: Mapping[str, Any]) -> bool:
        """Returns whether the saved head fits the given labels, if there are any.

        Args:
            given: Arguments of the task in place of those of the file.
        """
        labels = self.options.get("labels")
        return "labels" not in given or (labels is not None and have_same_outputs(given["labels"], labels))

    def under(self, given: Mapping[str, Any], before: int | None, now: int) -> dict[str, Any]:
        """Returns the options without those that do not hold with the arguments of the user.

        Args:
            given: Arguments of the task in place of those of the file.
            before: The longest sequence of the backbone that was saved; None if that is the one now.
            now: The longest sequence of the backbone.
        """
        options = dict(self.options)
        if before not in (None, now) and isinstance(options.get("sequence_length"), int):
            # a task keeps its length as a number: that of its backbone, unless it was given a smaller one
            length = options.pop("sequence_length")
            if length != before:
                options["sequence_length"] = min(length, now)
        if ("problem" in given and given["problem"] != options.get("problem")) or not self.has_head_for(given):
            # what was fitted to other probabilities
            options = {name: value for name, value in options.items() if name not in self.task.fitted_options}
        return options

    def shared_with(self, kind: type, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the options that hold for another task too.

        Args:
            kind: The class of that task.
            options: The options of this one.
        """
        known = parameters_of(kind, kind.preprocessor_class)
        return {name: options[name] for name in _SHARED if name in options and name in known}


def read_saved_options(name: str, options: Mapping[str, Any], task_class: type, where: str) -> SavedOptions:
    """Returns the description of a task in a file, with the types of all arguments checked.

    Args:
        name: Name of the task that was saved.
        options: Its arguments, and the name of its preprocessor's class where it is one of its own.
        task_class: The class that is wanted, which need not be registered. It takes the place of one that it derives
            from; of one that derives from it, that one is made.
        where: The file, for errors.

    Raises:
        ValueError: If there is no such task, or it has no such argument, or one of another type.
    """
    options = dict(options)
    task = task_class if name == task_class.__name__ else registered_tasks().get(name)
    if task is None:
        known = f"{task_class.__name__!r} or one of {sorted(registered_tasks())}"
        raise ValueError(f"{where}: task must be {known}, got {quote(name)}. {OWN_TASKS}")
    if issubclass(task_class, task):
        # a class of one's own has the head of what it derives from
        task = task_class
    kind, preprocessor = options.pop(PREPROCESSOR, None), task.preprocessor_class
    if kind is not None:
        preprocessor = registered_kind(kind, f"{where}: options.{PREPROCESSOR}")
        if not issubclass(preprocessor, task.preprocessor_class):
            raise ValueError(
                f"{where}: options.{PREPROCESSOR} must name a {task.preprocessor_class.__name__} for a "
                f"{task.__name__}, got {quote(kind)}."
            )
    parameters = parameters_of(task, preprocessor)
    for key, value in options.items():
        if key not in parameters:
            known = f"among {sorted(parameters)}, got {quote(key)}"
            raise ValueError(f"{where}: options of a {task.__name__} must be {known}.")
        require_type(value, parameters[key], f"{where}: options.{key}")
    return SavedOptions(task, preprocessor, parameters, options)


@contextlib.contextmanager
def naming_options(path: Path) -> Iterator[None]:
    """A context in which errors of a task's constructor name the file that its arguments are from.

    Args:
        path: The file.
    """
    try:
        with errors_of_file(path):
            yield
    except (TypeError, AttributeError, KeyError, IndexError, ArithmeticError) as error:
        raise ValueError(f"{path}: options do not fit the task ({type(error).__name__}: {error}).") from error
