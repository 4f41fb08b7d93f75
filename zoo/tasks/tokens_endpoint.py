"""The endpoints of a task on one stack that say the tokens of texts, and that take tokens in place of texts."""

from collections.abc import Callable
from typing import Any

from zoo.export import Endpoint, Field
from zoo.preprocessing.token_rows import checked_lengths
from zoo.tasks.token_fields import LENGTHS, TOKENS, padded, ragged


def tokens_endpoint(task: Any, texts: tuple[Field, ...], preprocessor: Any) -> Endpoint:
    """Returns the endpoint `tokens`: texts, or the texts of pairs, to the ids that the model reads.

    They are those of `serve`: with special tokens, a default prompt and both texts of a pair, cut where `serve` cuts.
    Those of a text in several windows stand one window after the other.

    Args:
        task: The task.
        texts: The inputs.
        preprocessor: What makes rows of them.

    Example:

    >>> exported.endpoints["tokens"](texts=["where is rome"])
    {'token_ids': [[101, 2073, 2003, 4199, 102]], 'lengths': [5]}
    """

    def tokens(*given: Any) -> dict[str, Any]:
        import tensorflow as tf

        inputs, row = preprocessor.inference_rows(given if len(given) > 1 else given[0])
        ids = tf.ragged.boolean_mask(inputs["token_ids"], inputs["padding_mask"])
        if row is not None:
            lengths = tf.math.unsorted_segment_sum(ids.row_lengths(), row, tf.shape(given[0])[0])
            ids = tf.RaggedTensor.from_row_lengths(ids.flat_values, lengths)
        return padded(ids)

    return Endpoint(tokens, texts, (TOKENS, LENGTHS), "Tokens that the model reads.", _facts(task))


def embed_tokens_endpoint(task: Any, vectors: Callable[[dict[str, Any]], Any], output: Field) -> Endpoint:
    """Returns the endpoint `embed_tokens`: the ids of texts without special tokens, which it adds, to their vectors.

    Rows that are too long are cut where `serve` cuts texts, and otherwise an `InvalidArgumentError`.

    Args:
        task: The task.
        vectors: Function from token-level inputs to vectors.
        output: The vectors.
    """

    def embed_tokens(token_ids: Any) -> Any:
        inputs = task.preprocessor.inputs(ragged(token_ids))
        return vectors(checked_lengths(inputs, task.preprocessor.sequence_length))

    return Endpoint(embed_tokens, (TOKENS,), (output,), "Embeds texts by their tokens.", _facts(task))


def _facts(task: Any) -> dict[str, Any]:
    """What a client of token ids needs to know."""
    return {
        "vocabulary_size": task.backbone.config.vocabulary_size,
        "max_length": task.longest,
        **task.preprocessor.special_tokens(),
    }
