"""Guesses for the gaps in texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from zoo.preprocessing.masking import chosen_positions
from zoo.preprocessing.rows import as_text, as_texts, require_count
from zoo.preprocessing.token_rows import added_count
from zoo.tasks.encoder_task import EncoderTask


class MaskFilling(EncoderTask):
    """A task that says which tokens may stand where a text has the mask token.

    A subclass takes `mask_positions` in its call.
    """

    @property
    def mask_token(self) -> str:
        """How the mask is spelled in a text."""
        tokenizer = self._require_tokenizer("mask_token")
        return tokenizer.id_to_token(tokenizer.mask_id)

    def prompt_ids(self, texts: Any) -> Any:
        """Returns the ragged ids of texts in which the mask token is spelled out; a graph function."""
        return self._require_tokenizer("Text input").tokenize(texts, special_tokens=[self.mask_token])

    @staticmethod
    def best_tokens(logits: Any, top_k: int) -> tuple[Any, Any]:
        """Returns the ids of the likeliest tokens and their probabilities, `(batch, count, top_k)`.

        Args:
            logits: `(batch, count, vocabulary)`.
            top_k: Number of tokens, the likeliest first.
        """
        probabilities, token_ids = ops.top_k(ops.softmax(ops.cast(logits, "float32"), axis=-1), top_k)
        return token_ids, probabilities

    def mask_inputs(self, ids: Any, multiple: int = 1) -> tuple[dict[str, Any], Any]:
        """Returns token-level inputs of ragged ids with `mask_positions`, and which of these are real; graph function.

        Args:
            ids: Ragged ids of texts `(batch, None)`, without start and end token.
            multiple: Lengths are padded to multiples of this.
        """
        import tensorflow as tf

        inputs = self.encode_ids([ids], multiple)
        is_mask = (inputs["token_ids"] == self.tokenizer.mask_id) & inputs["padding_mask"]
        inputs["mask_positions"], _, weights = chosen_positions(is_mask, inputs["token_ids"])
        return inputs, tf.cast(weights, tf.bool)

    def fill_mask(self, texts: str | Sequence[str], top_k: int = 5, *, batch_size: int = 32) -> list[Any]:
        """Returns the likeliest tokens for each mask token in texts.

        Args:
            texts: One text or many, in which the mask token is spelled out, see `mask_token`.
            top_k: Number of tokens.
            batch_size: Texts per batch.

        Returns:
            For each text a list with one entry per mask: `top_k` pairs of a token and its probability, the likeliest
            first. For a single text its list alone.

        Raises:
            ValueError: If a text has no mask or is too long, naming the row, or an argument is out of range.

        Example:

        >>> model.fill_mask("The capital of France is [MASK].", top_k=2)
        [[('paris', 0.71), ('lyon', 0.12)]]
        """
        if isinstance(texts, (str, bytes)):
            return self.fill_mask([as_text(texts, "texts")], top_k, batch_size=batch_size)[0]
        require_count(batch_size, "batch_size")
        require_count(top_k, "top_k", 1, self.backbone.config.vocabulary_size)
        column = self.string_tensor(as_texts(texts, "texts"))
        results: list[Any] = [None] * len(column)
        added = added_count(1, **self.special_tokens())
        lengths = self.row_lengths(
            column, "texts", self.truncate, lambda some: self.prompt_ids(some).row_lengths() + added
        )
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            ids = self.prompt_ids(column.numpy()[rows])
            inputs, real = self.mask_inputs(ids, 16)
            has_none = np.flatnonzero(~real.numpy().any(axis=1))
            if len(has_none):
                row = rows[has_none[0]]
                shown = column.numpy()[row].decode("utf-8", "replace")[:80]
                raise ValueError(f"texts[{row}] must have a {self.mask_token!r} to fill, got {shown!r}.")
            logits = self.predict_on_batch({name: value.numpy() for name, value in inputs.items()})
            token_ids, probabilities = map(ops.convert_to_numpy, self.best_tokens(logits, top_k))
            for index, row in enumerate(rows):
                results[row] = [
                    list(
                        zip(map(self._token, token_ids[index, mask]), probabilities[index, mask].tolist(), strict=True)
                    )
                    for mask in range(int(real.numpy()[index].sum()))
                ]
        return results

    def _token(self, token_id: Any) -> str:
        # the vocabulary of a model may be padded beyond that of its tokenizer
        return self.tokenizer.id_to_token(int(token_id)) if token_id < self.tokenizer.vocabulary_size else ""

    def predict_texts(self, x: Any, batch_size: int) -> list[Any]:
        """Returns what `fill_mask` finds."""
        return self.fill_mask(x, batch_size=batch_size)
