"""Dynamic batching: calls of an endpoint that come while it is busy are answered together, those of similar length."""

from __future__ import annotations

import collections
import dataclasses
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from zoo.serving.continuous_batch import QueueFullError
from zoo.serving.exported_model import ExportedModel
from zoo.serving.row_scheduling import that_gives_place

# Most numbers or texts of an output of a batch, where its shape follows from those of the inputs: a small request can
# ask for logits that no memory holds.
MOST_OUTPUTS = 2**26
# Longest rows of inputs: the memory of attention grows with the square of the length.
MOST_LENGTH = 2**13


class LateError(RuntimeError):
    """Nobody waits for the answer any more."""


@dataclasses.dataclass(eq=False)
class _Call:
    """A call that waits: its inputs, and who is told the outputs or the error."""

    inputs: dict[str, np.ndarray]
    rows: int
    outputs: int
    kind: Any
    deadline: float | None
    tell: Callable[[Any], None]
    client: str
    is_cancelled: bool = False


class DynamicBatch:
    """Answers calls of one endpoint, in a thread of its own, many of them at a time.

    While a batch is computed others wait; the next batch is the call that has waited longest, and those that fit to it:
    texts of similar length, arrays of the same sizes, and the same values of what all rows share. No call waits for
    others to come. Clients share the places to wait.

    Args:
        model: The exported model.
        endpoint: Name of the endpoint.
        rows: Most rows of a batch; a call with more is a batch of its own.
        waiting: Most calls that wait.
        shares: From the inputs of a call to whether it is put together with others: not where a result depends on the
            place in the batch, as draws do. Default all are.

    Example:

    >>> with DynamicBatch(model, "serve") as batch:
    ...     batch.call({"texts": np.array([b"a text"], "object")}, print)
    """

    def __init__(
        self,
        model: ExportedModel,
        endpoint: str,
        rows: int = 32,
        waiting: int = 256,
        shares: Callable[[Mapping[str, np.ndarray]], bool] = lambda inputs: True,
    ) -> None:
        self._model, self._endpoint, self._most, self._limit, self._shares = model, endpoint, rows, waiting, shares
        description = model.endpoints[endpoint]
        self._inputs = {field["name"]: field for field in description["inputs"]}
        self._outputs = {field["name"]: field["shape"] for field in description["outputs"]}
        self._waiting: collections.deque[_Call] = collections.deque()
        self._changed = threading.Condition()
        self._closing = False
        self.batches = self.rows = 0
        self._thread = threading.Thread(target=self._run, name=f"batches of {endpoint}", daemon=True)
        self._thread.start()

    def __enter__(self) -> DynamicBatch:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def load(self) -> int:
        """Number of calls that wait."""
        return len(self._waiting)

    def call(
        self, inputs: Mapping[str, Any], tell: Callable[[Any], None], deadline: float | None = None, client: str = ""
    ) -> Callable[[], None]:
        """Lets a call be answered.

        Args:
            inputs: An array for each input.
            tell: Is given the outputs, or the exception, in another thread.
            deadline: Time of `time.monotonic()` after which nobody waits for the answer.
            client: Who asks for it. If too many calls wait, the newest one of the client with the most is refused.

        Returns:
            A function that cancels the call, if it has not begun.

        Raises:
            ValueError: If inputs are missing, unknown, or of another shape than the endpoint takes; or if they are
                longer than `MOST_LENGTH`, or there would be more outputs than `MOST_OUTPUTS`.
            QueueFullError: If too many calls wait, and no other client has more of them.
        """
        arrays, rows, outputs, kind = self._checked(inputs)
        call = _Call(arrays, rows, outputs, kind, deadline, tell, client)
        refused = None
        with self._changed:
            if self._closing:
                raise QueueFullError("The model is being closed.")
            if len(self._waiting) >= self._limit:
                self._waiting = collections.deque(each for each in self._waiting if not each.is_cancelled)
            full = QueueFullError(f"{len(self._waiting)} calls wait already.")
            if len(self._waiting) >= self._limit:
                refused = that_gives_place(self._waiting, client)
                if refused is None:
                    raise full
                self._waiting = collections.deque(each for each in self._waiting if each is not refused)
            self._waiting.append(call)
            self._changed.notify()
        if refused is not None:
            _say(refused, full)

        def cancel() -> None:
            call.is_cancelled = True

        return cancel

    def close(self) -> None:
        """Answers what waits, and stops."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _checked(self, inputs: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int, int, Any]:
        """Inputs as arrays, the numbers of rows and of entries of the largest output, what a batch has in common."""
        missing, unknown = set(self._inputs) - set(inputs), set(inputs) - set(self._inputs)
        if missing or unknown:
            raise ValueError(f"The inputs must be {sorted(self._inputs)}, got {sorted(inputs)}.")
        sizes: dict[str, int] = {}
        arrays, kind = {}, []
        for name, field in self._inputs.items():
            array = arrays[name] = as_array(inputs[name], field["dtype"], name)
            shape = field["shape"]
            fits = len(shape) == array.ndim and all(
                isinstance(size, str) or size == have for size, have in zip(shape, array.shape, strict=True)
            )
            if not fits:
                raise ValueError(f"The input {name!r} must have the shape {shape}, got {list(array.shape)}.")
            for size, have in zip(shape, array.shape, strict=True):
                if size == "batch" and sizes.get(size, have) != have:
                    raise ValueError(f"All inputs must have as many rows as others, got {sizes[size]} and {have}.")
                if isinstance(size, str) and size != "batch" and have > MOST_LENGTH:
                    raise ValueError(f"The input {name!r} must have rows of at most {MOST_LENGTH}, got {have}.")
                if isinstance(size, str):
                    sizes[size] = max(have, sizes.get(size, 0))
            if shape and shape[0] == "batch":
                kind.append((name, array.shape[1:], _length_class(array) if array.dtype == object else 0))
            else:
                kind.append((name, array.shape, array.tobytes() if array.dtype != object else tuple(array.ravel())))
        outputs = 0
        for name, shape in self._outputs.items():
            count = math.prod(sizes.get(size, 1) if isinstance(size, str) else size for size in shape)
            if count > MOST_OUTPUTS:
                raise ValueError(f"The output {name!r} must have at most {MOST_OUTPUTS} entries, not {count}.")
            outputs = max(outputs, count)
        is_shared = "batch" in sizes and self._shares(arrays)
        return arrays, sizes.get("batch", 1), outputs, tuple(kind) if is_shared else object()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._closing):
                    self._changed.wait()
                if not self._waiting:
                    return
                calls, dropped = self._take()
            for call in dropped:
                _say(call, LateError("Nobody waits for the answer."))
            if calls:
                self._answer(calls)

    def _take(self) -> tuple[list[_Call], list[_Call]]:
        """Takes the calls of the next batch out of those that wait, and those that are of no use any more."""
        now = time.monotonic()
        taken: list[_Call] = []
        dropped, left = [], []
        for call in self._waiting:
            if call.is_cancelled or (call.deadline is not None and call.deadline < now):
                dropped.append(call)
            elif not taken or (
                call.kind == taken[0].kind
                and sum(each.rows for each in taken) + call.rows <= self._most
                and sum(each.outputs for each in taken) + call.outputs <= MOST_OUTPUTS
            ):
                taken.append(call)
            else:
                left.append(call)
        self._waiting = collections.deque(left)
        return taken, dropped

    def _answer(self, calls: list[_Call]) -> None:
        try:
            parts = self._split(calls, self._model.call(self._endpoint, **self._joined(calls)))
        except Exception as error:  # whatever TensorFlow raises
            if len(calls) == 1:
                _say(calls[0], error)
                return
            for call in calls:  # one of them is wrong: the others are not
                self._answer([call])
            return
        self.batches += 1
        self.rows += sum(call.rows for call in calls)
        for call, part in zip(calls, parts, strict=True):
            _say(call, part)

    def _joined(self, calls: list[_Call]) -> dict[str, np.ndarray]:
        """The inputs of all calls together."""
        return {
            name: np.concatenate([call.inputs[name] for call in calls])
            if field["shape"] and field["shape"][0] == "batch"
            else calls[0].inputs[name]
            for name, field in self._inputs.items()
        }

    def _split(self, calls: list[_Call], outputs: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        """The outputs of each call."""
        if set(outputs) != set(self._outputs):
            raise ValueError(f"The outputs must be {sorted(self._outputs)}, got {sorted(outputs)}.")
        by_row = {name for name, shape in self._outputs.items() if shape[:1] == ["batch"]}
        parts, start = [], 0
        for call in calls:
            rows = slice(start, start + call.rows)
            parts.append({name: value[rows] if name in by_row else value for name, value in outputs.items()})
            start += call.rows
        return parts


def as_array(value: Any, dtype: str, name: str) -> np.ndarray:
    """Returns a value as an array of a type of TensorFlow.

    Args:
        value: An array, or nested lists.
        dtype: Name of the type; texts become bytes.
        name: Name of the input, for the error.

    Raises:
        ValueError: If it is of another type, or its rows have several lengths.
    """
    if dtype != "string":
        try:
            array = np.asarray(value)
            if array.size and not np.can_cast(array.dtype, dtype, "same_kind"):
                raise ValueError(array.dtype)
            cast = array.astype(dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"The input {name!r} must hold values of the type {dtype}.") from error
        if array.dtype.kind in "iu" and (cast != array).any():
            raise ValueError(f"The input {name!r} must hold values of the type {dtype}, got larger ones.")
        return cast
    try:
        array = np.array(value, "object")
    except ValueError as error:
        raise ValueError(f"The input {name!r} must hold rows of equal lengths.") from error
    flat = array.ravel()
    if not all(isinstance(text, (str, bytes)) for text in flat):
        raise ValueError(f"The input {name!r} must hold texts in rows of equal lengths.")
    try:
        flat = [text.encode() if isinstance(text, str) else text for text in flat]
    except UnicodeEncodeError as error:
        raise ValueError(f"The input {name!r} must hold texts that UTF-8 can write.") from error
    encoded = np.empty(len(flat), "object")
    encoded[:] = flat
    return encoded.reshape(array.shape)


def _length_class(texts: np.ndarray) -> int:
    """Texts of a class differ in length by a factor of two at most."""
    return max(map(len, texts.ravel()), default=0).bit_length()


def _say(call: _Call, answer: Any) -> None:
    try:
        call.tell(answer)
    except Exception:  # whoever listened is gone
        logging.getLogger(__name__).error("A call has lost its listener.")
