"""Compiled programs, kept as long as they are used and few."""

import collections
from collections.abc import Callable
from typing import Any

import keras

from zoo.generation.compile import compiled

# Programs that are kept; each holds its code only, tens to hundreds of kilobytes.
MOST_PROGRAMS = 64


class Programs:
    """A bounded store of compiled functions; the one that was not used for longest goes first.

    A program belongs to the variables that it reads. Adapters and quantization replace variables: programs of the old
    ones are not found any more, and hold on to them until they go, so that no new variable can be taken for an old one.

    Args:
        variables: Returns the variables that the functions read.
        most: Number of programs that are kept.
    """

    def __init__(self, variables: Callable[[], list], most: int = MOST_PROGRAMS):
        self._variables = variables
        self._most = most
        self._kept: collections.OrderedDict[Any, tuple[Any, list]] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def run(self, key: Any, function: Callable, jit_compile: bool, *arguments: Any, exact_shapes: bool = True) -> Any:
        """Calls the compiled function on arguments.

        Args:
            key: What the function depends on other than shapes and variables; hashable.
            function: From tensors to tensors; compiled if there is no program of this key for these shapes.
            jit_compile: Whether XLA compiles it.
            arguments: Tensors, or nested structures of these.
            exact_shapes: Whether each combination of shapes has a program of its own, see `compiled`.
        """
        variables = self._variables()
        key = (key, jit_compile, tuple(map(id, variables)))
        if exact_shapes:
            key += tuple((tuple(leaf.shape), str(leaf.dtype)) for leaf in keras.tree.flatten(arguments))
        if key not in self._kept:
            program = compiled(function, jit_compile, variables=self._variables, exact_shapes=exact_shapes)
            self._kept[key] = program, variables
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key][0](*arguments)
