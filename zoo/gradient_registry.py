"""TensorFlow keeps the graph of every custom gradient for ever; here it goes with its last user."""

import weakref
from typing import Any

import keras

_PREFIX = "CustomGradient-"


def release_graphs() -> None:
    """Has TensorFlow let go of graphs with custom gradients when nothing else uses them; call it once.

    `tf.custom_gradient`, on which `silu`, quantized layers, `keras.remat` and the losses here are built, enters a
    function in a registry for each use in a graph. That function reaches the whole graph, and the registry holds it:
    without this, every model that was ever trained in a process leaves its training step behind, megabytes per layer.
    Here the graph itself holds the function, and the registry finds it as long as there is the graph.

    Does nothing on other backends.

    Source:
        https://github.com/tensorflow/tensorflow/issues/97697
    """
    if keras.backend.backend() != "tensorflow":
        return
    from tensorflow.python.framework import ops

    class Entries(dict[str, Any]):
        """The registry's content, `{name: {"type": function, ...}}`."""

        def __setitem__(self, name: str, entry: dict[str, Any]) -> None:
            graph = ops.get_default_graph()
            # a saved model enters functions while it is loaded, outside of any graph
            if name.startswith(_PREFIX) and graph.building_function:
                entry = {**entry, "type": _held_by(graph, entry["type"])}
                weakref.finalize(graph, self.pop, name, None).atexit = False
            super().__setitem__(name, entry)

    registry = ops.gradient_registry
    # private: where a version has another place for them, its graphs stay, and a test says so
    if isinstance(getattr(registry, "_registry", None), dict):
        registry._registry = Entries(registry._registry)


def _held_by(graph: Any, function: Any) -> Any:
    """Returns a function that calls another one, which the graph keeps."""
    # as TensorFlow does with Python functions in a graph
    graph._custom_gradients = [*getattr(graph, "_custom_gradients", ()), function]
    held = weakref.ref(function)

    def gradient(operation: Any, *gradients: Any) -> Any:
        return held()(operation, *gradients)

    return gradient
