"""The endpoint `score_tokens`: how probable each token of given texts is, and what would have been more so."""

from typing import Any

from keras import ops

from zoo.export import Endpoint, Field
from zoo.generation.alternatives import MOST_ALTERNATIVES, most_probable
from zoo.generation.loop import token_log_probabilities

# Most logits that are held at a time, 64 MB of float32: those of a whole text of a large vocabulary fill gigabytes.
MOST_LOGITS = 2**24
_GIVEN = (
    Field("token_ids", ("batch", "length"), "int32", "tokens of texts, -1 behind those of a row"),
    Field("alternatives", (), "int32", f"most probable tokens that are told, at most {MOST_ALTERNATIVES}"),
)
_PLACES = ("batch", "length", "alternatives")
_SCORED = (
    Field("log_probabilities", ("batch", "length"), "float32", "of each token; 0 of the first, and behind a row"),
    Field("alternative_ids", _PLACES, "int32", "the most probable tokens of each place, -1 where there are none"),
    Field("alternative_log_probabilities", _PLACES, "float32", "of these tokens"),
)


def score_tokens_endpoint(backbone: Any) -> Endpoint:
    """Returns the endpoint `score_tokens(token_ids, alternatives)` of a decoder.

    The first token of a row has no tokens before it: its log-probability is 0, and it has no alternatives.

    Args:
        backbone: The decoder.

    Example:

    >>> exported.endpoints["score_tokens"](token_ids=[[464, 3139, 318]], alternatives=1)["log_probabilities"]
    [[0.0, -7.9, -2.1]]
    """

    def score_tokens(token_ids: Any, alternatives: Any) -> Any:
        is_token = token_ids >= 0
        ids = ops.maximum(token_ids, 0)
        hidden = backbone({"token_ids": ids, "padding_mask": is_token}, training=False)
        # each vector tells the next token; before the first one there is none
        vectors = backbone.output_vectors(hidden)
        vectors = ops.concatenate([ops.zeros_like(vectors[:, :1]), vectors[:, :-1]], axis=1)
        labels = ops.concatenate([ops.full_like(token_ids[:, :1], -1), token_ids[:, 1:]], axis=1)
        scores, best_ids, best = _in_pieces(backbone, vectors, labels)
        return {
            "log_probabilities": scores,
            "alternative_ids": best_ids[:, :, :alternatives],
            "alternative_log_probabilities": best[:, :, :alternatives],
        }

    return Endpoint(score_tokens, _GIVEN, _SCORED, "How probable each token of given texts is.")


def _in_pieces(backbone: Any, vectors: Any, labels: Any) -> tuple[Any, Any, Any]:
    """Log-probabilities of labels, 0 for -1, and the most probable tokens, of a number of places at a time."""
    import tensorflow as tf

    shape = tf.shape(labels)
    count = shape[0] * shape[1]
    # pieces of one size: as few as hold no more logits than they may
    most = max(1, MOST_LOGITS // backbone.config.vocabulary_size)
    pieces = tf.maximum((count + most - 1) // most, 1)
    size = (count + pieces - 1) // pieces

    def cut(values: Any, *rest: int) -> Any:
        values = tf.reshape(values, (count, *rest))
        missing = [[0, pieces * size - count], *[[0, 0]] * len(rest)]
        return tf.reshape(tf.pad(values, missing), (pieces, size, *rest))

    def score(piece: tuple[Any, Any]) -> tuple[Any, Any, Any]:
        vectors, labels = piece
        logits = backbone.score(vectors[None])[0]
        return (token_log_probabilities(logits, ops.maximum(labels, 0)), *most_probable(logits))

    places = tf.TensorSpec((None, MOST_ALTERNATIVES), "int32"), tf.TensorSpec((None, MOST_ALTERNATIVES), "float32")
    specs = (tf.TensorSpec((None,), "float32"), *places)
    cuts = (cut(vectors, vectors.shape[-1]), cut(labels))
    found = tf.map_fn(score, cuts, parallel_iterations=1, fn_output_signature=specs)
    scores, ids, best = (
        tf.reshape(tf.reshape(values, (-1, *values.shape[2:]))[:count], (*tf.unstack(shape), *values.shape[2:]))
        for values in found
    )
    is_text = labels >= 0
    return (
        tf.where(is_text, scores, 0.0),
        tf.where(is_text[:, :, None], ids, -1),
        tf.where(is_text[:, :, None], best, 0.0),
    )
