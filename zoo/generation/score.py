"""Log-likelihoods of given texts."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.generation.compiled_functions import CompiledFunctions
from zoo.generation.loop import token_log_probabilities
from zoo.preprocessing.token_rows import map_by_length


def score(logits: Any, labels: Any, mask: Any) -> dict[str, Any]:
    """Returns log-likelihoods of given continuations from the logits of one teacher-forced pass.

    `logits[:, t]` must be the prediction for `labels[:, t]`. If a sequence of n ids x is fed as a whole, the logits of
    positions 0 to n - 2 predict the labels `x[1:]`. If the labels include the end token, the result for a text that
    `decode` generated equals its `log_probabilities`; with `Beam` only if no processor changes them.

    Args:
        logits: Float tensor `(batch, length, vocabulary)`.
        labels: Integer tensor `(batch, length)`. Any number is allowed where the mask is false, also -1 or -100.
        mask: Bool tensor `(batch, length)`, true where a label counts.

    Returns:
        Dict with `log_probabilities` `(batch,)`, the sum over the counted tokens in nats; `token_log_probabilities`
        `(batch, length)`, 0 where the mask is false; `lengths` `(batch,)` int32, the number of counted tokens.

    Raises:
        ValueError: If the ranks do not fit.

    Example:

    >>> score(keras.ops.zeros((1, 2, 4)), [[3, 0]], [[True, False]])["log_probabilities"]    # [-log 4]
    """
    labels = ops.convert_to_tensor(labels)
    mask = ops.cast(mask, "bool")
    if len(logits.shape) != 3 or len(labels.shape) != 2 or len(mask.shape) != 2:
        raise ValueError(
            "logits, labels and mask must have the shapes (batch, length, vocabulary), (batch, length) and (batch, "
            f"length), got {tuple(logits.shape)}, {tuple(labels.shape)} and {tuple(mask.shape)}."
        )
    labels = ops.where(mask, ops.cast(labels, "int32"), 0)
    values = ops.where(mask, token_log_probabilities(logits, labels), 0.0)
    return {
        "log_probabilities": ops.sum(values, axis=-1),
        "token_log_probabilities": values,
        "lengths": ops.sum(ops.cast(mask, "int32"), axis=-1),
    }


class TextScorer:
    """Computes log-likelihoods of the labels of token-level batches.

    Args:
        model: Function from token-level inputs to logits `(batch, length, vocabulary)`.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._programs = CompiledFunctions(lambda: model.active_variables)

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
        """Returns the log-likelihood of many rows, `(rows,)`, computed in batches of rows of similar length.

        Args:
            lengths: Number of tokens of each row.
            batch_of: Function from row indices to the arguments of `tokens`.
            batch_size: Rows per batch.
        """

        def run(rows: np.ndarray) -> np.ndarray:
            batch = keras.tree.map_structure(lambda leaf: ops.convert_to_tensor(np.asarray(leaf)), batch_of(rows))
            jit_compile = keras.backend.backend() == "jax"
            program = self._programs.run("score", self.tokens, jit_compile, *batch, exact_shapes=jit_compile)
            return ops.convert_to_numpy(program)

        return np.array(map_by_length(run, lengths, batch_size), "float32")
