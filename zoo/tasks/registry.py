"""The tasks that a saved model may name."""

_TASKS: dict[str, type] = {}


def register_tasks(*tasks: type) -> None:
    """Adds tasks to those that a saved model may name, by the names of their classes.

    Args:
        *tasks: Classes of tasks.

    Raises:
        ValueError: If the name of one is taken by another.
    """
    for task in tasks:
        if _TASKS.get(task.__name__, task) is not task:
            raise ValueError(f"A task named {task.__name__!r} is registered already.")
        _TASKS[task.__name__] = task


def registered_tasks() -> dict[str, type]:
    """Returns the registered tasks by name."""
    return dict(_TASKS)
