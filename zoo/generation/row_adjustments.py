"""Penalties, biases, shortest lengths and allowed tokens of rows that come and go, with numbers of each row."""

import dataclasses
from typing import Any

from keras import ops

from zoo.generation.processors import forbid, occurrences


@dataclasses.dataclass(frozen=True, eq=False)
class RowAdjustments:
    """What `PresencePenalty`, `FrequencyPenalty`, `LogitBias` and `MinimumLength` change, as tensors for each row.

    And which tokens a row may go on with, as whoever knows its grammar says.

    Where no row asks for anything, logits are returned as they came, and nothing is counted.

    Args:
        written: Tokens that each row has written before, int32 `(rows, length)`, filled up with -1; only rows with a
            penalty need them.
        places: Number of tokens that each row has written before, int32 `(rows,)`.
        presence_penalty: Subtracted from the logits of tokens that the row has written, float32 `(rows,)`.
        frequency_penalty: Subtracted for each time that the row has written the token, float32 `(rows,)`.
        bias_ids: Tokens with a bias, int32 `(rows, biases)`, each once, filled up with -1.
        biases: What is added to their logits, float32 `(rows, biases)`.
        min_tokens: Tokens of each row before one that ends it, int32 `(rows,)`.
        end_ids: Ids that end each row, int32 `(rows, ids)`, filled up with -1.
        allowed: Tokens that each row may go on with, int32 `(rows, words)`: token t where bit t % 32 of word t // 32 is
            set; no words where all rows may go on with all tokens. It holds for one step: more of them need a new one.

    Example:

    >>> adjust = RowAdjustments(written, places, presence, frequency, bias_ids, biases, min_tokens, end_ids, allowed)
    >>> logits = adjust(logits, generated, position)

    Reference:
        OpenAI's API reference, "frequency and presence penalties": logits - count x frequency - (count > 0) x presence,
        over generated tokens.
    """

    written: Any
    places: Any
    presence_penalty: Any
    frequency_penalty: Any
    bias_ids: Any
    biases: Any
    min_tokens: Any
    end_ids: Any
    allowed: Any

    def __call__(self, logits: Any, generated: Any, position: Any) -> Any:
        """Returns changed logits.

        Args:
            logits: float32 `(rows, vocabulary)`.
            generated: Tokens of each row since `written`, int32 `(rows, length)`.
            position: How many of their columns are filled, an int32 scalar.
        """
        penalties = ops.any(ops.logical_or(self.presence_penalty != 0, self.frequency_penalty != 0))
        logits = ops.cond(penalties, lambda: self._penalized(logits, generated, position), lambda: logits)
        logits = ops.cond(ops.any(self.bias_ids >= 0), lambda: self._biased(logits), lambda: logits)
        is_short = self.min_tokens > self.places + position
        logits = ops.cond(ops.any(is_short), lambda: self._without_ends(logits, is_short), lambda: logits)
        words = ops.shape(self.allowed)[1]
        if isinstance(words, int):  # without words no shapes fit in the branch that needs them
            return self._allowed_alone(logits) if words else logits
        return ops.cond(words > 0, lambda: self._allowed_alone(logits), lambda: logits)

    def _penalized(self, logits: Any, generated: Any, position: Any) -> Any:
        filled = ops.arange(ops.shape(generated)[1], dtype="int32") < position
        generated = ops.where(filled, generated, -1)
        tokens = ops.concatenate([self.written, generated], axis=1)
        counts = occurrences(tokens, tokens >= 0, logits.shape[-1])
        presence, frequency = (ops.expand_dims(each, 1) for each in (self.presence_penalty, self.frequency_penalty))
        return logits - presence * ops.minimum(counts, 1.0) - frequency * counts

    def _biased(self, logits: Any) -> Any:
        return logits + occurrences(self.bias_ids, self.bias_ids >= 0, logits.shape[-1], self.biases)

    def _without_ends(self, logits: Any, is_short: Any) -> Any:
        ends = ops.logical_and(ops.expand_dims(is_short, 1), self.end_ids >= 0)
        return forbid(logits, occurrences(self.end_ids, ends, logits.shape[-1]) > 0)

    def _allowed_alone(self, logits: Any) -> Any:
        bits = ops.bitwise_and(ops.right_shift(ops.expand_dims(self.allowed, -1), ops.arange(32, dtype="int32")), 1)
        bits = ops.reshape(bits, (ops.shape(logits)[0], -1))[:, : logits.shape[-1]]
        return forbid(logits, bits == 0)
