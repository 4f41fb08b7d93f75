"""Attention as an endpoint of an export: tokens, and the weights between them."""

from collections.abc import Callable
from typing import Any

from keras import ops

from zoo.export import Endpoint, Field
from zoo.inspect.row import token_names
from zoo.preprocessing.token_rows import checked_lengths, require_all

# Longer texts are refused: answers grow with the square of the length.
MOST_TOKENS = 128
# Rows and columns of the weights of two stacks.
_SIZES = {
    "encoder": ("source_length", "source_length"),
    "decoder": ("length", "length"),
    "cross": ("length", "source_length"),
}
_LENGTHS = Field("lengths", ("batch",), "int32", "number of tokens of each text")


def attention_endpoint(task: Any, texts: tuple[Field, ...], tokens: Callable[..., Any]) -> Endpoint:
    """Returns the endpoint `attention` of a task on one stack.

    It returns for texts "tokens", strings `(batch, length)`, "lengths", int32 `(batch,)`, and "attention", float32
    `(batch, layers, length, length)`: how much each token attends to each other, the mean over heads. Texts are
    padded with "" and 0. A text of more than `MOST_TOKENS` tokens is an `InvalidArgumentError`.

    Args:
        task: The task.
        texts: The inputs: texts, or the texts of pairs.
        tokens: Function from the tensors of `texts` to the arguments of `task.preprocessor.inputs`.

    Raises:
        ValueError: If the backbone has two stacks, or no attention.
    """
    if len(task.backbone.attention_kinds) != 1:
        raise ValueError(
            f"attention must be False for a {type(task).__name__} whose backbone has not one stack with attention, got "
            "True."
        )

    names = _names(task.tokenizer)

    def attention(*given: Any) -> dict[str, Any]:
        inputs = task.preprocessor.inputs(tokens(*given))
        inputs = {name: inputs[name] for name in ("token_ids", "padding_mask", "segment_ids") if name in inputs}
        inputs = checked_lengths(inputs, task.longest)
        mask = inputs["padding_mask"]
        lengths = _lengths(mask)
        (blocks,) = task.backbone.attention_weights(inputs).values()
        return {
            "tokens": _named(inputs["token_ids"], mask, names),
            "lengths": lengths,
            "attention": _mean_over_heads(blocks, mask),
        }

    outputs = (
        Field("tokens", ("batch", "length"), "string", "the tokens of each text"),
        _LENGTHS,
        _weights("attention", "length", "length"),
    )
    return Endpoint(attention, texts, outputs, "What each token attends to.")


def seq2seq_attention_endpoint(task: Any) -> Endpoint:
    """Returns the endpoint `attention(sources, targets)` of a task on two stacks.

    The tokens are "source_tokens", "given_tokens", which the decoder is given, and "written_tokens", which it is to
    write there; "source_lengths" and "written_lengths" say how many. The weights are those that the backbone has, as
    for `attention_endpoint`: "encoder", "decoder" and "cross", the last from written tokens to those of the source.

    Args:
        task: The task.

    Raises:
        ValueError: If the backbone has no attention.
    """
    kinds = task.backbone.attention_kinds
    if not kinds:
        raise ValueError("attention must be False for a backbone without attention, got True.")
    source_names, target_names = _names(task.tokenizer), _names(task.tokenizer.of_targets)

    def attention(sources: Any, targets: Any) -> dict[str, Any]:
        inputs, labels, _ = task.preprocessor.training_batch(sources, targets)
        inputs = checked_lengths(inputs, task.longest)
        source, written = inputs["encoder_padding_mask"], inputs["decoder_padding_mask"]
        source_lengths, written_lengths = _lengths(source), _lengths(written)
        blocks = task.backbone.attention_weights(inputs)
        return {
            "source_tokens": _named(inputs["encoder_token_ids"], source, source_names),
            "source_lengths": source_lengths,
            "given_tokens": _named(inputs["decoder_token_ids"], written, target_names),
            "written_tokens": _named(labels, written, target_names),
            "written_lengths": written_lengths,
            **{kind: _mean_over_heads(some, source if kind == "encoder" else written) for kind, some in blocks.items()},
        }

    texts = (
        Field("sources", ("batch",), "string", "source texts"),
        Field("targets", ("batch",), "string", "a target text for each source"),
    )
    outputs = (
        Field("source_tokens", ("batch", "source_length"), "string", "the tokens of each source"),
        Field("source_lengths", ("batch",), "int32", "their number"),
        Field("given_tokens", ("batch", "length"), "string", "the tokens that the decoder is given"),
        Field("written_tokens", ("batch", "length"), "string", "the tokens that follow each of them"),
        Field("written_lengths", ("batch",), "int32", "their number"),
    )
    weights = tuple(_weights(kind, *_SIZES[kind]) for kind in kinds)
    return Endpoint(attention, texts, (*outputs, *weights), "What each token attends to.")


def _weights(name: str, queries: str, keys: str) -> Field:
    return Field(name, ("batch", "layers", queries, keys), "float32", "attention weights, the mean over heads")


def _mean_over_heads(blocks: list[Any], mask: Any) -> Any:
    """`(batch, layers, queries, keys)` of one `(batch, heads, queries, keys)` per block; 0 for queries of padding."""
    weights = ops.stack([ops.mean(ops.cast(block, "float32"), axis=1) for block in blocks], axis=1)
    return weights * ops.cast(mask, "float32")[:, None, :, None]


def _lengths(mask: Any) -> Any:
    lengths = ops.sum(ops.cast(mask, "int32"), axis=1)
    message = f"A text has more tokens than attention is shown for ({MOST_TOKENS}); rows and their tokens:"
    return require_all(lengths <= MOST_TOKENS, lengths, message)


def _names(tokenizer: Any) -> list[bytes]:
    """Tokens by id: their texts, or what the vocabulary calls those that have none of their own; eager."""
    return [name.encode() for name in token_names(tokenizer, range(len(tokenizer.get_vocabulary())))]


def _named(token_ids: Any, mask: Any, names: list[bytes]) -> Any:
    import tensorflow as tf

    # embeddings may have more rows than the vocabulary
    known = tf.minimum(token_ids, len(names))
    return tf.where(mask, tf.gather(tf.constant([*names, b""]), known), b"")
