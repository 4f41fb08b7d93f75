"""Pairs of a source text and a target text."""

from typing import Any

import keras

from zoo.preprocessing.preprocessor import Preprocessor
from zoo.preprocessing.rows import as_texts, require_same_length, row_count, string_tensor
from zoo.preprocessing.token_rows import add_start_end, to_dense


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class Seq2SeqLMPreprocessor(Preprocessor):
    """Preprocessing of sequence-to-sequence models: sources and targets, for teacher forcing and decoding.

    Args:
        tokenizer: Tokenizer with start, end and padding token, for both sides; None for use on token level.
        sequence_length, truncate: See `Preprocessor`, for sources and targets. A text that is cut keeps its end token.
        decoder_start_token: The first token of the decoder's input. None for the tokenizer's start token. If it is
            another token, the texts of both sides begin with the tokenizer's start token, as in BART: sources are
            `<s> x </s>`, and decoder inputs `</s> <s> y </s>`.

    Raises:
        ValueError: If an argument is out of range, or the tokenizer lacks `decoder_start_token`.

    Example:

    >>> inputs, labels, weights = preprocessor(["ein Hund"], ["a dog"])
    >>> sorted(inputs)
    ['decoder_padding_mask', 'decoder_token_ids', 'encoder_padding_mask', 'encoder_token_ids']
    """

    truncation_hint = "Shorten it, or pass truncate=True to generate() or to the preprocessor."

    def __init__(
        self,
        tokenizer: Any = None,
        *,
        sequence_length: int | None = None,
        truncate: bool = False,
        decoder_start_token: str | None = None,
    ) -> None:
        super().__init__(tokenizer, sequence_length=sequence_length, truncate=truncate)
        self.decoder_start_token = decoder_start_token
        start_id = None if tokenizer is None else tokenizer.start_id
        self.decoder_start_id = start_id
        if decoder_start_token is not None and tokenizer is not None:
            self.decoder_start_id = tokenizer.token_to_id(decoder_start_token)
        self.adds_start_token = start_id != self.decoder_start_id and start_id is not None

    @property
    def added_tokens(self) -> str:  # type: ignore[override]  # a constant in the base class
        return "start and end token" if self.adds_start_token else "end token"

    def special_tokens(self) -> dict[str, int | None]:
        """Returns the ids of the tokens that stand around a source, and around a target."""
        # a target without an end would never end
        around = {**super().special_tokens(), "end_id": self.require_tokenizer("Text input").end_id}
        return around if self.adds_start_token else {**around, "start_id": None}

    def require_decoder_start(self) -> int:
        """Returns the id of the token that decoding starts with.

        Raises:
            ValueError: If there is none.
        """
        if self.decoder_start_id is None:
            raise ValueError(
                "There is no token that decoding starts with: the tokenizer has no start token, and the task no "
                "decoder_start_token."
            )
        return self.decoder_start_id

    def text_ids(self, texts: Any, truncate: bool | None = None) -> Any:
        """Returns the token ids of whole sources, with start and end token; a graph function.

        Args:
            texts: String tensor `(batch,)`.
            truncate: Whether longer texts are cut; their end token stays. Default as the preprocessor does it.

        Returns:
            Ragged int32 `(batch, None)`.
        """
        ids = self.require_tokenizer("Text input").tokenize(texts)
        return self._surrounded(ids, self.truncate if truncate is None else truncate)

    def _surrounded(self, ids: Any, truncate: bool) -> Any:
        return add_start_end(ids, **self.special_tokens(), max_length=self.sequence_length if truncate else None)

    # for generation: whether outputs can begin with a given text, and how many tokens of a prompt are no text
    takes_beginnings = True
    takes_conversations = False
    start_tokens = 1

    def prompts(
        self, texts: Any, beginnings: Any, truncate: bool, longest: int, max_new_tokens: int | None
    ) -> tuple[Any, Any]:
        """Returns the token ids that outputs begin with, and those of the sources, ragged int32; a graph function.

        Args:
            texts: Sources, string tensor `(batch,)`.
            beginnings: Beginnings of the outputs, string tensor `(batch,)`, or None.
            truncate: Whether long sources are cut; they keep their beginning.
            longest, max_new_tokens: Most tokens of an output; they do not depend on the source.
        """
        import tensorflow as tf

        sources = self.text_ids(texts, truncate)
        start_id = self.require_decoder_start()
        prompts = tf.RaggedTensor.from_tensor(tf.fill([sources.nrows(), 1], tf.constant(start_id, tf.int32)))
        if beginnings is None:
            return prompts, sources
        ids = self.tokenizer.of_targets.tokenize(beginnings)
        if self.adds_start_token:
            given = tf.cast(ids.row_lengths() > 0, tf.int64)
            starts = tf.repeat(self.tokenizer.start_id, tf.reduce_sum(given))
            ids = tf.concat([tf.RaggedTensor.from_row_lengths(starts, given), ids], axis=1)
        return tf.concat([prompts, ids], axis=1), sources

    def check_prompts(self, texts: Any, prompts: Any, sources: Any, longest: int, truncate: bool) -> None:
        """Raises a ValueError that names the first source or beginning that is too long."""
        self.check_fits(texts, sources.row_lengths().numpy(), "texts", truncate)
        for row, length in enumerate(prompts.row_lengths().numpy()):
            if length > longest:
                raise ValueError(
                    f"beginnings[{row}] must have fewer tokens than max_length={longest}, got {length - 1} tokens."
                )

    def source_batch(self, texts: Any, truncate: bool | None = None) -> tuple[Any, Any]:
        """Returns padded source ids and their mask, `(batch, length)`, the added tokens included; a graph function.

        Args:
            texts: String tensor `(batch,)`.
            truncate: As for `text_ids`.
        """
        return to_dense(self.text_ids(texts, truncate), self.pad_id, self.sequence_length)

    def tokens(self, x: Any) -> Any:
        """Returns the ragged ids of sources, `(batch, None)`, nothing added."""
        return self.require_tokenizer("Text input").tokenize(x)

    def token_counts(self, tokens: Any) -> Any:
        return tokens.row_lengths() + sum(token is not None for token in self.special_tokens().values())

    def inputs(self, tokens: Any) -> dict[str, Any]:
        """Returns the encoder's inputs."""
        ids, mask = to_dense(self._surrounded(tokens, self.truncate), self.pad_id, self.sequence_length)
        return {"encoder_token_ids": ids, "encoder_padding_mask": mask}

    def check_targets(self, y: Any, x: Any, name: str, x_name: str) -> Any:
        """Returns target texts as a string tensor `(rows,)`; arguments as in the base."""
        import numpy as np

        count = row_count(x)
        if y is None:
            raise ValueError(f"{name} must hold one target text per source text, got None for {count} in {x_name}.")
        texts = as_texts(y, name)
        require_same_length(count, len(texts), x_name, name, "target text", "source text")
        targets = string_tensor(texts)
        self.check_fits(targets, np.asarray(self.token_counts(self.targets(targets))), name)
        return targets

    def targets(self, y: Any) -> Any:
        if y is None:
            raise ValueError(f"A dataset for {self.task_name} must hold (x, y), source and target texts; got x alone.")
        return self.require_tokenizer("Text input").of_targets.tokenize(y)

    def collate(self, tokens: Any, targets: Any, sample_weight: Any, seed: Any = None) -> tuple[Any, Any, Any]:
        """Returns inputs, labels and weights for teacher forcing.

        `labels` `(batch, decoder_length)` is the target with the tokens that are added to it, `weights` that of the
        pair for its tokens and 0 for padding.
        """
        import tensorflow as tf

        target = self._surrounded(targets, self.truncate)
        labels, mask = to_dense(target, self.pad_id, self.sequence_length)
        fed = add_start_end(target[:, :-1], self.require_decoder_start(), None)
        decoder_ids, _ = to_dense(fed, self.pad_id, self.sequence_length)
        inputs = {**self.inputs(tokens), "decoder_token_ids": decoder_ids, "decoder_padding_mask": mask}
        weights = tf.cast(mask, tf.float32)
        if sample_weight is not None:
            weights *= tf.cast(sample_weight, tf.float32)[:, tf.newaxis]
        return inputs, labels, weights
