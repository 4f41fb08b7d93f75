"""Entities of tags in an export: the result of `TokenClassifier.entities` as tensors."""

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
