"""From generated tokens to texts: of a whole batch, piece by piece, and by graph functions for a SavedModel."""

import codecs
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from zoo.generation.chat import AnswerEdges
from zoo.tokenizers.tensors import row_ids

# Tokens of the prompt that stand before the generated ones while these are made text.
CONTEXT = 8
REPLACEMENT = "\ufffd".encode()
# A regular expression that nothing matches.
NOTHING = r"[^\x00-\x{10FFFF}]"
# Tokens between two looks at the texts for stop strings.
STOP_INTERVAL = 16


class TextSession:
    """A batch of texts that are being generated.

    Args:
        session: The session on token level, a `Session` or a `GrammarSession`.
        preprocessor: The preprocessor of the task.
        stops: Stop strings.
        edges: What is cut off at both ends, see `AnswerEdges`; None for nothing.
    """

    def __init__(
        self, session: Any, preprocessor: Any, stops: Sequence[str] = (), edges: AnswerEdges | None = None
    ) -> None:
        self._session, self._tokenizer, self._stops = session, preprocessor.tokenizer, stops
        self._edges = AnswerEdges() if edges is None else edges
        self._before = [prompt[preprocessor.start_tokens :] for prompt in session.prompts]

    def finish(self) -> list[tuple[list[bytes], np.ndarray]]:
        """Generates to the end; returns for each row the texts of its results, and their scores `(results,)`."""
        session = self._session
        if not self._stops or not session.incremental:
            session.advance()
        while not session.is_done:
            session.advance(STOP_INTERVAL)
            whole, _ = self._texts()
            session.stop((cut_at_stops(whole, self._stops) != whole).numpy())
        before, generated, scores = self._tokens()
        whole = continuations(self._tokenizer, before, generated, self._edges.anew)
        cut = cut_at_stops(whole, self._stops)
        texts = self._edges.cut(cut).numpy().reshape(scores.shape)
        is_cut = (cut != whole).numpy().reshape(scores.shape)
        if is_cut.any():
            lengths = lengths_to_stops(self._tokenizer, before, generated, whole, self._stops, self._edges.anew)
            lengths = lengths.numpy().reshape(scores.shape)
            scores = np.where(is_cut, session.scores_of_first(np.maximum(lengths, 1)), scores)
        if not session.incremental:
            # hypotheses that are cut at different places
            order = np.argsort(-scores, axis=1, kind="stable")
            texts, scores = (np.take_along_axis(values, order, axis=1) for values in (texts, scores))
        return list(zip(texts.tolist(), scores, strict=True))

    def pieces(self, first: list[str], chunk: int) -> Iterator[list[str]]:
        """Generates step by step and yields what is new of each row.

        Args:
            first: What is written first of each row.
            chunk: Tokens between two pieces.
        """
        if any(first):
            yield first
        session, unstable = self._session, self._tokenizer.unstable_tokens
        writers = [PieceWriter(self._stops, self._edges) for _ in first]
        ended = np.zeros(len(first), "bool")
        while not ended.all():
            session.advance(chunk)
            whole, _ = self._texts()
            stable = self._texts(unstable)[0] if unstable else whole
            cut = cut_at_stops(whole, self._stops)
            now = (cut != whole).numpy() | session.done
            session.stop(now)
            cut, stable = self._edges.cut(cut), self._edges.cut(stable)
            pieces = []
            for row, writer in enumerate(writers):
                if ended[row]:
                    pieces.append("")
                elif now[row]:
                    pieces.append(writer.finish(cut[row].numpy()))
                else:
                    pieces.append(writer.add(os.path.commonprefix([cut[row].numpy(), stable[row].numpy()])))
            ended |= now
            if any(pieces):
                yield pieces

    def _texts(self, without: int = 0) -> tuple[Any, np.ndarray]:
        """What was generated, string tensor `(rows * results,)`, and scores `(rows, results)`.

        Args:
            without: How many of the last tokens are left out.
        """
        before, generated, scores = self._tokens(without)
        return continuations(self._tokenizer, before, generated, self._edges.anew), scores

    def _tokens(self, without: int = 0) -> tuple[Any, Any, np.ndarray]:
        """The prompts and what was generated, ragged ids `(rows * results, None)`, and scores `(rows, results)`."""
        generated, scores = self._session.texts()
        before = [ids for ids in self._before for _ in range(scores.shape[1])]
        flat = [ids[: len(ids) - without] for row in generated for ids in row]
        return as_ragged(before), as_ragged(flat), scores


def as_ragged(rows: list[list[int]]) -> Any:
    """Returns rows of ids as a ragged int32 tensor `(batch, None)`."""
    import tensorflow as tf

    return tf.ragged.constant(rows, dtype=tf.int32, ragged_rank=1)


