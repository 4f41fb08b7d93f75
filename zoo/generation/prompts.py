"""What texts are to a model: prompts that it continues, or sources that it maps to other texts."""

import dataclasses
from typing import Any

from keras import ops

from zoo.generation.options import GenerationOptions
from zoo.generation.texts import continuations
from zoo.preprocessing.causal_lm import CausalLMPreprocessor
from zoo.preprocessing.rows import shorten
from zoo.preprocessing.seq2seq_lm import Seq2SeqLMPreprocessor
from zoo.preprocessing.token_rows import padded_length

# The paper lets an output be at most this many tokens longer than its input (Vaswani et al. 2017, section 6.1).
EXTRA_LENGTH = 50


class ContinuedTexts:
    """Texts are prompts: a decoder-only model continues them.

    Args:
        task: The task, whose preprocessor tokenizes prompts.
    """

    # how many of `max_length` tokens stand before the first generated one at least
    fewest_before = 1

    def __init__(self, task: Any):
        self._task = task

    @property
    def preprocessor(self) -> CausalLMPreprocessor:
        """The preprocessor of the task, which a loaded file replaces."""
        return self._task.preprocessor

    def check_beginnings(self, beginnings: Any) -> None:
        """Raises a ValueError if beginnings are given."""
        if beginnings is not None:
            raise ValueError(f"beginnings must be None: texts are continued as they are, got {shorten(beginnings)}.")

    def ids(self, texts: Any, beginnings: Any, keep: int | None) -> tuple[Any, Any]:
        """Returns token ids of prompts and of sources (None), ragged; a graph function.

        Args:
            texts: String tensor `(batch,)`.
            beginnings: None.
            keep: Most tokens of a prompt; longer ones lose their beginning. None cuts nothing.
        """
        return self.preprocessor.prompt_ids(texts, keep), None

    def keep(self, longest: int, max_new_tokens: int | None) -> int:
        """Returns how many tokens stay of a prompt that is cut.

        Args:
            longest: Most tokens of prompt and continuation.
            max_new_tokens: How many more tokens have to fit. None: a quarter of `longest`. At least a quarter of
                `longest` stays in any case.
        """
        quarter = max(longest // 4, 1)
        keep = longest - min(quarter if max_new_tokens is None else max_new_tokens, longest - quarter)
        return max(min(keep, longest - 1), 1 + int(self.preprocessor.adds_start_token))

    def room(self, prompt_lengths: Any, source_lengths: Any, longest: int) -> Any:
        """Returns how many tokens rows may generate.

        Args:
            prompt_lengths: Tokens of the prompt, an integer or integers `(batch,)`.
            source_lengths: None.
            longest: Most tokens of prompt and continuation.
        """
        return longest - prompt_lengths

    def fitting(self, settings: GenerationOptions, source: Any) -> GenerationOptions:
        """Returns the options of a graph function for one batch: as they are."""
        return settings

    def left_padded(self, prompts: Any, lengths: Any) -> Any:
        """Returns ragged prompts as ids `(batch, width)`, with -1 before them; a graph function."""
        import tensorflow as tf

        width = tf.cast(padded_length(tf.reduce_max(tf.concat([lengths, [2]], axis=0))), tf.int32)
        mask = tf.range(width) >= width - lengths[:, tf.newaxis]
        positions = tf.cast(tf.where(mask), tf.int32)
        shape = tf.stack([tf.shape(lengths)[0], width])
        return tf.tensor_scatter_nd_update(tf.fill(shape, -1), positions, prompts.values)

    def check(self, texts: Any, prompts: Any, sources: Any, longest: int, truncate: bool) -> None:
        """Raises a ValueError that names the first row that cannot be continued."""
        for row, length in enumerate(prompts.row_lengths().numpy()):
            if not length:
                raise ValueError(f"texts[{row}] has no token, and the tokenizer no start token to go on from.")
            if length >= longest:
                raise ValueError(
                    f"texts[{row}] has {length} tokens, but max_length={longest} must leave room for one more: "
                    f"{shorten(texts[row].numpy().decode('utf-8', 'replace'))}. Shorten it, or pass truncate=True "
                    "to keep its end."
                )

    @property
    def unstable_tokens(self) -> int:
        """How many of the last tokens can change the text of those before them."""
        return self.preprocessor.tokenizer.unstable_tokens

    def decode(self, prompts: Any, generated: Any) -> Any:
        """Returns the texts that generated tokens add to their prompts, `(batch,)`; a graph function."""
        return continuations(self.preprocessor.tokenizer, prompts, generated)

    def before(self, texts: Any, beginnings: Any) -> Any:
        """Returns what stands before the generated texts in a result, `(batch,)`."""
        return texts


class MappedTexts:
    """Texts are sources: an encoder-decoder writes another text for each, from its beginning or a given one.

    Args:
        task: The task, whose preprocessor tokenizes sources and outputs.
    """

    fewest_before = 0

    def __init__(self, task: Any):
        self._task = task

    @property
    def preprocessor(self) -> Seq2SeqLMPreprocessor:
        """The preprocessor of the task, which a loaded file replaces."""
        return self._task.preprocessor

    def check_beginnings(self, beginnings: Any) -> None:
        """Beginnings are taken."""

    def ids(self, texts: Any, beginnings: Any, keep: int | None) -> tuple[Any, Any]:
        """Returns token ids of prompts and of sources, ragged; a graph function.

        Args:
            texts: String tensor `(batch,)`.
            beginnings: Beginnings of the outputs, string tensor `(batch,)`, or None.
            keep: Whether sources are cut: they are if it is not None.
        """
        import tensorflow as tf

        preprocessor = self.preprocessor
        sources = preprocessor.text_ids(texts, truncate=keep is not None)
        start_id = preprocessor.require_decoder_start()
        prompts = tf.RaggedTensor.from_tensor(tf.fill([sources.nrows(), 1], tf.constant(start_id, tf.int32)))
        if beginnings is None:
            return prompts, sources
        ids = preprocessor.tokenizer.tokenize(beginnings)
        if preprocessor.adds_start_token:
            given = tf.cast(ids.row_lengths() > 0, tf.int64)
            starts = tf.repeat(preprocessor.tokenizer.start_id, tf.reduce_sum(given))
            ids = tf.concat([tf.RaggedTensor.from_row_lengths(starts, given), ids], axis=1)
        return tf.concat([prompts, ids], axis=1), sources

    def keep(self, longest: int, max_new_tokens: int | None) -> int:
        """Returns how many tokens stay of a source that is cut: as many as the encoder takes."""
        return self.preprocessor.sequence_length

    def room(self, prompt_lengths: Any, source_lengths: Any, longest: int) -> Any:
        """Returns how many tokens rows may generate.

        Args:
            prompt_lengths: Tokens of the beginning and the token before it, an integer or integers `(batch,)`.
            source_lengths: Tokens of the source, likewise.
            longest: Most tokens of an output.

        Reference:
            Vaswani et al. 2017, section 6.1: no more than 50 more than the source has.
        """
        if isinstance(source_lengths, int):
            return min(longest, source_lengths + EXTRA_LENGTH) - (prompt_lengths - 1)
        import tensorflow as tf

        longest = tf.cast(longest, source_lengths.dtype)
        return tf.minimum(longest, source_lengths + EXTRA_LENGTH) - (prompt_lengths - 1)

    def fitting(self, settings: GenerationOptions, source: Any) -> GenerationOptions:
        """Returns the options of a graph function for one batch: no more tokens than any of its rows may generate."""
        longest = ops.shape(source["encoder_token_ids"])[1] + EXTRA_LENGTH
        most = settings.max_new_tokens
        most = min(most, longest) if isinstance(longest, int) else ops.minimum(most, longest)
        return dataclasses.replace(settings, max_new_tokens=most)

    def left_padded(self, prompts: Any, lengths: Any) -> Any:
        """Returns prompts of the token that decoding starts with as ids `(batch, 1)`."""
        return prompts.to_tensor(shape=(None, 1))

    def check(self, texts: Any, prompts: Any, sources: Any, longest: int, truncate: bool) -> None:
        """Raises a ValueError that names the first row that is too long."""
        import numpy as np

        self.preprocessor.check_fits(texts, np.asarray(sources.row_lengths()), "texts", truncate)
        for row, length in enumerate(prompts.row_lengths().numpy()):
            if length > longest:
                raise ValueError(
                    f"beginnings[{row}] must have fewer tokens than max_length={longest}, got {length - 1} tokens."
                )

    @property
    def unstable_tokens(self) -> int:
        """How many of the last tokens can change the text of those before them."""
        return self.preprocessor.tokenizer.unstable_tokens

    def decode(self, prompts: Any, generated: Any) -> Any:
        """Returns the texts that generated tokens add to the beginnings, `(batch,)`; a graph function."""
        return continuations(self.preprocessor.tokenizer, prompts[:, 1:], generated)

    def before(self, texts: Any, beginnings: Any) -> Any:
        """Returns what stands before the generated texts in a result, `(batch,)`."""
        import tensorflow as tf

        return tf.zeros_like(texts) if beginnings is None else beginnings
