"""The tasks that files may name."""

from zoo.storage import quote

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
