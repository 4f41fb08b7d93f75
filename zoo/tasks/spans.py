"""Spans of a context as answers: the best of each window, and those of all windows of a context together."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

# logits of positions that are no candidates
EXCLUDED = -1e9
# below it nothing was a candidate: sums of such logits
NOTHING = -5e8
# white space that answers do not begin or end with: what "[\s\p{Z}]" matches
SPACES = "\t\n\f\r \u00a0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"


class Answer(NamedTuple):
    """An answer to a question.

    Args:
        text: The part of the context; "" where there is no answer.
        start, end: Its characters are `context[start:end]`; 0 and 0 where there is no answer.
        score: Its probability among all spans that may be answers, and no answer.
        no_answer: The probability that there is no answer.
    """

    text: str
    start: int
    end: int
    score: float
    no_answer: float


def best_spans(logits: Any, offsets: Any, own: Any, sizes: Any, longest: int, count: int = 1) -> dict[str, Any]:
    """Returns the best spans of each window. The logit of a span is the sum of those of its first and last token.

    Args:
        logits: Two logits per token, float32 `(windows, length, 2)`.
        offsets: Position of the first token of the context in each row, `(windows,)`.
        own: The tokens of the context that a span may begin with, the first and the one after the last, `(windows, 2)`.
        sizes: Number of tokens of the context, with which a span may end, `(windows,)`.
        longest: Largest number of tokens of a span.
        count: Number of spans to return.

    Returns:
        "logits", "first" and "last" `(windows, count)`, the best first, tokens counted from the first of the context,
        below `NOTHING` where there are fewer; "total" `(windows,)`, the logarithm of the sum of the exponentials of all
        spans; "none" `(windows,)`, the logit of no answer: that of the first token as a span.

    Reference:
        Devlin et al. 2019, "BERT", sections 4.2 and 4.3.
    """
    length = ops.shape(logits)[1]
    offsets, own, sizes = (ops.cast(part, "int32") for part in (offsets, own, sizes))
    token = ops.arange(length, dtype="int32")[None] - offsets[:, None]
    starts, ends = (token >= own[:, :1]) & (token < own[:, 1:]), (token >= 0) & (token < sizes[:, None])
    first = ops.where(starts, logits[:, :, 0], EXCLUDED)
    last = ops.where(ends, logits[:, :, 1], EXCLUDED)
    last = ops.pad(last, [[0, 0], [0, longest - 1]], constant_values=EXCLUDED)
    # (rows, length, longest): spans of 1, 2, ... tokens that begin at each position
    places = ops.arange(length)[:, None] + ops.arange(longest)[None]
    spans = ops.reshape(first[:, :, None] + ops.take(last, places, axis=1), (-1, length * longest))
    best, place = ops.top_k(spans, count)
    begin = place // longest - offsets[:, None]
    return {
        "logits": best,
        "first": begin,
        "last": begin + place % longest,
        "total": ops.logsumexp(spans, axis=1),
        "none": logits[:, 0, 0] + logits[:, 0, 1],
    }


def merge_windows(
    context: str,
    found: list[dict[str, np.ndarray]],
    places: list[tuple[np.ndarray, np.ndarray]],
    count: int,
    threshold: float | None,
) -> list[Answer]:
    """Returns the best answers of the windows of one context.

    Args:
        context: The text.
        found: What `best_spans` returned for each window.
        places: First character of each token of each window, and the one after its last.
        count: Largest number of answers.
        threshold: How much the logit of no answer must be above that of the best span for there to be none; None for
            at least one answer, where the context has a token.
    """
    # Devlin et al. take the window that is least sure of there being none
    none = float(min(part["none"] for part in found))
    total = float(np.logaddexp.reduce([none, *(float(part["total"]) for part in found)]))
    spans: dict[tuple[int, int], float] = {}
    for part, (starts, ends) in zip(found, places, strict=True):
        for logit, first, last in zip(part["logits"], part["first"], part["last"], strict=True):
            if logit > NOTHING:
                span = _trimmed(context, int(starts[first]), int(ends[last]))
                spans[span] = max(spans.get(span, EXCLUDED), float(logit))
    absent = float(np.exp(none - total))
    ordered = sorted(spans.items(), key=lambda item: (-item[1], item[0]))
    answers = [
        Answer(context[start:end], start, end, float(np.exp(logit - total)), absent) for (start, end), logit in ordered
    ]
    if not ordered or (threshold is not None and none - ordered[0][1] > threshold):
        answers.insert(0, Answer("", 0, 0, absent, absent))
    return answers[:count]


def _trimmed(context: str, start: int, end: int) -> tuple[int, int]:
    text = context[start:end]
    start += len(text) - len(text.lstrip(SPACES))
    return start, max(start, end - len(text) + len(text.rstrip(SPACES)))


def merge_in_graph(
    contexts: Any, found: dict[str, Any], windows: dict[str, Any], threshold: float | None
) -> dict[str, Any]:
    """Returns the best answer of each row of a batch, as `merge_windows` does. A graph function.

    Args:
        contexts: String tensor `(rows,)`.
        found: What `best_spans` returned, for one span per window.
        windows: What `QuestionAnswererPreprocessor.windows` returned, places in bytes.
        threshold: As for `merge_windows`.

    Returns:
        "answers", strings `(rows,)`, their "starts" and "ends", int64, "scores" and "no_answer", float32.
    """
    import tensorflow as tf

    rows, row = tf.shape(contexts)[0], windows["row"]
    found = {name: value[:, 0] if value.shape.rank == 2 else value for name, value in found.items()}
    best = tf.math.unsorted_segment_max(found["logits"], row, rows)
    number = tf.range(tf.size(row, out_type=tf.int64))
    is_best = found["logits"] >= tf.gather(best, row)
    window = tf.math.unsorted_segment_min(tf.where(is_best, number, number.dtype.max), row, rows)
    none = tf.math.unsorted_segment_min(found["none"], row, rows)
    highest = tf.maximum(tf.math.unsorted_segment_max(found["total"], row, rows), none)
    totals = tf.math.unsorted_segment_sum(tf.exp(found["total"] - tf.gather(highest, row)), row, rows)
    total = highest + tf.math.log(totals + tf.exp(none - highest))
    is_answer = best > NOTHING
    if threshold is not None:
        is_answer &= none - best <= threshold
    # of no answer, places in rows that may have no token
    places = []
    for side, name in (("first", "starts"), ("last", "ends")):
        token = tf.gather(windows[name].row_starts(), window) + tf.cast(tf.gather(found[side], window), tf.int64)
        values = tf.concat([tf.cast(windows[name].values, tf.int64), [0]], axis=0)
        places.append(tf.gather(values, tf.where(is_answer, token, tf.size(values, out_type=tf.int64) - 1)))
    start, end = places
    texts = tf.strings.substr(contexts, start, end - start)
    shorter = tf.strings.regex_replace(texts, r"^[\s\p{Z}]+", "")
    start += tf.cast(tf.strings.length(texts) - tf.strings.length(shorter), tf.int64)
    texts = tf.strings.regex_replace(shorter, r"[\s\p{Z}]+$", "")
    absent = tf.exp(none - total)
    return {
        "answers": texts,
        "starts": start,
        "ends": start + tf.cast(tf.strings.length(texts), tf.int64),
        "scores": tf.where(is_answer, tf.exp(best - total), absent),
        "no_answer": absent,
    }
