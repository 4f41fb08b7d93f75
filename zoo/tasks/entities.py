"""Entities that tags mark, as tensors: words or tokens are joined to them, by several strategies."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.export import Field
from zoo.preprocessing.tags import FIRST, LAST, OUTSIDE, Entity, is_tag
from zoo.tokenizers.tensors import row_ids

_SHAPE = ("batch", "entities")
ENTITY_FIELDS = (
    Field("labels", _SHAPE, "string", "what each entity is"),
    Field("texts", _SHAPE, "string", "the parts of the texts"),
    Field("starts", _SHAPE, "int64", "where entities start, in bytes"),
    Field("ends", _SHAPE, "int64", "where entities end, in bytes"),
    Field("scores", _SHAPE, "float32", "mean probability of the tags of each entity"),
)


def are_tags(names: Sequence[str] | None) -> bool:
    """Returns whether labels are tags that mark entities: of BIO, BIOES or BILOU.

    Args:
        names: Names of the labels. None for labels without names.
    """
    return names is not None and all(map(is_tag, names))


def entities_in_graph(
    texts: Any, starts: Any, ends: Any, probabilities: Any, names: Sequence[str], *, join: bool = True
) -> dict[str, Any]:
    """Returns the entities that the most probable tags mark. A graph function.

    Args:
        texts: String tensor `(batch,)`.
        starts, ends: Positions of words in bytes, ragged `(batch, None)`.
        probabilities: Probabilities of the labels of all words, `(all words, labels)`.
        names: The labels, tags.
        join: Whether words become entities. Otherwise each word that is not outside is one by itself, with its tag.

    Returns:
        "labels", "texts", "starts", "ends" and "scores", `(batch, entities)`, padded with "" and 0.

    Reference:
        As `zoo.preprocessing.decode_tags`.
    """
    import tensorflow as tf

    label_kinds = [None if name == OUTSIDE else name[2:] if join else name for name in names]
    kinds = sorted({kind for kind in label_kinds if kind is not None})
    kind_of_label = tf.constant([-1 if kind is None else kinds.index(kind) for kind in label_kinds], tf.int64)
    is_first_label = tf.constant([not join or name[0] in FIRST for name in names])
    # behind the last word of an entity another begins
    is_last_label = tf.constant([name[0] in LAST for name in names])
    chosen, score = tf.argmax(probabilities, axis=-1), tf.reduce_max(probabilities, axis=-1)
    kind, row = tf.gather(kind_of_label, chosen), row_ids(starts.row_splits)
    # the first word has none before it
    before = [tf.concat([[tf.constant(-2, tf.int64)], part[:-1]], axis=0) for part in (kind, row)]
    is_closed = tf.concat([[True], tf.gather(is_last_label, chosen)[:-1]], axis=0)[: tf.size(kind)]
    before[0] = tf.where(is_closed, tf.constant(-2, tf.int64), before[0])
    begins = (kind >= 0) & (tf.gather(is_first_label, chosen) | (kind != before[0]) | (row != before[1]))
    inside = kind >= 0
    entity = tf.boolean_mask(tf.cumsum(tf.cast(begins, tf.int64)) - 1, inside)
    entity_row = tf.boolean_mask(row, begins)
    start = tf.boolean_mask(starts.values, begins)
    end = tf.math.segment_max(tf.boolean_mask(ends.values, inside), entity)
    found = {
        "labels": tf.gather(tf.constant([*kinds, ""]), tf.boolean_mask(kind, begins)),
        "texts": tf.strings.substr(tf.gather(texts, entity_row), start, end - start),
        "starts": start,
        "ends": end,
        "scores": tf.math.segment_mean(tf.boolean_mask(score, inside), entity),
    }
    rows = tf.size(texts, out_type=tf.int64)
    return {
        name: tf.RaggedTensor.from_value_rowids(value, entity_row, rows, validate=False).to_tensor(
            "" if value.dtype == tf.string else 0
        )
        for name, value in found.items()
    }


def entity_tuples(texts: Sequence[bytes], found: dict[str, Any], starts: Any) -> list[list[Entity]]:
    """Returns what `entities_in_graph` returned, with places in characters; eager.

    Args:
        texts: The texts as valid UTF-8.
        found: What it returned.
        starts: Positions of words in bytes, ragged `(batch, None)`.
    """
    rows = []
    columns = {name: value.numpy() for name, value in found.items()}
    for number, (text, places) in enumerate(zip(texts, starts.to_list(), strict=True)):
        row = {name: value[number] for name, value in columns.items()}
        count = int(np.sum(row["labels"] != b""))
        ends = row["ends"][:count]
        # tokens may be parts of one character, so that they overlap
        characters = np.append(0, np.cumsum(np.frombuffer(text, np.uint8) & 0xC0 != 0x80))
        pairs = list(zip(row["starts"][:count], ends, strict=True))
        spans = [tuple(characters[list(pair)].tolist()) for pair in pairs]
        units = [tuple(np.searchsorted(places, pair).tolist()) for pair in pairs]
        rows.append(
            [
                Entity(label.decode(), part.decode("utf-8", "replace"), *span, unit, float(score))
                for label, part, span, unit, score in zip(
                    row["labels"][:count], row["texts"][:count], spans, units, row["scores"][:count], strict=True
                )
            ]
        )
    return rows


def tag_moves(names: Sequence[str], later: bool) -> np.ndarray | None:
    """Returns the matrix that moves probabilities of tags to those of a word that is a part of a token.

    Args:
        names: The labels.
        later: Whether another word of the token stands before it, so that it begins nothing; otherwise, behind it, so
            that it ends nothing.

    Returns:
        `(labels, labels)`, float32; None if nothing moves.
    """
    changed = {"B": "I", "S": "E", "U": "L"} if later else {"S": "B", "U": "B", "E": "I", "L": "I"}
    moves = np.eye(len(names), dtype="float32")
    for place, name in enumerate(names):
        other = f"{changed.get(name[:1])}{name[1:]}"
        if is_tag(name) and other in names:
            moves[place] = moves[names.index(other)]
    return moves if are_tags(names) and (moves != np.eye(len(names))).any() else None


STRATEGIES = ("none", "simple", "first", "average", "max")


def join_tokens(strategy: str, texts: Any, tokens: tuple[Any, Any, Any], probabilities: Any, tokenizer: Any) -> Any:
    """Returns the units of texts that have a label each; a graph function.

    "none" and "simple": the tokens. "first", "average" and "max": words, as tokens of WordPiece tell them and otherwise
    what stands between spaces. They have the probabilities of their first token, the mean of all, or those of the token
    with the highest one.

    Args:
        strategy: One of `STRATEGIES`.
        texts: String tensor `(batch,)`.
        tokens: Ids of tokens, and where they start and end in bytes, ragged `(batch, None)`.
        probabilities: Of the labels of all tokens, `(tokens, labels)`.
        tokenizer: The tokenizer.

    Returns:
        `(starts, ends, probabilities)` of units, without spaces around them: ragged int64 `(batch, None)`, and
        `(units, labels)`.

    Reference:
        `TokenClassificationPipeline` of the Transformers library (`gather_pre_entities`, `aggregate_word`).
    """
    import tensorflow as tf

    ids, starts, ends = tokens
    row = row_ids(ids.row_splits)
    bytes_of_texts = tf.strings.bytes_split(texts)
    is_space = tf.concat([bytes_of_texts.values == " ", [False]], axis=0)
    text = tf.gather(bytes_of_texts.row_starts(), row)
    starts, ends = (text + tf.cast(part.values, tf.int64) for part in (starts, ends))
    starts, ends = _without_spaces(is_space, starts, ends)

    def units(rows: Any, starts: Any, ends: Any, values: Any) -> Any:
        count = tf.size(texts, out_type=tf.int64)
        parts = (tf.RaggedTensor.from_value_rowids(part, rows, count, validate=False) for part in (starts, ends))
        return *parts, values

    if strategy in ("none", "simple"):
        return units(row, starts - text, ends - text, probabilities)
    if tokenizer.continues_word is None:
        begins = (starts == text) | tf.gather(is_space, starts) | tf.gather(is_space, tf.maximum(starts - 1, 0))
    else:
        begins = ~tf.gather(tf.constant(tokenizer.continues_word), ids.values)
    if tokenizer.unknown_id is not None:
        begins |= ids.values == tokenizer.unknown_id
    begins |= tf.concat([[True], row[1:] != row[:-1]], axis=0)[: tf.size(row)]
    unit, first = tf.cumsum(tf.cast(begins, tf.int64)) - 1, tf.where(begins)[:, 0]
    if strategy == "average":
        values = tf.math.segment_mean(probabilities, unit)
    else:
        values = tf.gather(probabilities, _highest(probabilities, unit) if strategy == "max" else first)
    start, begin = tf.gather(starts, first), tf.gather(text, first)
    return units(tf.gather(row, first), start - begin, tf.math.segment_max(ends, unit) - begin, values)


def _highest(probabilities: Any, unit: Any) -> Any:
    """The token of each unit that has the highest probability of any label."""
    import tensorflow as tf

    most = tf.reduce_max(probabilities, axis=-1)
    number = tf.range(tf.size(unit, out_type=tf.int64))
    is_highest = most == tf.gather(tf.math.segment_max(most, unit), unit)
    return tf.math.segment_min(tf.where(is_highest, number, number.dtype.max), unit)


def _without_spaces(is_space: Any, starts: Any, ends: Any) -> tuple[Any, Any]:
    """Parts of a text without the spaces that they begin or end with; those of spaces alone are empty at their end."""
    import tensorflow as tf

    places = tf.concat([tf.where(~is_space)[:, 0], [0]], axis=0)
    before = tf.cumsum(tf.cast(~is_space, tf.int64), exclusive=True)
    first, end = tf.gather(before, starts), tf.gather(before, ends)
    has_other = end > first
    last = tf.gather(places, tf.maximum(end - 1, 0)) + 1
    return tf.where(has_other, tf.gather(places, first), ends), tf.where(has_other, last, ends)
