"""Entities of BIO tags in an export: the result of `TokenClassifier.entities` as tensors."""

from collections.abc import Sequence
from typing import Any

from zoo.export import Field
from zoo.preprocessing.tags import OUTSIDE

_SHAPE = ("batch", "entities")
ENTITY_FIELDS = (
    Field("labels", _SHAPE, "string", "what each entity is"),
    Field("texts", _SHAPE, "string", "the parts of the texts"),
    Field("starts", _SHAPE, "int64", "where entities start, in bytes"),
    Field("ends", _SHAPE, "int64", "where entities end, in bytes"),
    Field("scores", _SHAPE, "float32", "mean probability of the tags of each entity"),
)


def are_bio(names: Sequence[str] | None) -> bool:
    """Returns whether labels are BIO tags.

    Args:
        names: Names of the labels. None for labels without names.
    """
    return names is not None and all(name == OUTSIDE or (name[:2] in ("B-", "I-") and name[2:]) for name in names)


def entities_in_graph(texts: Any, starts: Any, ends: Any, probabilities: Any, names: Sequence[str]) -> dict[str, Any]:
    """Returns the entities that the most probable tags mark. A graph function.

    Args:
        texts: String tensor `(batch,)`.
        starts, ends: Positions of words in bytes, ragged `(batch, None)`.
        probabilities: Probabilities of the labels of all words, `(all words, labels)`.
        names: The labels, BIO tags.

    Returns:
        "labels", "texts", "starts", "ends" and "scores", `(batch, entities)`, padded with "" and 0.

    Reference:
        As `zoo.preprocessing.decode_bio`.
    """
    import tensorflow as tf

    kinds = sorted({name[2:] for name in names if name != OUTSIDE})
    kind_of_label = tf.constant([-1 if name == OUTSIDE else kinds.index(name[2:]) for name in names], tf.int64)
    is_first_label = tf.constant([name.startswith("B-") for name in names])
    chosen, score = tf.argmax(probabilities, axis=-1), tf.reduce_max(probabilities, axis=-1)
    kind, row = tf.gather(kind_of_label, chosen), starts.value_rowids()
    # the first word has none before it
    before = [tf.concat([[tf.constant(-2, tf.int64)], part[:-1]], axis=0) for part in (kind, row)]
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
