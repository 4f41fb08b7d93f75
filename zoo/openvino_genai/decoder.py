"""A decoder whose steps OpenVINO computes, in the place of a backbone of `zoo.generation.Engine`."""

import itertools
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.generation.engine import Engine
from zoo.generation.session import Session
from zoo.openvino_genai.stateful import BEAMS, INPUTS, LOGITS

# By default some processors compute in bfloat16, and keep keys and values in 8 bits.
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


class OpenVINODecoder:
    """What `zoo.generation.Engine` asks of a backbone, computed by OpenVINO.

    Keys and values stay within OpenVINO, one request for each batch of texts, until `release`. The state of the loop is
    the row of the last call that each row goes on from, which beam search reorders as it does caches.

    Args:
        backbone: The backbone that the graph was made of.
        path: The graph of `stateful_model(backbone, last_alone=True)`, an `.xml` file.

    Raises:
        ValueError: On another backend than TensorFlow.

    Example:

    >>> decoder = OpenVINODecoder(model.backbone, "openvino_model.xml")
    >>> options = GenerationOptions(20, end_ids=2, jit_compile=False)
    >>> OpenVINOEngine(decoder).begin([[1, 17, 4]], options).advance().generated()
    [[9, 33, 8]]
    """

    unrolls_prompts = False

    def __init__(self, backbone: Any, path: Path) -> None:
        import openvino

        self.config: Any = backbone.config
        self._backbone = backbone
        self._program = openvino.Core().compile_model(path, "CPU", EXACT)
        self._numbers = itertools.count()
        self._requests: dict[int, Any] = {}

    @property
    def active_variables(self) -> list[Any]:
        """Those that the graph was made of."""
        return self._backbone.active_variables

    def start_decoding(self, inputs: Mapping[str, Any], capacity: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the state and the constants, see `zoo.backbones.Backbone.start_decoding`."""
        import tensorflow as tf

        mask = inputs["padding_mask"]
        number = tf.numpy_function(self._begin, [], tf.int32)
        number.set_shape(())
        state = {"rows": self._rows(mask), "session": tf.fill(tf.shape(mask)[:1], number)}
        state["session"].set_shape(mask.shape[:1])
        return state, {"padding_mask": mask}

    def advance(self, token_ids: Any, index: Any, state: Any, constants: Any) -> tuple[Any, Any]:
        """Feeds tokens `(batch, new)`; returns the logits of the last one, `(batch, 1, vocabulary)`, and the state."""
        import tensorflow as tf

        given = [token_ids, index, state["rows"], state["session"], constants["padding_mask"]]
        logits = tf.numpy_function(self._infer, given, tf.float32)
        logits.set_shape((*token_ids.shape[:1], 1, self.config.vocabulary_size))
        return logits, {"rows": self._rows(token_ids), "session": state["session"]}

    def decode_step(self, token_ids: Any, index: Any, state: Any, constants: Any) -> tuple[Any, Any]:
        """Feeds a token of each row, `(batch,)`; returns logits `(batch, vocabulary)` and the state."""
        logits, state = self.advance(ops.expand_dims(token_ids, 1), index, state, constants)
        return logits[:, 0], state

    def resize_state(self, state: Any, capacity: int, shift: Any = None) -> Any:
        """Returns the state, which has room for any number of positions; None if rows shall be moved."""
        return state if shift is None else None

    def can_rewind(self, capacity: int) -> bool:
        """Whether fed tokens can be taken back: they cannot."""
        return False

    def release(self, number: int) -> None:
        """Forgets keys and values of a batch of texts.

        Args:
            number: What its state has in each row of "session".
        """
        self._requests.pop(number, None)

    def _rows(self, of_batch: Any) -> Any:
        rows = ops.arange(ops.shape(of_batch)[0], dtype="int32")
        rows.set_shape(of_batch.shape[:1])
        return rows

    def _begin(self) -> np.ndarray:
        number = next(self._numbers)
        self._requests[number] = self._program.create_infer_request()
        return np.int32(number)

    def _infer(
        self, token_ids: np.ndarray, index: np.ndarray, rows: np.ndarray, session: np.ndarray, mask: np.ndarray
    ) -> np.ndarray:
        number, count = int(session[0]), token_ids.shape[1]
        whole = int(index) + count
        seen = np.ones((len(token_ids), whole), "int64")
        known = min(whole, mask.shape[1])
        seen[:, :known] = mask[:, :known]
        # rows that only fill the batch see something, too
        seen[~mask.any(axis=1)] = 1
        positions = np.maximum(seen.cumsum(axis=1) - 1, 0)[:, -count:]
        given = dict(zip(INPUTS, (token_ids.astype("int64"), seen, positions), strict=True))
        return self._requests[number].infer({**given, BEAMS: rows})[LOGITS].copy()

    def logits(self, hidden: Any) -> Any:
        """Returns what `advance` has returned, which are logits."""
        return hidden


class OpenVINOEngine(Engine):
    """An engine whose sessions have keys and values within OpenVINO as long as there is somebody who holds them.

    Args:
        backbone: The decoder.
    """

    def begin(self, *arguments: Any, **options: Any) -> Session:
        """Returns a session, as `Engine.begin` does."""
        session = super().begin(*arguments, **options)
        number = int(session.state["session"][0])
        weakref.finalize(session, self.backbone.release, number).atexit = False
        return session


def require_tensorflow() -> None:
    """Raises a ValueError on a backend whose programs cannot call OpenVINO."""
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise ValueError(f"engine must be None on the backend {backend}: OpenVINO works with TensorFlow alone here.")
