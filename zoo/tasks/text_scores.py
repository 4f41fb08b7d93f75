"""How likely a language model finds texts."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.generation import compiled, score
from zoo.preprocessing.rows import as_texts, require_count, require_same_length
from zoo.tasks.task import Task

# Lengths are padded to multiples of this, so that few shapes are compiled.
LENGTH_MULTIPLE = 16


class TextScores(Task):
    """A task that scores texts, with a decoder-only backbone.

    A subclass defines `text_ids` and sets `pad_id` and `_scorers`.
    """

    def score(
        self,
        texts: Sequence[str],
        prompts: Sequence[str] | None = None,
        *,
        with_end: bool = False,
        batch_size: int = 32,
    ) -> np.ndarray:
        """Returns the log-likelihood of each text, given its prompt.

        Prompt and text are tokenized together; what counts are the tokens from the first one on that the prompt alone
        does not have. Without a start token the first token of all has no probability and counts as 0.

        Args:
            texts: Texts, or continuations of the prompts.
            prompts: One prompt per text. Default none.
            with_end: Whether the end token counts too: the text as a whole one, not as a beginning.
            batch_size: Texts per batch.

        Returns:
            Sums of log-probabilities (natural logarithm), `(number,)`.

        Raises:
            ValueError: If there are not as many prompts as texts, or prompt and text are longer than the model.

        Example:

        >>> model.score([" cold.", " hot."], prompts=["Ice is", "Ice is"])
        array([-3.1, -5.9], dtype=float32)
        """
        texts = as_texts(texts, "texts")
        prompts = [b""] * len(texts) if prompts is None else as_texts(prompts, "prompts")
        require_same_length(len(texts), len(prompts), "texts", "prompts", "prompt", "text")
        require_count(batch_size, "batch_size")
        whole = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
        lengths = self.row_lengths(self.string_tensor(whole), "texts")
        order, results = np.argsort(lengths, kind="stable"), np.zeros((len(texts),), "float32")
        for start in range(0, len(texts), batch_size):
            rows = order[start : start + batch_size]
            batch = [self.string_tensor([column[row] for row in rows]) for column in (prompts, texts)]
            inputs, labels, mask = self.score_inputs(*batch, with_end=with_end)
            arguments = (inputs["token_ids"], inputs["padding_mask"], labels, mask)
            results[rows] = ops.convert_to_numpy(self._scorer()(*map(np.asarray, arguments)))
        return results

    def score_inputs(self, prompts: Any, texts: Any, with_end: bool = False) -> tuple[dict[str, Any], Any, Any]:
        """Returns token-level inputs, labels and the mask of the labels that count, padded; a graph function.

        Args:
            prompts, texts: String tensors `(batch,)`.
            with_end: Whether the end token counts too.
        """
        import tensorflow as tf

        from zoo.tokenizers import to_dense

        ids = self.text_ids(tf.strings.join([prompts, texts]), end=with_end)
        inputs, labels, mask = self.shifted(ids, LENGTH_MULTIPLE)
        length = tf.shape(labels)[1]
        before, real = to_dense(self.text_ids(prompts, end=False)[:, : length + 1], self.pad_id)
        # the first token has no label
        before, real = before[:, 1:], real[:, 1:]
        missing = [[0, 0], [0, length - tf.shape(before)[1]]]
        same = tf.pad(before, missing) == labels
        shared = tf.math.cumprod(tf.cast(same & tf.pad(real, missing), tf.int32), axis=1)
        return inputs, labels, mask & (shared == 0)

    def score_tokens(self, token_ids: Any, padding_mask: Any, labels: Any, mask: Any) -> Any:
        """Returns the log-likelihood of each row's labels on token level, `(batch,)`.

        Args:
            token_ids, padding_mask: See the call arguments.
            labels: `(batch, length)`.
            mask: 1 or true where a label counts, `(batch, length)`.
        """
        logits = self({"token_ids": token_ids, "padding_mask": padding_mask}, training=False)
        return score(logits, labels, mask)["log_probabilities"]

    def _scorer(self) -> Any:
        # adapters and quantization replace variables
        key = tuple(map(id, self.variables))
        if key not in self._scorers:
            self._scorers[key] = compiled(
                self.score_tokens,
                jit_compile=keras.backend.backend() == "jax",
                variables=lambda: self.variables,
                signature=[((None, None), dtype) for dtype in ("int32", "bool", "int32", "bool")],
            )
        return self._scorers[key]

    def shifted(self, ids: Any, multiple: int) -> tuple[dict[str, Any], Any, Any]:
        """Returns token-level inputs, labels and the mask of the labels, of ragged ids; a graph function.

        Args:
            ids: Token ids of texts, `(batch, None)`.
            multiple: Lengths are padded to multiples of this.
        """
        from zoo.tokenizers import to_dense

        token_ids, mask = to_dense(ids[:, :-1], self.pad_id, multiple)
        labels, _ = to_dense(ids[:, 1:], self.pad_id, multiple)
        return {"token_ids": token_ids, "padding_mask": mask}, labels, mask
