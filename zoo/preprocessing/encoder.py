"""What the preprocessors of tasks on one stack share: a text, or a pair of texts, as one row of tokens."""

from typing import Any, Self

from zoo.preprocessing.preprocessor import Preprocessor
from zoo.preprocessing.rows import as_texts, require_same_length, shorten, string_tensor
from zoo.preprocessing.token_rows import added_count, pack, to_dense


class EncoderPreprocessor(Preprocessor):
    """Texts or pairs of texts as rows `[start] first [end] second [end]`.

    Args:
        tokenizer: The tokenizer; None for use on token level.
        sequence_length, truncate: See `Preprocessor`. The longer text of a pair is cut first.
        segments: Whether inputs have `segment_ids`, 0 in the first text and 1 in the second. None: if the backbone has
            more than one segment; a task sets it.
    """

    # end tokens between the texts of a pair
    pair_separators = 1

    def __init__(
        self,
        tokenizer: Any = None,
        *,
        sequence_length: int | None = None,
        truncate: bool = False,
        segments: bool | None = None,
    ) -> None:
        super().__init__(tokenizer, sequence_length=sequence_length, truncate=truncate)
        self.segments = segments

    def for_backbone(self, config: Any) -> Self:
        has_segments = config.embedding.num_segments > 1
        if self.segments and not has_segments:
            raise ValueError("segments must be False for this backbone, which has no segment embedding; got True.")
        adapted = super().for_backbone(config)
        return adapted if self.segments is not None else adapted.replace(segments=has_segments)

    def tokens(self, x: Any) -> Any:
        """Returns the ragged ids of each text, `(batch, None)`: a tuple for the texts of a pair."""
        tokenize = self.require_tokenizer("Text input").tokenize
        return tuple(map(tokenize, x)) if isinstance(x, tuple) else tokenize(x)

    def token_counts(self, tokens: Any) -> Any:
        parts = tokens if isinstance(tokens, tuple) else (tokens,)
        added = added_count(len(parts), **self.special_tokens(), pair_separators=self.pair_separators)
        return sum(part.row_lengths() for part in parts) + added

    def inputs(self, tokens: Any) -> dict[str, Any]:
        ids, segments = self.packed(tokens)
        token_ids, mask = to_dense(ids, self.pad_id, self.sequence_length)
        inputs = {"token_ids": token_ids, "padding_mask": mask}
        if self.segments:
            inputs["segment_ids"], _ = to_dense(segments, 0, self.sequence_length)
        return inputs

    def packed(self, tokens: Any, special: dict[str, int | None] | None = None) -> tuple[Any, Any]:
        """Returns ragged `(token_ids, segment_ids)` with the special tokens, truncated on request.

        Args:
            tokens: Ragged ids of one text, or a tuple of two.
            special: The tokens to add. Default `special_tokens()`.
        """
        return pack(
            tokens if isinstance(tokens, tuple) else (tokens,),
            **(self.special_tokens() if special is None else special),
            max_length=self.sequence_length if self.truncate else None,
            pair_separators=self.pair_separators,
        )


def check_groups(x: Any, name: str, counts: tuple[int, ...] = (2,)) -> tuple[Any, ...]:
    """Returns columns of texts that belong together as string tensors `(rows,)`.

    Args:
        x: A tuple of columns, or a list of tuples of texts, one tuple per row.
        name: Name of the argument.
        counts: How many texts a row may have.

    Raises:
        TypeError, ValueError: If `x` is neither, or a row is wrong, naming the row.
    """
    allowed = f"{counts[0]} to {counts[-1]}" if len(counts) > 2 else " or ".join(map(str, counts))
    columns = x
    if isinstance(x, list) and x and all(isinstance(row, tuple) for row in x):
        for row, texts in enumerate(x):
            if len(texts) != len(x[0]):
                raise ValueError(f"{name}[{row}] must hold {len(x[0])} texts, as {name}[0] does, got {len(texts)}.")
        columns = tuple(list(column) for column in zip(*x, strict=True))
    elif isinstance(x, list) and not x:
        columns = ([],) * counts[0]
    if not isinstance(columns, tuple) or len(columns) not in counts:
        got = f"a tuple of {len(columns)}" if isinstance(columns, tuple) else type(x).__name__
        if isinstance(x, list):
            row = next(row for row, texts in enumerate(x) if not isinstance(texts, tuple) or len(texts) not in counts)
            got = f"{name}[{row}] = {shorten(x[row])}"
        raise TypeError(
            f"{name} must be a tuple of {allowed} columns of texts, or a list of tuples of {allowed} texts; got {got}."
        )
    names = [f"{name}[{index}]" for index in range(len(columns))]
    texts = [as_texts(column, column_name) for column, column_name in zip(columns, names, strict=True)]
    for other, other_name in zip(texts[1:], names[1:], strict=True):
        require_same_length(len(texts[0]), len(other), names[0], other_name, "text")
    return tuple(string_tensor(column) for column in texts)
