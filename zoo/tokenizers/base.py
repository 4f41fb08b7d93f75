"""What all tokenizers share: special tokens, conversion of inputs, dropping of special tokens, files, registry."""

from __future__ import annotations

import base64
import inspect
import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from zoo.tokenizers.storage import CONFIG_FILE, read_tokenizer, write_tokenizer
from zoo.tokenizers.tensors import as_ragged_ids, as_text_tensor, import_tensorflow

_KINDS: dict[str, type[Tokenizer]] = {}


class Tokenizer:
    """Text to token ids and back, by the same operations eagerly, in `tf.data`, in `tf.function` and in a SavedModel.

    A subclass names its `kind` in its class line, calls `super().__init__` and defines `_tokenize`, `_detokenize`,
    `_config`, `_files`, `_from_files` and, where it holds resources, `trackables`:

    ```python
    class WordTokenizer(Tokenizer, kind="word"):
        ...
    ```

    Args:
        vocabulary: all tokens, in the order of their ids. No token occurs twice.
        pad_token, start_token, end_token, unknown_token: the tokens that play these roles, each in the vocabulary, or
            `None` where the tokenizer has no such token. One token may play several roles.
        silent_ids: ids of further tokens that `detokenize` leaves out, such as other control tokens.

    Attributes:
        vocabulary_size: number of tokens; ids are 0 to `vocabulary_size - 1`.
        pad_id, start_id, end_id, unknown_id: ids of the special tokens, or `None`.

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
        silent_ids: Sequence[int] = (),
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
        silent = {self.pad_id, self.start_id, self.end_id, *silent_ids} - {None}
        self._is_silent = np.zeros(self.vocabulary_size, dtype=bool)
        self._is_silent[sorted(silent)] = True

    def _special_id(self, role: str, token: str | None) -> int | None:
        if token is not None and token not in self._ids:
            raise ValueError(f"{role}={token!r} is not in the vocabulary of {self.vocabulary_size} tokens.")
        return None if token is None else self._ids[token]

    # What a subclass defines.

    def _tokenize(self, texts):
        """`tf.string` tensor of shape `(batch,)` to a `tf.RaggedTensor` of int32 ids, shape `(batch, None)`."""
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

    def tokenize(self, texts: Any):
        """Splits texts into token ids. Adds no special tokens.

        Args:
            texts: `str`, `bytes`, a list, tuple or NumPy array of these, or a `tf.string` tensor of rank 0 or 1.

        Returns:
            int32 ids: a `tf.RaggedTensor` of shape `(batch, None)`, or a dense tensor `(length,)` for a single text.

        Raises:
            TypeError: something is not text. The message names the row.
            ValueError: the rank is above 1 or unknown, or a text can't be encoded as UTF-8.

        Example:
            >>> tokenizer.tokenize(["a small dog", ""]).to_list()
            [[9, 214, 31], []]
        """
        tensor = as_text_tensor(texts)
        if tensor.shape.rank == 0:
            return self._tokenize(tensor[None]).values
        return self._tokenize(tensor)

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
        texts = self._detokenize(self._drop_special_tokens(ragged))
        return texts[0] if is_single else texts

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