def continuations(tokenizer: Any, prompts: Any, generated: Any, anew: bool = False) -> Any:
    """Returns the texts that generated tokens add to their prompts.

    A token can have another text at the beginning than behind others (SentencePiece drops the first space), so the
    generated tokens are made text behind the last ones of the prompt, whose text is cut off again.

    Args:
        tokenizer: The tokenizer.
        prompts: Ragged int32 `(batch, None)`.
        generated: Ragged int32 `(batch, None)`, without end tokens.
        anew: Whether what follows a control token begins as a text of its own does, as in conversations.

    Returns:
        String tensor `(batch,)`, bytes that need not be valid UTF-8 where the end cut a character.
    """
    import tensorflow as tf

    if anew:
        context = _behind_control(tokenizer, prompts[:, -CONTEXT:])
    else:
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


def lengths_to_stops(tokenizer: Any, prompts: Any, generated: Any, texts: Any, stops: Any, anew: bool = False) -> Any:
    """Returns how many tokens of each text there are up to the one with which a stop string is complete.

    Args:
        tokenizer, prompts, generated, anew: As for `continuations`.
        texts: What `continuations` returned.
        stops: As for `cut_at_stops`.

    Returns:
        int64 `(batch,)`. Of a text without a stop, the number of its tokens.
    """
    import tensorflow as tf

    ids, lengths = generated.to_tensor(), tf.cast(generated.row_lengths(), tf.int64)
    is_cut = cut_at_stops(texts, stops) != texts

    def narrow(without: Any, complete: Any) -> tuple[Any, Any]:
        middle = (without + complete) // 2
        some = continuations(tokenizer, prompts, tf.RaggedTensor.from_tensor(ids, lengths=middle), anew)
        has_stop = cut_at_stops(some, stops) != some
        return tf.where(has_stop, without, middle), tf.where(has_stop, middle, complete)

    def is_open(without: Any, complete: Any) -> Any:
        return tf.reduce_any(is_cut & (complete - without > 1))

    return tf.where(is_cut, tf.while_loop(is_open, narrow, (tf.zeros_like(lengths), lengths))[1], lengths)


def _behind_control(tokenizer: Any, ids: Any) -> Any:
    """Ragged ids behind the last control token of each row, which begin as a text of its own does."""
    import tensorflow as tf

    silent = tokenizer.are_silent(ids.values)
    seen = tf.concat([[0], tf.cumsum(tf.cast(silent, tf.int32))], axis=0)
    of_rows = tf.gather(tf.gather(seen, ids.row_splits[1:]), row_ids(ids.row_splits))
    return tf.ragged.boolean_mask(ids, ids.with_values((seen[1:] == of_rows) & ~silent))


def cut_at_stops(texts: Any, stops: Any) -> Any:
    """Returns texts up to the first place where one of the stop strings begins.

    Args:
        texts: String tensor `(batch,)`.
        stops: Stop strings; none: nothing is cut. Also a string tensor `(stops,)`, whose empty entries do not count.
    """
    import tensorflow as tf

    if tf.is_tensor(stops):
        escaped = tf.strings.regex_replace(tf.boolean_mask(stops, stops != ""), "([[:punct:]])", r"\\\1")
        found = tf.strings.reduce_join(escaped, separator="|")
        found = tf.where(tf.size(escaped) > 0, found, NOTHING)
        return tf.strings.regex_replace(texts, tf.strings.join(["(?:", found, r")\C*"]), "", replace_global=False)
    if not stops:
        return texts
    # \C is any byte: what follows need not be valid UTF-8
    return tf.strings.regex_replace(texts, f"(?:{'|'.join(map(re.escape, stops))})\\C*", "", replace_global=False)


class PieceWriter:
    """Cuts a growing text into pieces that never split a character nor show the beginning of a stop string.

    Args:
        stops: Stop strings.
        edges: What was cut off at both ends of the whole text; None for nothing.

    Example:

    >>> writer = PieceWriter(["END"])
    >>> [writer.add(b"one"), writer.add(b"one E"), writer.finish(b"one E.")]
    ['one', ' ', 'E.']
    """

    def __init__(self, stops: Sequence[str] = (), edges: AnswerEdges | None = None) -> None:
        edges = AnswerEdges() if edges is None else edges
        # what is not complete yet may become a stop, or something that is cut off
        self._stops = [stop.encode() for stop in (*stops, *([edges.ends * 2] if edges.ends else []))]
        self._begins = [begin.encode() for begin in edges.begins]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._written = b""

    def add(self, text: bytes) -> str:
        """Returns what can be shown of the text beyond what was shown; the text is cut at stop strings already."""
        if not self._written and any(begin.startswith(text) for begin in self._begins):
            return ""
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
