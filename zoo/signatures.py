"""Methods that hand over to the method of a part, under one signature and one docstring."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def signature_of(
    method: Callable[Concatenate[Any, Arguments], Result],
) -> Callable[[Callable[..., Any]], Callable[Concatenate[Any, Arguments], Result]]:
    """Gives a method the signature and the docstring of the one that it calls, also for type checkers.

    Args:
        method: The other one, a function of its class.

    Example:

    >>> class Model:
    ...     @signature_of(TextGenerator.generate)
    ...     def generate(self, *arguments, **options):
    ...         return self.generator.generate(*arguments, **options)
    """
    return functools.wraps(method)
