"""How likely a model finds texts."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.generation.programs import Programs
from zoo.generation.score import score
from zoo.preprocessing.token_rows import map_by_length


class TextScorer:
    """Computes log-likelihoods of the labels of token-level batches.

    Args:
        model: From token-level inputs to logits `(batch, length, vocabulary)`.
    """

    def __init__(self, model: Any):
        self._model = model
        self._programs = Programs(lambda: model.variables)

    def tokens(self, inputs: dict[str, Any], labels: Any, mask: Any) -> Any:
        """Returns the log-likelihood of each row's labels, `(batch,)`; a graph function.

        Args:
            inputs: Token-level inputs of the model.
            labels: `(batch, length)`.
            mask: 1 or true where a label counts, `(batch, length)`.
        """
        return score(self._model(inputs, training=False), labels, mask)["log_probabilities"]

    def rows(
        self, lengths: Sequence[int], batch_of: Callable[[np.ndarray], tuple[Any, Any, Any]], batch_size: int
    ) -> np.ndarray:
        """Returns the log-likelihood of many rows, `(rows,)`, in batches of rows of similar length.

        Args:
            lengths: Number of tokens of each row.
            batch_of: From row numbers to the arguments of `tokens`.
            batch_size: Rows per batch.
        """

        def run(rows: np.ndarray) -> np.ndarray:
            batch = keras.tree.map_structure(lambda leaf: ops.convert_to_tensor(np.asarray(leaf)), batch_of(rows))
            jit_compile = keras.backend.backend() == "jax"
            program = self._programs.run("score", self.tokens, jit_compile, *batch, exact_shapes=jit_compile)
            return ops.convert_to_numpy(program)

        return np.array(map_by_length(run, lengths, batch_size), "float32")
