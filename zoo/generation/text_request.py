"""From texts to the rows of token ids that an engine continues."""

from typing import Any

import numpy as np

from zoo.generation.options import GenerationCache
from zoo.preprocessing.rows import as_text, as_texts, require_same_length, string_tensor


class Request:
    """Rows that are to be continued.

    Args:
        prompts: Token ids of each row's prompt.
        sources: Token ids of each row's source, or None.
        limits: How many tokens each row may generate, `(rows,)`.
        lengths: Number of tokens of prompt and source, `(rows,)`.
        before: What stands before the generated text of each row, bytes.
    """

    def __init__(self, prompts: list, sources: list | None, limits: np.ndarray, lengths: np.ndarray, before: list):
        self.prompts, self.sources, self.limits, self.lengths, self.before = prompts, sources, limits, lengths, before

    def take(self, rows: np.ndarray) -> tuple[list, dict[str, Any]]:
        """Prompts of some rows, and the other arguments of `Engine.begin` that depend on rows."""
        source = None if self.sources is None else [self.sources[row] for row in rows]
        return [self.prompts[row] for row in rows], {"source": source, "limits": self.limits[rows]}


def make_request(
    prompter: Any,
    texts: list[bytes],
    beginnings: Any,
    most: int,
    max_length: int | None,
    max_new_tokens: int | None,
    truncate: bool | None,
    cache: GenerationCache | None,
) -> Request:
    """Returns token ids of each row, and how many it may generate.

    Args:
        prompter: What texts are to the model, `ContinuedTexts` or `MappedTexts`.
        texts: The texts.
        beginnings, max_length, max_new_tokens, truncate, cache: As for `TextGenerator.generate`.
        most: Most tokens that a row may generate.

    Raises:
        ValueError: If a row is too long or has no token, naming it, or arguments do not go together.
    """
    tokenizer = prompter.preprocessor.require_tokenizer("Text input")
    prompter.check_beginnings(beginnings)
    tensor, given = string_tensor(texts), None
    if beginnings is not None:
        one = isinstance(beginnings, (str, bytes))
        rows = [as_text(beginnings, "beginnings")] * len(texts) if one else as_texts(beginnings, "beginnings")
        require_same_length(len(texts), len(rows), "texts", "beginnings", "beginning", "text")
        given = string_tensor(rows)
    longest = prompter.preprocessor.sequence_length if max_length is None else max_length
    if cache is not None:
        if truncate:
            raise ValueError("truncate must be False with a cache, whose texts are whole, got True.")
        truncate = False
    truncate = prompter.preprocessor.truncate if truncate is None else truncate
    keep = prompter.keep(longest, max_new_tokens) if truncate else None
    if cache is not None:
        require_same_length(len(cache.token_ids), len(texts), "cache", "texts", "text")
    prompts, sources = prompter.ids(tensor, given, keep)
    before = prompter.before(tensor, given)
    if cache is not None:
        import tensorflow as tf

        prompts = tf.concat(
            [tf.ragged.constant(cache.token_ids, tf.int32, ragged_rank=1), tokenizer.tokenize(before)], axis=1
        )
    prompter.check(tensor, prompts, sources, longest, truncate)
    lengths = prompts.row_lengths()
    source_lengths = None if sources is None else sources.row_lengths()
    limits = np.minimum(prompter.room(lengths, source_lengths, longest), most)
    return Request(
        prompts.to_list(),
        None if sources is None else sources.to_list(),
        limits,
        np.asarray(lengths if sources is None else lengths + source_lengths),
        before.numpy().tolist(),
    )
