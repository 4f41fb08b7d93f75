"""What the tasks on one stack share: texts or pairs of texts to one row of tokens, hidden states to vectors."""

from typing import Any

from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.preprocessing.rows import as_texts, require_count, require_same_length
from zoo.preprocessing.token_rows import added_count, pack
from zoo.tasks.task import Task

POOLINGS = ("first", "mean", "max", "last", "pooler")


class EncoderTask(Task):
    """A task on the hidden states of one stack.

    Args:
        backbone: A backbone with one stack.
        tokenizer: The tokenizer; None for use on token level.
        sequence_length: Most tokens of a row, special tokens included. Default the backbone's `max_length`.
        truncate: Whether longer texts are cut; otherwise they are an error that names the row.
        pair_separators: Number of end tokens between the texts of a pair: 1 in BERT, 2 in RoBERTa.

    Raises:
        ValueError: If the backbone has two stacks, or an argument is out of range.
    """

    architectures = ("encoder",)
    added_tokens = "special tokens"
    truncation_hint = "Shorten it, or make the task with truncate=True."

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: Any = None,
        *,
        sequence_length: int | None = None,
        truncate: bool = False,
        pair_separators: int = 1,
        **kwargs: Any,
    ):
        architecture = getattr(backbone.config, "architecture", type(backbone.config).__name__)
        if architecture not in self.architectures:
            raise ValueError(
                f"{type(self).__name__} needs a backbone with architecture {' or '.join(self.architectures)}, got "
                f"{architecture!r}."
            )
        super().__init__(backbone, tokenizer, **kwargs)
        if sequence_length is not None:
            require_count(sequence_length, "sequence_length", 1, backbone.config.max_length)
        self.sequence_length = sequence_length
        if not isinstance(truncate, bool):
            raise ValueError(f"truncate must be True or False, got {truncate!r}.")
        self.truncate = truncate
        self.pair_separators = require_count(pair_separators, "pair_separators")

    def train_pooler(self, used: bool) -> None:
        """Lets the backbone's pooler train where this task has a use for it, and only there.

        Args:
            used: Whether it has.
        """
        if getattr(self.backbone, "pooler", None) is not None:
            self.backbone.pooler.trainable = used

    def options(self) -> dict[str, Any]:
        return {
            "sequence_length": self.sequence_length,
            "truncate": self.truncate,
            "pair_separators": self.pair_separators,
        }

    @property
    def longest(self) -> int:
        return self.sequence_length or self.backbone.config.max_length

    @property
    def truncates(self) -> bool:
        return self.truncate

    @property
    def pad_id(self) -> int:
        """What fills rows behind their end: the padding token, or else any token, which the masks hide."""
        pad_id = None if self.tokenizer is None else self.tokenizer.pad_id
        return 0 if pad_id is None else pad_id

    def text_ids(self, texts: Any) -> Any:
        """Returns the ragged token ids of texts, `(batch, None)`; a graph function."""
        return self._require_tokenizer("Text input").tokenize(texts)

    def token_lengths(self, x: Any) -> Any:
        parts = x if isinstance(x, tuple) else (x,)
        added = added_count(len(parts), **self.special_tokens(), pair_separators=self.pair_separators)
        return sum(self.text_ids(part).row_lengths() for part in parts) + added

    def encode(self, x: Any, multiple: int = 1) -> dict[str, Any]:
        parts = x if isinstance(x, tuple) else (x,)
        return self.encode_ids([self.text_ids(part) for part in parts], multiple)

    def encode_ids(self, parts: list[Any], multiple: int = 1) -> dict[str, Any]:
        """Returns token-level inputs of one text or two, given as ragged ids; a graph function."""
        ids, segments = pack(
            parts,
            **self.special_tokens(),
            max_length=self.longest if self.truncate else None,
            pair_separators=self.pair_separators,
        )
        token_ids, mask = dense_to_multiple(ids, self.pad_id, multiple, self.longest)
        inputs = {"token_ids": token_ids, "padding_mask": mask}
        if self.backbone.config.embedding.num_segments > 1:
            inputs["segment_ids"], _ = dense_to_multiple(segments, 0, multiple, self.longest)
        return inputs

    def check_pairs(self, x: Any, name: str, counts: tuple[int, ...] = (2,)) -> tuple[Any, ...]:
        """Returns columns of texts that belong together as string tensors `(rows,)`.

        Args:
            x: A tuple of columns, or a list of tuples of texts, one tuple per row.
            name: Name of the argument.
            counts: How many texts a row may have.

        Raises:
            TypeError, ValueError: If `x` is neither, or a row is wrong or too long, naming the row.
        """
        allowed = " or ".join(map(str, counts))
        columns = x
        if isinstance(x, list) and x and all(isinstance(row, tuple) for row in x):
            for row, texts in enumerate(x):
                if len(texts) != len(x[0]):
                    raise ValueError(f"{name}[{row}] has {len(texts)} texts, {name}[0] has {len(x[0])}.")
            columns = tuple(list(column) for column in zip(*x, strict=True))
        elif isinstance(x, list) and not x:
            columns = ([],) * counts[0]
        if not isinstance(columns, tuple) or len(columns) not in counts:
            got = f"a tuple of {len(columns)}" if isinstance(columns, tuple) else type(x).__name__
            raise TypeError(
                f"{name} must be a tuple of {allowed} columns of texts, or a list of tuples of {allowed} texts; got "
                f"{got}."
            )
        names = [f"{name}[{index}]" for index in range(len(columns))]
        texts = [as_texts(column, column_name) for column, column_name in zip(columns, names, strict=True)]
        for other, other_name in zip(texts[1:], names[1:], strict=True):
            require_same_length(len(texts[0]), len(other), names[0], other_name, "text")
        return tuple(self.string_tensor(column) for column in texts)


