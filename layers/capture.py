"""Named points in models whose tensors can be kept, or changed, while a model runs."""

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from layers.devices import is_eager
from layers.keras_internals import is_inferring_shapes

_ACTIVE: ContextVar["Capture | None"] = ContextVar("capture", default=None)


class Capture:
    """A context that keeps the tensors of named points of a model, and can change them.

    Outside of a capture, points cost nothing. Attention weights are computed only if a capture asks for them, so name
    the points that you need.

    The models of `zoo` have these points, where STACK is "encoder" or "decoder". All tensors have the batch on axis 0.

    * `STACK.embeddings`: the embedded tokens with their segments, before positions, `(batch, length, embedding_dim)`.
      They may be changed.
    * `STACK.hidden`: the input of the first layer and the output of each layer, before the final norm, `(batch, length,
      hidden_dim)`: one tensor more than there are layers. They may be changed. The decoder of a recurrent model has
      two: the embedded tokens and the readouts.
    * `STACK.attention`: attention weights of each layer, `(batch, heads, length, length)`.
    * `STACK.cross_attention`: weights of the cross-attention of each layer, `(batch, heads, length, memory_length)`.

    If captures are nested, only the inner one is active. Tensors belong to the call. In a compiled function the kept
    tensors are those of its graph. A function that is compiled within a capture would keep the changes for all later
    calls: on TensorFlow that is an error, on other backends it is not noticed. To read or change numbers, call the
    model itself, which runs eagerly, instead of `predict`. A capture that is opened in a compiled function changes
    that function alone.

    Args:
        names: The points to keep; None for all.
        changes: Functions by name of the point. Each takes the tensor of the point and returns the tensor that the
            model continues with, of the same shape.

    Raises:
        RuntimeError: If it is opened while it is open. After it has ended it may be opened again, and begins with no
            tensors.
        ValueError: If a point must not be changed, if a function that is compiled within the context would keep the
            changes, or, when the context ends, if the model never passed the point.

    Example:

    >>> with Capture(["encoder.attention"]) as found:
    ...     backbone({"token_ids": ids, "padding_mask": mask})
    >>> [weights.shape for weights in found["encoder.attention"]]    # one per layer
    [(2, 8, 10, 10), (2, 8, 10, 10)]
    """

    def __init__(
        self, names: Iterable[str] | None = None, changes: Mapping[str, Callable[[Any], Any]] | None = None
    ) -> None:
        self._names = None if names is None else frozenset(names)
        self._changes = dict(changes or {})
        self._found: dict[str, list[Any]] = {}
        self._changed: set[str] = set()
        self._is_open = False

    def __enter__(self) -> "Capture":
        if self._is_open:
            raise RuntimeError("A capture is open already: open another Capture within it.")
        self._found, self._changed = {}, set()
        self._began_at_once = is_eager()
        self._token = _ACTIVE.set(self)
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        _ACTIVE.reset(self._token)
        unused = [name for name in self._changes if name not in self._changed]
        if kind is None and unused:
            raise ValueError(
                f"changes must name points that the model passes, and it did not pass {', '.join(unused)}. A function "
                "that was compiled before goes on as it was, and a capture within this one hides it: call the model "
                "itself."
            )

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def __getitem__(self, name: str) -> list[Any]:
        """Returns the tensors of a point, one for each time that the model passed it.

        Raises:
            KeyError: If the point was never passed or is not kept.
        """
        if name not in self._found:
            raise KeyError(f"The model came by {', '.join(self._found) or 'no point'} that is kept, not by {name!r}.")
        return self._found[name]

    def keeps(self, name: str) -> bool:
        """Returns whether the tensors of a point are kept."""
        return self._names is None or name in self._names

    def pass_by(self, name: str, tensor: Any, may_change: bool = True) -> Any:
        """Keeps the tensor of a point, and returns the tensor that the model continues with."""
        if is_inferring_shapes():  # of a model that is built at its first call, which then passes again
            return tensor
        if name in self._changes:
            if not may_change:
                raise ValueError(f"changes must name points that may be changed, got {name!r}.")
            if self._began_at_once and not is_eager():
                raise ValueError(
                    f"changes must not be compiled into a function, which would keep them, got {name!r} in a function "
                    "that is compiled within the capture: call the model itself, or open the capture in the function."
                )
            tensor = self._changes[name](tensor)
            self._changed.add(name)
        if self.keeps(name):
            self._found.setdefault(name, []).append(tensor)
        return tensor


def point(name: str, tensor: Any, may_change: bool = True) -> Any:
    """Marks a point in the call of a layer: an active `Capture` may keep or change the tensor.

    Args:
        name: Name of the point.
        tensor: The tensor.
        may_change: Whether the layer continues with what this returns.

    Raises:
        ValueError: If the tensor must not be changed, and the capture changes it.
    """
    active = _ACTIVE.get()
    return tensor if active is None else active.pass_by(name, tensor, may_change)


def is_capturing() -> bool:
    """Returns whether a `Capture` is active."""
    return _ACTIVE.get() is not None


def is_captured(name: str) -> bool:
    """Returns whether an active `Capture` keeps a point, so that its tensor must be computed.

    Args:
        name: Name of the point.
    """
    active = _ACTIVE.get()
    return active is not None and active.keeps(name)
