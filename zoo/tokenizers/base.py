"""What all tokenizers share: special tokens, conversion of inputs, dropping of special tokens, files, registry."""

from __future__ import annotations

import base64
import inspect
import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from zoo.tokenizers.distinct import Tokens
from zoo.tokenizers.offsets import to_bytes
from zoo.tokenizers.special_tokens import SpecialTokenSplitter
from zoo.tokenizers.storage import CONFIG_FILE, read_tokenizer, write_tokenizer
from zoo.tokenizers.tensors import as_ragged_ids, as_ragged_texts, as_text_tensor, import_tensorflow

_KINDS: dict[str, type[Tokenizer]] = {}


class Tokenizer:
    """Text to token ids and back, by the same operations eagerly, in `tf.data`, in `tf.function` and in a SavedModel.

    A subclass names its `kind` in its class line, calls `super().__init__` and defines `_tokenize`,
    `_tokenize_with_offsets`, `_detokenize`, `_config`, `_files`, `_from_files` and, where it holds resources,
    `trackables`:

    ```python
    class WordTokenizer(Tokenizer, kind="word"):
        ...
    ```

    Args:
        vocabulary: all tokens, in the order of their ids. No token occurs twice.
        pad_token, start_token, end_token, unknown_token, mask_token: the tokens that play these roles, each in the
            vocabulary, or `None` where the tokenizer has no such token. One token may play several roles.
        special_tokens: further control tokens, such as `"<|im_start|>"`. `detokenize` leaves out these and all above
            but the unknown token; text that spells them becomes them only on request.
        added_tokens: tokens that are found as a whole wherever a text spells them.
        strip_left, strip_right: those of the tokens that, found in a text, swallow the white space before or after.

    Attributes:
        vocabulary_size: number of tokens; ids are 0 to `vocabulary_size - 1`.
        pad_id, start_id, end_id, unknown_id, mask_id: ids of the special tokens, or `None`.
        special_tokens: all special tokens, those with a role included, in the order of their ids.

    Raises:
        ValueError: a token occurs twice, or a special token is not in the vocabulary.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls, kind: str, **kwargs):
        super().__init_subclass__(**kwargs)
        if kind in _KINDS:
            raise ValueError(f"kind={kind!r} is taken by {_KINDS[kind].__qualname__}.")
        cls.kind = kind
        _KINDS[kind] = cls

    def __init__(
        self,
        vocabulary: Sequence[str],
        *,
        pad_token: str | None = None,
        start_token: str | None = None,
        end_token: str | None = None,
        unknown_token: str | None = None,
        mask_token: str | None = None,
        special_tokens: Sequence[str] = (),
        added_tokens: Sequence[str] = (),
        strip_left: Sequence[str] = (),
        strip_right: Sequence[str] = (),
    ):
        self._vocabulary = list(vocabulary)
        self._ids = {token: index for index, token in enumerate(self._vocabulary)}
        if len(self._ids) != len(self._vocabulary):
            seen = set()
            twice = next(token for token in self._vocabulary if token in seen or seen.add(token))
            raise ValueError(f"The vocabulary holds the token {twice!r} more than once.")
        self.vocabulary_size = len(self._vocabulary)
        self.pad_id = self._special_id("pad_token", pad_token)
        self.start_id = self._special_id("start_token", start_token)
        self.end_id = self._special_id("end_token", end_token)
        self.unknown_id = self._special_id("unknown_token", unknown_token)
        self.mask_id = self._special_id("mask_token", mask_token)
        # the unknown token says that something was there, so it stays visible
        further = {self._special_id("special_tokens", token) for token in special_tokens} - {self.unknown_id}
        silent = {self.pad_id, self.start_id, self.end_id, self.mask_id, *further} - {None}
        self._is_silent = np.zeros(self.vocabulary_size, dtype=bool)
        self._is_silent[sorted(silent)] = True
        self.special_tokens = [self._vocabulary[index] for index in sorted(silent | {self.unknown_id} - {None})]
        self._further_special = [self._vocabulary[index] for index in sorted(further)]
        self._added = {token: self._special_id("added_tokens", token) for token in added_tokens}
        self._strip_left, self._strip_right = tuple(strip_left), tuple(strip_right)
        for role, tokens in (("strip_left", strip_left), ("strip_right", strip_right)):
            for token in tokens:
                if token not in self._added and token not in self.special_tokens:
                    raise ValueError(f"{role}: {token!r} is neither a special nor an added token.")
        self._splitters: dict[tuple[str, ...], SpecialTokenSplitter] = {}
        self._constants: dict[str, Any] = {}

    def _special_id(self, role: str, token: str | None) -> int | None:
        if token is not None and token not in self._ids:
            raise ValueError(f"{role}={token!r} is not in the vocabulary of {self.vocabulary_size} tokens.")
        return None if token is None else self._ids[token]

    def _special_config(self) -> dict[str, Any]:
        """The arguments of this class's constructor but for the vocabulary."""
        roles = ("pad", "start", "end", "unknown", "mask")
        ids = {f"{role}_token": getattr(self, f"{role}_id") for role in roles}
        return {
            **{role: None if index is None else self._vocabulary[index] for role, index in ids.items()},
            "special_tokens": list(self._further_special),
            "added_tokens": list(self._added),
            "strip_left": list(self._strip_left),
            "strip_right": list(self._strip_right),
        }

    # What a subclass defines.

    def _tokenize(self, texts):
        """`tf.string` tensor of shape `(batch,)` to a `tf.RaggedTensor` of int32 ids, shape `(batch, None)`."""
        raise NotImplementedError

    def _tokenize_with_offsets(self, texts) -> Tokens:
        """As `_tokenize`, with positions in characters."""
        raise NotImplementedError

    def _detokenize(self, ids):
        """Ragged int32 ids `(batch, None)`, none of them silent, to a `tf.string` tensor `(batch,)`."""
        raise NotImplementedError

    def _config(self) -> dict[str, Any]:
        """Keyword arguments that, with `_files`, make this tokenizer again; what JSON can hold."""
        raise NotImplementedError

    def _files(self) -> dict[str, bytes]:
        """Content of each vocabulary file by its name."""
        raise NotImplementedError

    @classmethod
    def _from_files(cls, files: dict[str, bytes], config: dict[str, Any]) -> Tokenizer:
        raise NotImplementedError

    @property
    def trackables(self) -> list:
        """Resources that a SavedModel must track when one of its functions calls this tokenizer.

        ```python
        module = tf.Module()
        module.tokenizer_resources = tokenizer.trackables       # or, with Keras:
        for resource in tokenizer.trackables:
            export_archive.track(resource)
        ```
        """
        return []

    # What users call.

    def tokenize(self, texts: Any, special_tokens: bool | Sequence[str] = False):
        """Splits texts into token ids. Adds no special tokens.

        Args:
            texts: `str`, `bytes`, a list, tuple or NumPy array of these, or a `tf.string` tensor of rank 0 or 1.
            special_tokens: whether text that spells a special token becomes that token: `True` for all of
                `self.special_tokens`, or the names of some. Leave it `False` for text of strangers, who could
                otherwise write into a chat what only the program should. What stands between two such tokens is
                tokenized like a text of its own.

        Returns:
            int32 ids: a `tf.RaggedTensor` of shape `(batch, None)`, or a dense tensor `(length,)` for a single text.

        Raises:
            TypeError: something is not text. The message names the row.
            ValueError: the rank is above 1 or unknown, a text can't be encoded as UTF-8, or a name is not one of
                `self.special_tokens`.

        Example:
            >>> tokenizer.tokenize(["a small dog", ""]).to_list()
            [[9, 214, 31], []]
            >>> tokenizer.tokenize("a dog<|endoftext|>", special_tokens=True).numpy().tolist()
            [9, 31, 50256]
        """
        tf = import_tensorflow()
        tensor = as_text_tensor(texts)
        splitter = self._splitter(special_tokens)
        # integers would go to a GPU and come back for each operation on strings
        with tf.device("CPU:0"):
            rows = tensor[None] if tensor.shape.rank == 0 else tensor
            ids = self._tokenize(rows) if splitter is None else splitter.tokenize(rows, self._tokenize)
        return ids.values if tensor.shape.rank == 0 else ids

    def tokenize_with_offsets(
        self, texts: Any, unit: str = "characters", special_tokens: bool | Sequence[str] = False
    ) -> tuple[Any, Any, Any]:
        """Splits texts into token ids and says where in its text each token comes from.

        Bytes that are not valid UTF-8 count as the characters by which Python's `decode("utf-8", "replace")` replaces
        them. A token may come from a part of a character (byte-level BPE, byte tokens); its positions then span the
        whole character. Positions of a token of byte-level BPE include the space that belongs to it.

        Args:
            texts: as for `tokenize`.
            unit: `"characters"`, to index a Python `str`, or `"bytes"`, to index its UTF-8.
            special_tokens: as for `tokenize`.

        Returns:
            `(ids, starts, ends)`: three ragged tensors of one shape, or three vectors for a single text. `starts` is
            the position of the first character of the token, `ends` the one after its last.

        Raises:
            TypeError, ValueError: as for `tokenize`, and for another `unit`.

        Example:
            >>> ids, starts, ends = tokenizer.tokenize_with_offsets("a small dog")
            >>> ["a small dog"[start:end] for start, end in zip(starts.numpy(), ends.numpy())]
            ['a', 'small', 'dog']
        """
        if unit not in ("characters", "bytes"):
            raise ValueError(f"unit={unit!r} must be 'characters' or 'bytes'.")
        tf = import_tensorflow()
        tensor = as_text_tensor(texts)
        splitter = self._splitter(special_tokens)
        with tf.device("CPU:0"):
            rows = tensor[None] if tensor.shape.rank == 0 else tensor
            if splitter is None:
                tokens = self._tokenize_with_offsets(rows)
            else:
                tokens = splitter.tokenize_with_offsets(rows, self._tokenize_with_offsets)
            starts, ends = tokens.starts, tokens.ends
            if unit == "bytes":
                starts, ends = to_bytes(rows, tokens.ids, starts, ends)
        if tensor.shape.rank == 0:
            return tokens.ids.values, starts, ends
        return tokens.ids, tokens.ids.with_values(starts), tokens.ids.with_values(ends)

    def tokenize_words(self, words: Any) -> tuple[Any, Any]:
        """Tokenizes texts that are split into words already, and says which word each token belongs to.

        Each word is tokenized by itself, as it would be in the text that joins the words by spaces.

        Args:
            words: a ragged `tf.string` tensor `(batch, None)` or a list of lists of words.

        Returns:
            `(ids, word_ids)`: ragged int32 tensors of one shape. `word_ids` is the position in its row of the word
            that each token comes from. A word without tokens (empty, or only controls that are dropped) does not
            occur in it.

        Raises:
            TypeError: a word is not text. The message names row and word.
            ValueError: the words are not ragged of rank 2, or one can't be encoded as UTF-8.

        Example:
            >>> ids, word_ids = tokenizer.tokenize_words([["An", "unaffordable", "cafe"]])
            >>> word_ids.to_list()
            [[0, 1, 1, 1, 1, 2]]
        """
        tf = import_tensorflow()
        words = as_ragged_texts(words)
        with tf.device("CPU:0"):
            lengths = words.row_lengths()
            positions = tf.ragged.range(tf.cast(lengths, tf.int32), row_splits_dtype=words.row_splits.dtype).values
            texts = words.values
            if self._words_need_space:
                texts = tf.where((positions > 0) & (texts != ""), tf.strings.join([" ", texts]), texts)
            splitter = self._splitter(False)
            ids = self._tokenize(texts) if splitter is None else splitter.tokenize(texts, self._tokenize)
            row_splits = tf.gather(ids.row_splits, words.row_splits)
            word_ids = tf.repeat(positions, ids.row_lengths())
            return (
                tf.RaggedTensor.from_row_splits(ids.values, row_splits, validate=False),
                tf.RaggedTensor.from_row_splits(word_ids, row_splits, validate=False),
            )

    @property
    def _words_need_space(self) -> bool:
        """Whether a word inside a text has tokens of its own, with the space before it."""
        return False

    def _splitter(self, special_tokens: bool | Sequence[str]) -> SpecialTokenSplitter | None:
        if isinstance(special_tokens, (str, bytes)):
            raise TypeError(f"special_tokens={special_tokens!r} must be a bool or a list of tokens.")
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
        key = tuple(sorted({*self._added, *names}))
        if not key:
            return None
        if key not in self._splitters:
            ids = {name: self._ids[name] for name in key}
            self._splitters[key] = SpecialTokenSplitter(ids, self._strip_left, self._strip_right)
        return self._splitters[key]

    def detokenize(self, ids: Any):
        """Joins token ids to texts.

        The first end token of a row and all that follows are dropped, as are padding and start tokens anywhere. (Where
        one token is both start and end, as in GPT-2, the first position of a row is a start, not an end.) An id outside
        the vocabulary, which a model with a padded vocabulary can produce, counts as the unknown token, or is dropped
        where the tokenizer has none.

        Args:
            ids: integers: a ragged tensor of rank 2, a dense tensor or array of rank 1 or 2, a list of ids (an empty
                list is one empty row) or a list of rows.

        Returns:
            `tf.string` tensor: shape `(batch,)`, or a scalar if `ids` has rank 1.

        Raises:
            TypeError: the ids are not integers.
            ValueError: the rank is neither 1 nor 2.

        Example:
            >>> tokenizer.detokenize([[9, 214, 31, tokenizer.end_id, 9]]).numpy()
            array([b'a small dog'], dtype=object)
        """
        ragged, is_single = as_ragged_ids(ids)
        with import_tensorflow().device("CPU:0"):
            texts = self._detokenize(self._drop_special_tokens(ragged))
        return texts[0] if is_single else texts

    def _join(self, ids, first_texts: Sequence[str | bytes], later_texts: Sequence[str | bytes]):
        """Joins what each token becomes as the first token of its row and as a later one."""
        tf = import_tensorflow()
        starts = tf.boolean_mask(ids.row_starts(), ids.row_lengths() > 0)
        is_first = tf.scatter_nd(starts[:, tf.newaxis], tf.ones_like(starts), [tf.size(ids.values, out_type=tf.int64)])
        texts = tf.where(
            is_first > 0,
            tf.gather(self._constant("first_texts", first_texts), ids.values),
            tf.gather(self._constant("later_texts", later_texts), ids.values),
        )
        return tf.strings.reduce_join(ids.with_values(texts), axis=-1)

    def _constant(self, name: str, value: Any):
        """A large constant, made once. (A SavedModel takes what its functions have captured.)"""
        if name not in self._constants:
            tf = import_tensorflow()
            with tf.init_scope(), tf.device("CPU:0"):
                self._constants[name] = tf.constant(value)
        return self._constants[name]

    def _drop_special_tokens(self, ids):
        tf = import_tensorflow()
        values = ids.values
        inside = (values >= 0) & (values < self.vocabulary_size)
        values = tf.where(inside, values, 0 if self.unknown_id is None else self.unknown_id)
        keep = ~tf.gather(tf.constant(self._is_silent), values)
        if self.unknown_id is None:
            keep &= inside
        if self.end_id is not None:
            is_end = ids.values == self.end_id
            starts = ids.row_starts()
            if self.start_id == self.end_id:
                is_end &= tf.range(tf.size(values, out_type=starts.dtype)) != tf.gather(starts, ids.value_rowids())
            # Ends seen before each position of the whole batch, less those seen before the position's row.
            seen = tf.concat([[0], tf.cumsum(tf.cast(is_end, tf.int32))], axis=0)
            seen_before_row = tf.gather(tf.gather(seen, starts), ids.value_rowids())
            keep &= seen[1:] == seen_before_row
        return tf.ragged.boolean_mask(ids.with_values(values), ids.with_values(keep))

    def get_vocabulary(self) -> list[str]:
        """Returns all tokens, in the order of their ids."""
        return list(self._vocabulary)

    def token_to_id(self, token: str) -> int:
        """Returns the id of a token.

        Raises:
            ValueError: the token is not in the vocabulary.
        """
        if token not in self._ids:
            raise ValueError(f"token={token!r} is not in the vocabulary of {self.vocabulary_size} tokens.")
        return self._ids[token]

    def id_to_token(self, token_id: int) -> str:
        """Returns the token with an id.

        Raises:
            ValueError: the id is not in the range 0 to `vocabulary_size - 1`.
        """
        if not 0 <= token_id < self.vocabulary_size:
            raise ValueError(f"token_id={token_id!r} must be at least 0 and below {self.vocabulary_size}.")
        return self._vocabulary[token_id]

    def save(self, directory: str | os.PathLike) -> None:
        """Writes `tokenizer.json` and the vocabulary files.

        A tokenizer that was there before stays whole until the new one is complete, whatever interrupts the writing.

        Args:
            directory: made if missing; other files in it are left alone.

        Raises:
            OSError: the directory can't be made or written.
        """
        write_tokenizer(directory, self.kind, self._config(), self._files())

    @classmethod
    def load(cls, directory: str | os.PathLike) -> Tokenizer:
        """Reads a tokenizer that `save` wrote; `Tokenizer.load` reads every kind.

        Raises:
            FileNotFoundError: the directory or one of its files is missing.
            ValueError: a file is damaged, or the tokenizer is of another kind.

        Example:
            >>> tokenizer.save("run/tokenizer")
            >>> tokenizer = Tokenizer.load("run/tokenizer")
        """
        kind, config, files = read_tokenizer(directory)
        if kind not in _KINDS:
            raise ValueError(f"{CONFIG_FILE!r} in {str(directory)!r} has kind={kind!r}; known are {sorted(_KINDS)}.")
        if not issubclass(_KINDS[kind], cls):
            raise ValueError(f"{str(directory)!r} holds a {kind!r} tokenizer, not {cls.kind!r}: use Tokenizer.load.")
        unknown = config.keys() - inspect.signature(_KINDS[kind].__init__).parameters.keys()
        if unknown:
            raise ValueError(f"{CONFIG_FILE!r} in {str(directory)!r} has unknown config keys {sorted(unknown)}.")
        return _KINDS[kind]._from_files(files, config)

    def get_config(self) -> dict[str, Any]:
        """Returns everything `from_config` needs, the vocabulary files included (as base64 text)."""
        files = {name: base64.b64encode(content).decode("ascii") for name, content in self._files().items()}
        return {**self._config(), "files": files}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Tokenizer:
        """Makes the tokenizer from what `get_config` returned."""
        files = {name: base64.b64decode(content) for name, content in config["files"].items()}
        return cls._from_files(files, {key: value for key, value in config.items() if key != "files"})

    def __reduce__(self):
        # The resources of TensorFlow can't be copied or pickled; a new tokenizer makes its own.
        return type(self).from_config, (self.get_config(),)