def pool(hidden: Any, mask: Any, pooling: str, backbone: Any = None) -> Any:
    """Returns one vector per row, `(batch, hidden_dim)`.

    Args:
        hidden: `(batch, length, hidden_dim)`.
        mask: True where a token is real, `(batch, length)`.
        pooling: "first" token, "last" real token, "mean" or "max" over the real tokens, or the backbone's "pooler". The
            mean of a row without tokens is zero, and so is its maximum.
        backbone: The backbone, for "pooler".
    """
    if pooling == "pooler":
        return backbone.pool(hidden)
    if pooling == "first":
        return hidden[:, 0]
    real = ops.expand_dims(ops.cast(mask, "float32"), -1)
    if pooling == "last":
        last = ops.maximum(ops.sum(ops.cast(mask, "int32"), axis=1) - 1, 0)
        return ops.squeeze(ops.take_along_axis(hidden, last[:, None, None], axis=1), 1)
    states = ops.cast(hidden, "float32")
    if pooling == "mean":
        pooled = ops.sum(states * real, axis=1) / ops.maximum(ops.sum(real, axis=1), 1.0)
    else:
        has_tokens = ops.max(real, axis=1) > 0
        pooled = ops.where(has_tokens, ops.max(ops.where(real > 0, states, -1e30), axis=1), 0.0)
    return ops.cast(pooled, hidden.dtype)


def require_pooling(pooling: Any, backbone: Any) -> str:
    """Returns the kind of pooling that was asked for, "pooler" or "first" for None.

    Raises:
        ValueError: If there is no such kind, or it does not fit the backbone.
    """
    has_pooler = bool(getattr(backbone.config, "pooler", False))
    if pooling is None:
        return "pooler" if has_pooler else "last" if backbone.config.architecture == "decoder" else "first"
    if pooling not in POOLINGS:
        raise ValueError(f"pooling must be one of {POOLINGS} or None, got {pooling!r}.")
    if pooling == "pooler" and not has_pooler:
        raise ValueError("pooling='pooler' needs a backbone whose configuration has pooler=True.")
    return pooling


def take_positions(values: Any, positions: Any) -> Any:
    """Returns the vectors at some positions of each row, `(batch, count, dim)`.

    Args:
        values: `(batch, length, dim)`.
        positions: `(batch, count)`; those below 0 give the vector of position 0.
    """
    positions = ops.maximum(ops.cast(positions, "int32"), 0)
    return ops.take_along_axis(values, ops.expand_dims(positions, -1), axis=1)


def dense_to_multiple(ids: Any, pad_id: int, multiple: int, longest: int) -> tuple[Any, Any]:
    """Returns ids and their mask, `(batch, length)`, padded to a multiple, but by no more than up to `longest`."""
    import tensorflow as tf

    from zoo.tokenizers import to_dense

    token_ids, mask = to_dense(ids, pad_id, multiple)
    if multiple > 1:
        length = tf.maximum(tf.cast(longest, tf.int64), ids.bounding_shape(1))
        token_ids, mask = token_ids[:, :length], mask[:, :length]
    return token_ids, mask
