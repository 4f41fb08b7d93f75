"""From generated tokens to texts, by TensorFlow's operations: the same eagerly and in a SavedModel."""

import codecs
import re
from collections.abc import Sequence
from typing import Any

from zoo.preprocessing.rows import as_text

# Tokens of the prompt that stand before the generated ones while these are made text.
CONTEXT = 8
REPLACEMENT = "\ufffd".encode()


def continuations(tokenizer: Any, prompts: Any, generated: Any) -> Any:
    """Returns the texts that generated tokens add to their prompts.

    A token can have another text at the beginning than behind others (SentencePiece drops the first space), so the
    generated tokens are made text behind the last ones of the prompt, whose text is cut off again.

    Args:
        tokenizer: The tokenizer.
        prompts: Ragged int32 `(batch, None)`.
        generated: Ragged int32 `(batch, None)`, without end tokens.

    Returns:
        String tensor `(batch,)`, bytes that need not be valid UTF-8 where the end cut a character.
    """
    import tensorflow as tf

    # an end token in a prompt would hide all that follows
    if tokenizer.end_id is not None:
        prompts = tf.ragged.boolean_mask(prompts, prompts != tokenizer.end_id)
    context = prompts[:, -CONTEXT:]
    before = tokenizer.detokenize(context)
    whole = tokenizer.detokenize(tf.concat([context, generated], axis=1))
    length = tf.strings.length(before)
    begins = tf.strings.substr(whole, tf.zeros_like(length), length) == before
    rest = tf.strings.substr(whole, tf.minimum(length, tf.strings.length(whole)), tf.strings.length(whole))
    return tf.where(begins, rest, tokenizer.detokenize(generated))


def without_ends(outputs: dict[str, Any], count: Any) -> Any:
    """Returns the generated tokens without those of their ends.

    Args:
        outputs: What `decode` returned.
        count: How many of the rows count; those behind them were added to the batch.

    Returns:
        Ragged int32 `(count, None)`.
    """
    import tensorflow as tf

    # arrays and tensors of other backends too
    token_ids, lengths, end_lengths = (
        tf.convert_to_tensor(outputs[name])[:count] for name in ("token_ids", "lengths", "end_lengths")
    )
    return tf.RaggedTensor.from_tensor(token_ids, lengths=lengths - end_lengths)


def cut_at_stops(texts: Any, stops: Sequence[str]) -> Any:
    """Returns texts up to the first place where one of the stop strings begins.

    Args:
        texts: String tensor `(batch,)`.
        stops: Stop strings; none: nothing is cut.
    """
    import tensorflow as tf

    if not stops:
        return texts
    # \C is any byte: what follows need not be valid UTF-8
    return tf.strings.regex_replace(texts, f"(?:{'|'.join(map(re.escape, stops))})\\C*", "", replace_global=False)


class PieceWriter:
    """Cuts a growing text into pieces that never split a character nor show the beginning of a stop string.

    Args:
        stops: Stop strings.

    Example:

    >>> writer = PieceWriter(["END"])
    >>> [writer.add(b"one"), writer.add(b"one E"), writer.finish(b"one E.")]
    ['one', ' ', 'E.']
    """

    def __init__(self, stops: Sequence[str] = ()):
        self._stops = [stop.encode() for stop in stops]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._written = b""

    def add(self, text: bytes) -> str:
        """Returns what can be shown of the text beyond what was shown; the text is cut at stop strings already."""
        safe = len(text) - self._begun_stop(text)
        # bytes that wait for the rest of their character may be written as the replacement character
        while text[:safe].endswith(REPLACEMENT):
            safe -= len(REPLACEMENT)
        return self._write(text[:safe], final=False)

    def finish(self, text: bytes) -> str:
        """Returns all of the final text that was not shown yet."""
        return self._write(text, final=True)

    def _begun_stop(self, text: bytes) -> int:
        lengths = (length for stop in self._stops for length in range(1, len(stop)) if text.endswith(stop[:length]))
        return max(lengths, default=0)

    def _write(self, text: bytes, final: bool) -> str:
        if not text.startswith(self._written):
            return ""
        new = text[len(self._written) :]
        self._written = text
        return self._decoder.decode(new, final)


def split_stops(stop: Any) -> tuple[list[str], list[Any]]:
    """Returns stop strings, and token ids and sequences of these.

    Args:
        stop: A string, or a list of strings, token ids and lists of token ids; None for none.

    Raises:
        ValueError: If a string is empty.
    """
    if stop is None:
        return [], []
    strings, sequences = [], []
    for place, value in enumerate([stop] if isinstance(stop, (str, bytes)) else stop):
        if not isinstance(value, (str, bytes)):
            sequences.append(value)
        elif not value:
            raise ValueError(f"stop[{place}] must not be empty.")
        else:
            strings.append(as_text(value, f"stop[{place}]").decode())
    return strings, sequences
