"""Base class of all tokenizers: texts to ids, positions and words, and ids to texts."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from zoo.columns import listed
from zoo.storage import find_reader
from zoo.tokenizers.distinct import Tokens
from zoo.tokenizers.eager_graphs import EagerGraphs
from zoo.tokenizers.offsets import to_bytes
from zoo.tokenizers.special_tokens import SpecialTokenSplitter
from zoo.tokenizers.stored import StoredTokenizer
from zoo.tokenizers.tensors import (
    as_ragged_ids,
    as_ragged_texts,
    as_text_tensor,
    import_tensorflow,
    join_rows,
    keep_values,
    repeat,
    row_ids,
)
from zoo.tokenizers.vocabulary import Vocabulary

if TYPE_CHECKING:
    import tensorflow as tf


class Tokenizer(Vocabulary, StoredTokenizer, kind=None):
    """Base class of tokenizers: text to token ids and back, with the same results eagerly and in graphs.

    The same operations run in Python, `tf.data`, `tf.function` and a SavedModel. From the sixteenth call on, eager
    calls run as one graph (`zoo.tokenizers.eager_graphs`). A subclass that needs values in Python tokenizes eagerly
    only, neither in `tf.data` nor in a SavedModel.

    A subclass names its `kind` in its class line, calls `super().__init__` and defines `_tokenize`,
    `_tokenize_with_offsets`, `_detokenize`, `_config`, `_files` and `_from_files`, and `trackables` if it holds
    resources, see below and in `StoredTokenizer`:

    ```python
    class WordTokenizer(Tokenizer, kind="word"):
        ...
    ```

    Args:
        vocabulary: All tokens, in the order of their ids, without repetition.
        pad_token, start_token, end_token, unknown_token, mask_token: The tokens in these roles, each in the vocabulary,
            or None if the tokenizer has no such token. One token may have several roles.
        special_tokens: Further control tokens, such as `"<|im_start|>"`. `detokenize` leaves out these and the tokens
            with a role, except the unknown token. `tokenize` reads them in a text only on request.
        added_tokens: Tokens that are found as a whole wherever they occur in a text.
        strip_left, strip_right: Those of the tokens that remove the white space before or after them in a text.
        single_words: Those of the tokens that are found only where no part of a word is next to them.
        adds_start, adds_end: Whether models whose files these are see the start token before a text, and the end token
            behind it. None where the files do not say so: each task then has a rule of its own.
        chat_format: The format of conversations: a `ChatFormat`, a name in `CHAT_FORMATS`, or None for none. Its
            control tokens become special tokens.

    Attributes:
        vocabulary_size: Number of tokens; ids are 0 to `vocabulary_size - 1`. `vocabulary_size()`, as in KerasHub, is
            the same.
        pad_id, start_id, end_id, unknown_id, mask_id: Ids of the special tokens, or `None`.
        special_tokens: All special tokens, those with a role included, in the order of their ids.
        chat_format: The `ChatFormat`, or None.

    Raises:
        ValueError: A token occurs twice, or a special token, or one of the chat format, is not in the vocabulary.
    """

    # how many of the last tokens can change the text of those before them, but for bytes of a character that is not
    # complete yet: a text that grows is shown up to there; a subclass whose texts only ever grow says 0
    unstable_tokens = 4
    # how a token spells a space; "" if none does
    space = ""

    def __init__(self, vocabulary: Sequence[str], **special: Any) -> None:
        super().__init__(vocabulary, **special)
        self._splitters: dict[tuple[str, ...], SpecialTokenSplitter] = {}
        self._constants: dict[str, Any] = {}
        self._graphs = EagerGraphs()

    def _copy(self) -> Tokenizer:
        copy = super()._copy()
        copy._graphs = EagerGraphs()  # those here are of this tokenizer
        return copy

    @classmethod
    def from_preset(cls, preset: str | os.PathLike[str]) -> Self:
        """Returns the tokenizer of a model. `Tokenizer.from_preset` returns a tokenizer of any class.

        Args:
            preset: See `Task.from_preset`; or a directory with a tokenizer alone, of the Transformers library or as
                `save` writes it.

        Raises:
            ValueError: If there is no such model, or it has no tokenizer of this class.
            FileNotFoundError: If files of the tokenizer are missing.

        Example:

        >>> Tokenizer.from_preset("path/to/gpt2").tokenize(["Hello world"]).to_list()
        [[15496, 995]]
        """
        reader, source = find_reader(preset, tokenizer=True)
        tokenizer = reader.load_tokenizer(source)
        if not isinstance(tokenizer, cls):
            found = "no tokenizer" if tokenizer is None else f"a {type(tokenizer).__name__}, not a {cls.__name__}"
            raise ValueError(f"{os.fspath(preset)} has {found}.")
        return tokenizer

    # What a subclass defines.

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """`tf.string` tensor of shape `(batch,)` to a `tf.RaggedTensor` of int32 ids, shape `(batch, None)`."""
        raise NotImplementedError

    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Tokens:
        """As `_tokenize`, with positions in characters."""
        raise NotImplementedError

    def _detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Ragged int32 ids `(batch, None)`, none of them silent, to a `tf.string` tensor `(batch,)`."""
        raise NotImplementedError

    def _spellings(self) -> list[bytes]:
        """What each token adds to a text behind others, by id; of silent tokens and the unknown one anything.

        A subclass whose tokens may be parts of characters defines it: here they spell nothing.
        """
        ids = np.arange(self.vocabulary_size)
        first = int(np.argmin(self._is_silent | (ids == self.unknown_id)))
        tf = import_tensorflow()
        with tf.init_scope(), tf.device("CPU:0"):  # values, also where a function is traced
            rows = tf.constant([[first, first], *([first, index] for index in ids.tolist())], tf.int32)
            [before] = self._detokenize(tf.RaggedTensor.from_tensor(rows[:1, :1])).numpy()
            texts = self._detokenize(tf.RaggedTensor.from_tensor(rows[1:])).numpy().tolist()
        replacement = "\ufffd".encode()
        return [
            text.removeprefix(before) if text.startswith(before) and replacement not in text else b"" for text in texts
        ]

    @property
    def trackables(self) -> list[Any]:
        """Resources that a SavedModel must track when one of its functions calls this tokenizer.

        ```python
        module = tf.Module()
        module.tokenizer_resources = tokenizer.trackables       # or, with Keras:
        for resource in tokenizer.trackables:
            export_archive.track(resource)
        ```
        """
        return []

    @property
    def of_targets(self) -> Tokenizer:
        """The tokenizer of texts that an encoder-decoder writes: itself, unless sources and targets differ."""
        return self

    # What users call.

    def tokenize(self, texts: Any, special_tokens: bool | Sequence[str] = False) -> tf.RaggedTensor | tf.Tensor:
        """Returns the token ids of texts. Adds no special tokens.

        Args:
            texts: `str`, `bytes`, a list, column or NumPy array of these, or a `tf.string` tensor of rank 0 or 1.
            special_tokens: Whether special tokens in a text are read as such: True for all of `self.special_tokens`, or
                a list of some. Keep False for text from outside, which could otherwise contain control tokens of a
                chat. The text between two special tokens is tokenized as a separate text.

        Returns:
            int32 ids: a `tf.RaggedTensor` of shape `(batch, None)`, or a dense tensor `(length,)` for a single text.

        Raises:
            TypeError: A row is not text. The message names the row.
            ValueError: The rank is above 1 or unknown, a text can't be encoded as UTF-8, or a name is not one of
                `self.special_tokens`.

        Example:

        >>> tokenizer.tokenize(["a small dog", ""]).to_list()
        [[9, 214, 31], []]
        >>> tokenizer.tokenize("a dog<|endoftext|>", special_tokens=True).numpy().tolist()
        [9, 31, 50256]
        """
        tensor = as_text_tensor(texts)
        ids = self.tokenize_parts(_as_rows(tensor), special_tokens=special_tokens).ids
        return ids.values if tensor.shape.rank == 0 else ids

    def tokenize_with_offsets(
        self, texts: Any, unit: str = "characters", special_tokens: bool | Sequence[str] = False
    ) -> tuple[Any, Any, Any]:
        """Returns the token ids of texts, and the position of each token in its text.

        Bytes that are not valid UTF-8 count as the characters by which Python's `decode("utf-8", "replace")` replaces
        them. A token may come from a part of a character (byte-level BPE, byte tokens); its positions then span the
        whole character. Positions of a token of byte-level BPE include the space that belongs to it. Those of
        SentencePiece do not where its steps split words ("words"): a space alone has the position of the character
        behind it.

        Args:
            texts: As for `tokenize`.
            unit: `"characters"`, to index a Python `str`, or `"bytes"`, to index its UTF-8.
            special_tokens: As for `tokenize`.

        Returns:
            `(ids, starts, ends)`: three ragged tensors of one shape, or three vectors for a single text. A token covers
            `starts` to `ends`, end exclusive.

        Raises:
            TypeError, ValueError: As for `tokenize`, and for another `unit`.

        Example:

        >>> ids, starts, ends = tokenizer.tokenize_with_offsets("a small dog")
        >>> ["a small dog"[start:end] for start, end in zip(starts.numpy(), ends.numpy())]
        ['a', 'small', 'dog']
        """
        if unit not in ("characters", "bytes"):
            raise ValueError(f"unit must be 'characters' or 'bytes', got {unit!r}.")
        tensor = as_text_tensor(texts)
        ids, starts, ends = self.tokenize_parts(_as_rows(tensor), special_tokens=special_tokens, unit=unit)
        if tensor.shape.rank == 0:
            return ids.values, starts, ends
        return ids, ids.with_values(starts), ids.with_values(ends)

    def __call__(self, texts: Any) -> tf.RaggedTensor | tf.Tensor:
        """Returns `tokenize(texts)`."""
        return self.tokenize(texts)

    def __repr__(self) -> str:
        source = "" if self.source is None else f", source={str(self.source)!r}"
        return f"{type(self).__name__}(vocabulary_size={self.vocabulary_size}{source})"

    def lost_characters(self, texts: Sequence[str]) -> np.ndarray:
        """Returns how many characters of each text its tokens do not tell.

        These are the characters of unknown tokens, and those that no token covers, other than white space. What a
        normalization replaces, such as upper case, does not count.

        Args:
            texts: The texts.

        Returns:
            Integers, `(texts,)`.

        Raises:
            TypeError, ValueError: As for `tokenize`.

        Example:

        >>> tokenizer.lost_characters(["a small dog", "a small \u72ac"])
        array([0, 1])
        """
        if not len(texts):
            return np.zeros(0, "int64")
        texts = list(listed(texts))
        rows = [part.to_list() for part in self.tokenize_with_offsets(texts)]
        lost = []
        for text, ids, starts, ends in zip(texts, *rows, strict=True):
            is_unknown = np.array(ids, "int64") == (-1 if self.unknown_id is None else self.unknown_id)
            told, untold = (np.zeros(len(text) + 1, "int64") for _ in range(2))
            for covered, which in ((told, ~is_unknown), (untold, is_unknown)):
                np.add.at(covered, np.array(starts, "int64")[which], 1)
                np.add.at(covered, np.array(ends, "int64")[which], -1)
            is_lost = (np.cumsum(told)[:-1] == 0) | (np.cumsum(untold)[:-1] > 0)
            lost.append(sum(not text[place].isspace() for place in np.flatnonzero(is_lost)))
        return np.array(lost, "int64")

    def tokenize_words(self, words: Any) -> tuple[Any, Any]:
        """Tokenizes texts that are already split into words, and returns the word of each token.

        Each word is tokenized separately, as in the text in which the words are joined by spaces.

        Args:
            words: A ragged `tf.string` tensor `(batch, None)` or a list of lists of words.

        Returns:
            `(ids, word_ids)`: ragged int32 tensors of one shape. `word_ids` is the position in its row of the word
            that each token comes from. A word without tokens (empty, or only controls that are dropped) does not
            occur in it.

        Raises:
            TypeError: A word is not text. The message names row and word.
            ValueError: The words are not ragged of rank 2, or one can't be encoded as UTF-8.

        Example:

        >>> ids, word_ids = tokenizer.tokenize_words([["An", "unaffordable", "cafe"]])
        >>> word_ids.to_list()
        [[0, 1, 1, 1, 1, 2]]
        """
        words = as_ragged_texts(words)
        parts = self._graphs.run(Tokenizer._tokens_of_words, self, (), (words.values, words.row_splits))
        values, word_ids, row_splits = parts
        ids = import_tensorflow().RaggedTensor.from_row_splits(values, row_splits, validate=False)
        return ids, ids.with_values(word_ids)

    def _tokens_of_words(self, words: tf.Tensor, row_splits: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Flat ids, for each the position in its row of its word, and where the rows begin."""
        tf = import_tensorflow()
        ragged = tf.RaggedTensor.from_row_splits(words, row_splits, validate=False)
        lengths = tf.cast(ragged.row_lengths(), tf.int32)
        positions = tf.ragged.range(lengths, row_splits_dtype=row_splits.dtype).values
        if self._words_need_space:
            words = tf.where((positions > 0) & (words != ""), tf.strings.join([" ", words]), words)
        values, splits_of_words = self._find_tokens(self._found_in_texts(False), None, words)
        word_ids = repeat(positions, splits_of_words[1:] - splits_of_words[:-1])
        return values, word_ids, tf.gather(splits_of_words, row_splits)

    def tokenize_parts(
        self,
        parts: tf.Tensor,
        begins: tf.Tensor | None = None,
        special_tokens: bool | Sequence[str] = False,
        unit: str | None = None,
    ) -> Tokens:
        """Tokenizes the parts of texts between special tokens.

        Args:
            parts: `tf.string` `(batch,)`.
            begins: Which parts begin their text, bool `(batch,)`; None for all.
            special_tokens: As for `tokenize`.
            unit: Unit of the positions of tokens in their part, `"characters"` or `"bytes"`; None for no positions.
        """
        tensors = (parts,) if begins is None else (parts, begins)
        choices = (self._found_in_texts(special_tokens), unit)
        values, row_splits, *positions = self._graphs.run(Tokenizer._find_tokens, self, choices, tensors)
        ids = import_tensorflow().RaggedTensor.from_row_splits(values, row_splits, validate=False)
        return Tokens(ids, *positions)

    @property
    def continues_word(self) -> np.ndarray | None:
        """Which tokens go on with a word, bool `(vocabulary_size,)`; None if tokens do not say it."""
        return None

    @functools.cached_property
    def is_space(self) -> np.ndarray:
        """Which tokens are spaces alone, bool `(vocabulary_size,)`: they may stand for a space that a text lacks."""
        return np.array([bool(self.space) and not token.strip(self.space) for token in self._vocabulary])

    def _find_tokens(
        self, found: tuple[str, ...], unit: str | None, parts: tf.Tensor, begins: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, ...]:
        """Flat ids, their row splits and, with a unit, starts and ends; `found` are tokens that texts may spell."""

        def tokenize(parts: tf.Tensor, begins: tf.Tensor) -> Tokens:
            return self._tokenize_parts(parts, begins, with_offsets=unit is not None)

        if begins is None:
            tf = import_tensorflow()
            begins = tf.ones_like(parts, tf.bool)
        tokens = self._splitter(found).tokenize(parts, begins, tokenize) if found else tokenize(parts, begins)
        positions = () if unit is None else (tokens.starts, tokens.ends)
        if unit == "bytes":
            positions = to_bytes(parts, tokens.ids, *positions)
        return tokens.ids.values, tokens.ids.row_splits, *positions

    def _tokenize_parts(self, parts: tf.Tensor, begins: tf.Tensor, with_offsets: bool) -> Tokens:
        """Tokenizes what no added or special token is found in; a subclass may look at `begins`."""
        return self._tokenize_with_offsets(parts) if with_offsets else Tokens(self._tokenize(parts))

    @property
    def _words_need_space(self) -> bool:
        """Whether a word inside a text has tokens of its own, with the space before it."""
        return False

    def _found_in_texts(self, special_tokens: bool | Sequence[str]) -> tuple[str, ...]:
        """Added tokens and those special ones that are asked for."""
        if isinstance(special_tokens, (str, bytes)):
            raise TypeError(f"special_tokens must be a bool or a list of tokens, got {special_tokens!r}.")
        if isinstance(special_tokens, (bool, np.bool_)):
            names = self.special_tokens if special_tokens else []
        else:
            names = list(special_tokens)
            for name in names:
                if name not in self.special_tokens:
                    raise ValueError(
                        f"special_tokens: {name!r} is no special token of this tokenizer, which has "
                        f"{self.special_tokens}."
                    )
        return tuple(sorted({*self._added, *names}))

    def _splitter(self, found: tuple[str, ...]) -> SpecialTokenSplitter:
        if found not in self._splitters:
            ids = {name: self._ids[name] for name in found}
            self._splitters[found] = SpecialTokenSplitter(ids, self.strip_left, self.strip_right, self.single_words)
        return self._splitters[found]

    def detokenize(self, ids: Any) -> tf.Tensor:
        """Joins token ids to texts.

        The first end token of a row and everything after it are dropped, and all padding and start tokens. If one token
        is both start and end, as in GPT-2, it is a start token at the first position of a row. Models with a padded
        vocabulary can produce ids outside the vocabulary. They count as the unknown token, or are dropped if the
        tokenizer has none.

        Args:
            ids: Integers: a ragged tensor of rank 2, a dense tensor or array of rank 1 or 2, a list of ids (an empty
                list is one empty row) or a list of rows.

        Returns:
            `tf.string` tensor: shape `(batch,)`, or a scalar if `ids` has rank 1.

        Raises:
            TypeError: The ids are not integers.
            ValueError: The rank is neither 1 nor 2.

        Example:

        >>> tokenizer.detokenize([[9, 214, 31, tokenizer.end_id, 9]]).numpy()
        array([b'a small dog'], dtype=object)
        """
        ragged, is_single = as_ragged_ids(ids)
        texts = self._graphs.run(Tokenizer._join_tokens, self, (), (ragged.values, ragged.row_splits))
        return texts[0] if is_single else texts

    def _join_tokens(self, values: tf.Tensor, row_splits: tf.Tensor) -> tf.Tensor:
        ids = import_tensorflow().RaggedTensor.from_row_splits(values, row_splits, validate=False)
        return self._detokenize(self._drop_special_tokens(ids))

    def _drop_special_tokens(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Ragged ids without silent tokens and without what follows an end."""
        tf = import_tensorflow()
        values = ids.values
        inside = (values >= 0) & (values < self.vocabulary_size)
        values = tf.where(inside, values, 0 if self.unknown_id is None else self.unknown_id)
        keep = ~self.are_silent(values)
        if self.unknown_id is None:
            keep &= inside
        if self.end_id is not None:
            is_end = ids.values == self.end_id
            starts = ids.row_starts()
            if self.start_id == self.end_id:
                is_end &= tf.range(tf.size(values, out_type=starts.dtype)) != tf.gather(starts, row_ids(ids.row_splits))
            # Ends seen before each position of the whole batch, less those seen before the position's row.
            seen = tf.concat([[0], tf.cumsum(tf.cast(is_end, tf.int32))], axis=0)
            seen_before_row = tf.gather(tf.gather(seen, starts), row_ids(ids.row_splits))
            keep &= seen[1:] == seen_before_row
        return keep_values(ids.with_values(values), keep)

    @functools.cached_property
    def spellings(self) -> list[bytes]:
        """What each token adds to a text behind others, by id; empty for control tokens and the unknown token.

        The bytes of a token need not be valid UTF-8: several tokens may spell one character.
        """
        spellings = self._spellings()
        silent = {self.unknown_id, *np.flatnonzero(self._is_silent).tolist()}
        return [b"" if index in silent else spelling for index, spelling in enumerate(spellings)]

    def are_silent(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns which ids are control tokens, which `detokenize` leaves out: bool of the shape of `ids`."""
        tf = import_tensorflow()
        known = tf.clip_by_value(ids, 0, self.vocabulary_size - 1)
        return tf.gather(tf.constant(self._is_silent), known) & (known == ids)

    def _join(
        self, ids: tf.RaggedTensor, first_texts: Sequence[str | bytes], later_texts: Sequence[str | bytes]
    ) -> tf.Tensor:
        """Joins what each token becomes as the first token of its row and as a later one."""
        tf = import_tensorflow()
        starts = tf.boolean_mask(ids.row_starts(), ids.row_lengths() > 0)
        is_first = tf.scatter_nd(starts[:, tf.newaxis], tf.ones_like(starts), [tf.size(ids.values, out_type=tf.int64)])
        texts = tf.where(
            is_first > 0,
            tf.gather(self._constant("first_texts", first_texts), ids.values),
            tf.gather(self._constant("later_texts", later_texts), ids.values),
        )
        return join_rows(ids.with_values(texts))

    def _constant(self, name: str, value: Any) -> tf.Tensor:
        """A large constant, made once. (A SavedModel takes what its functions have captured.)"""
        if name not in self._constants:
            tf = import_tensorflow()
            with tf.init_scope(), tf.device("CPU:0"):
                self._constants[name] = tf.constant(value)
        return self._constants[name]


def _as_rows(texts: tf.Tensor) -> tf.Tensor:
    """A batch of the one text of a scalar."""
    return import_tensorflow().expand_dims(texts, 0) if texts.shape.rank == 0 else texts
