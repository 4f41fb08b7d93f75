"""Tokenizers on disk and in the configurations of models: writing, reading, and making them by their kind."""

from __future__ import annotations

import base64
import inspect
import os
import typing
from collections.abc import Sequence
from typing import Any, ClassVar

from zoo.storage import TokenizerFiles, errors_of_file, quote, quote_key, read_tokenizer, require_type, write_tokenizer
from zoo.tokenizers.chat.chat_format import ChatFormat
from zoo.tokenizers.chat.formats import get_chat_format

_KINDS: dict[str, type[StoredTokenizer]] = {}


class StoredTokenizer:
    """A tokenizer of some `kind` that can be stored: in files, in a configuration, and as a copy."""

    kind: ClassVar[str]
    source: str
    chat_format: ChatFormat | None

    def __init_subclass__(cls, kind: str | None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is None:  # no tokenizer, but what others derive from
            return
        if kind in _KINDS:
            raise ValueError(f"kind must be a new name, got {kind!r}, which is that of {_KINDS[kind].__qualname__}.")
        cls.kind = kind
        _KINDS[kind] = cls

    def _config(self) -> dict[str, Any]:
        """Keyword arguments that, with `_files`, make this tokenizer again; what JSON can hold."""
        raise NotImplementedError

    def _files(self) -> dict[str, bytes]:
        """Content of each vocabulary file by its name."""
        raise NotImplementedError

    @classmethod
    def _from_files(cls, files: dict[str, bytes], config: dict[str, Any]) -> StoredTokenizer:
        raise NotImplementedError

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes `tokenizer.json` and the vocabulary files.

        An earlier tokenizer in the directory stays intact until the new one is complete, even after an interruption.

        Args:
            directory: The directory, created if needed. Other files in it are kept.

        Raises:
            OSError: The directory can't be made or written.
        """
        write_tokenizer(directory, self.kind, self._config(), self._files())

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> StoredTokenizer:
        """Reads a tokenizer that `save` wrote; `Tokenizer.load` reads every kind.

        Raises:
            FileNotFoundError: The directory or one of its files is missing.
            ValueError: A file is damaged, or the tokenizer is of another kind.

        Example:

        >>> tokenizer.save("run/tokenizer")
        >>> tokenizer = Tokenizer.load("run/tokenizer")
        """
        return cls.from_stored(read_tokenizer(directory))

    @classmethod
    def from_stored(cls, stored: TokenizerFiles) -> StoredTokenizer:
        """Makes the tokenizer from the files that `zoo.storage.read_tokenizer` read.

        Raises:
            ValueError: A choice or a vocabulary file is damaged, or the tokenizer is of another kind.
        """
        if stored.kind not in _KINDS:
            raise ValueError(f"{stored.path}: kind must be one of {sorted(_KINDS)}, got {quote(stored.kind)}.")
        kind = _KINDS[stored.kind]
        if not issubclass(kind, cls):
            raise ValueError(f"{stored.path} holds a {kind.kind!r} tokenizer, not {cls.kind!r}: use Tokenizer.load.")
        accepted, hints = _arguments(kind), _hints(kind)
        for key, value in stored.config.items():
            if accepted is not None and key not in accepted:
                raise ValueError(f"{stored.path}: config.{quote_key(key)} is not known to a {stored.kind!r}.")
            if key in hints:
                require_type(value, hints[key], f"{stored.path}: config.{key}")
        with errors_of_file(", ".join([str(stored.path), *stored.names])):
            tokenizer = kind._from_files(stored.files, stored.config)
        tokenizer.source = f"{stored.path} ({', '.join(stored.names)})"
        return tokenizer

    def get_config(self) -> dict[str, Any]:
        """Returns everything that `from_config` needs, including the vocabulary files (as base64 text)."""
        files = {name: base64.b64encode(content).decode("ascii") for name, content in self._files().items()}
        return {**self._config(), "files": files}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> StoredTokenizer:
        """Makes the tokenizer from what `get_config` returned."""
        files = {name: base64.b64decode(content) for name, content in config["files"].items()}
        return cls._from_files(files, {key: value for key, value in config.items() if key != "files"})

    def with_chat_format(self, chat_format: Any) -> StoredTokenizer:
        """Returns the tokenizer with another chat format.

        Args:
            chat_format: A `ChatFormat`, a name in `CHAT_FORMATS`, or None.

        Raises:
            ValueError: It is none of these, or the vocabulary lacks one of its control tokens.

        Example:

        >>> tokenizer.with_chat_format("chatml").chat_format.reply
        '<|im_start|>assistant\\n'
        """
        end_token = None if self.end_id is None else self.id_to_token(self.end_id)
        chat_format = get_chat_format(chat_format, end_token=end_token)
        if self._spelled_by_no_text(() if chat_format is None else chat_format.special_tokens):
            # the same tokens in the same roles: nothing is built again
            copy = self._copy()
        else:
            copy = type(self).from_config({**self.get_config(), "chat_format": chat_format.to_dict()})
            copy.source = self.source
        copy.chat_format = chat_format
        return copy

    def _copy(self) -> StoredTokenizer:
        """Another object with the same attributes."""
        copy = object.__new__(type(self))
        vars(copy).update(vars(self))
        return copy

    def _spelled_by_no_text(self, tokens: Sequence[str]) -> bool:
        """Whether tokens are special ones already, which no text becomes."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        # The resources of TensorFlow can't be copied or pickled; a new tokenizer makes its own.
        return type(self).from_config, (self.get_config(),)


def _arguments(kind: type) -> set[str] | None:
    """Names of the arguments of a class, including those that it passes on as `**kwargs`; None if it takes any."""
    names: set[str] = set()
    for owner in kind.__mro__:
        if "__init__" not in vars(owner):
            continue
        parameters = inspect.signature(owner.__init__).parameters
        names |= parameters.keys()
        if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values()):
            return names
    return None


def _hints(kind: type) -> dict[str, Any]:
    """Types of the arguments of a class, including those that it passes on as `**kwargs`."""
    hints: dict[str, Any] = {}
    for owner in reversed(kind.__mro__):
        if "__init__" in vars(owner):
            hints.update(typing.get_type_hints(owner.__init__))
    return hints
