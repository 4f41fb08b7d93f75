"""Runs eager calls of a tokenizer as one graph, which is faster than its many operations one by one."""

from __future__ import annotations

import collections
import itertools
import os
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from zoo.tokenizers.tensors import import_tensorflow

# Tracing and the first run of a graph take as long as about this many calls without one. So a script that tokenizes
# once does not wait for it, and no other takes more than twice its time.
TRACED_CALL = 16


class EagerGraphs:
    """Graphs of the functions of one tokenizer. Each is traced after some calls.

    What cannot be traced, because a tokenizer of one's own looks at values in Python, is called as it is for good.

    Inside another graph (`tf.data`, `tf.function`, an export) operations are called as they are, and the graphs here
    have no part in it. They do not hold the tokenizer, so they are gone when it is.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._calls: dict[Hashable, Iterator[int]] = collections.defaultdict(lambda: itertools.count(1))
        self._graphs: dict[Hashable, Callable[..., Any] | None] = {}

    def run(
        self, function: Callable[..., Any], owner: Any, choices: tuple[Hashable, ...], tensors: Sequence[Any]
    ) -> Any:
        """Returns `function(owner, *choices, *tensors)`, on the CPU.

        Args:
            function: Calls operations of TensorFlow and returns tensors. A function of a module or a class.
            owner: The tokenizer.
            choices: Further arguments, each with a graph of its own.
            tensors: Vectors.

        Raises:
            RuntimeError: This process was forked from the one that made the tokenizer.
        """
        tf = import_tensorflow()
        graph = self._graph(function, owner, choices, tensors) if tf.executing_eagerly() else None
        if graph is not None:
            try:
                return graph(*tensors)
            except tf.errors.OpError:
                pass  # raised again below, in the words of the operation alone
        # integers would go to a GPU and come back for each operation on strings
        with tf.device("CPU:0"):
            return function(owner, *choices, *tensors)

    def _graph(
        self, function: Callable[..., Any], owner: Any, choices: tuple[Hashable, ...], tensors: Sequence[Any]
    ) -> Callable[..., Any] | None:
        """The graph of a call, or None if there were too few calls for one, or it has none."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "a tokenizer must not be called in a forked process, which has none of TensorFlow's threads and would "
                "wait for them for ever. Start the process by 'spawn' (multiprocessing_context=\"spawn\" of a "
                "DataLoader of PyTorch), or tokenize before."
            )
        key = (function, choices, *(tensor.dtype for tensor in tensors))
        if key not in self._graphs:
            # of several threads one traces, while the others go on as before
            if next(self._calls[key]) != TRACED_CALL:
                return None
            self._graphs[key] = _make_graph(function, owner, choices, tensors)
        return self._graphs[key]


def _make_graph(
    function: Callable[..., Any], owner: Any, choices: tuple[Hashable, ...], tensors: Sequence[Any]
) -> Callable[..., Any] | None:
    tf = import_tensorflow()
    reference = weakref.ref(owner)

    def call(*tensors: Any) -> Any:
        with tf.device("CPU:0"):
            return function(reference(), *choices, *tensors)

    # Vectors of any length, so it is traced once. Nothing here needs autograph, which takes several times as long.
    # The concrete function is called itself: to find it would take as long as a short text does.
    signature = [tf.TensorSpec([None], tensor.dtype) for tensor in tensors]
    try:
        return tf.function(call, autograph=False).get_concrete_function(*signature)
    except Exception:  # of any kind: tensors without values fail wherever a tokenizer of one's own looks at them
        return None
