"""The tokens of a tokenizer, their ids, and which of them are special."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.storage import quote
from zoo.tokenizers.chat.chat_format import ChatFormat
from zoo.tokenizers.chat.formats import get_chat_format
from zoo.tokenizers.sentencepiece_check import check_tokens

# most tokens that are looked for in every text; Llama 3 has 256
MOST_FOUND = 10_000


class Count(int):
    """A number that may also be called: `vocabulary_size()` is a method of KerasHub's tokenizers."""

    def __call__(self) -> int:
        return int(self)


class Vocabulary:
    """Tokens in the order of their ids, with the special ones; arguments and attributes as for `Tokenizer`."""

    # the file that it is from, for errors
    source = ""
    # why a directory that has a chat template gave no chat format
    no_chat_because = ""

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
        single_words: Sequence[str] = (),
        adds_start: bool | None = None,
        adds_end: bool | None = None,
        chat_format: dict[str, Any] | str | ChatFormat | None = None,
    ) -> None:
        self._vocabulary = list(vocabulary)
        check_tokens(self._vocabulary, "vocabulary")
        self._ids = {token: index for index, token in enumerate(self._vocabulary)}
        self.vocabulary_size: int = Count(len(self._vocabulary))
        self.pad_id: int | None = self._special_id("pad_token", pad_token)
        self.start_id: int | None = self._special_id("start_token", start_token)
        self.end_id: int | None = self._special_id("end_token", end_token)
        self.unknown_id: int | None = self._special_id("unknown_token", unknown_token)
        self.mask_id: int | None = self._special_id("mask_token", mask_token)
        self.chat_format: ChatFormat | None = get_chat_format(chat_format)
        control = () if self.chat_format is None else self.chat_format.special_tokens
        for token in control:
            if token not in self._ids:
                raise ValueError(
                    f"chat_format needs the token {quote(token)}, which is not in the vocabulary of "
                    f"{self.vocabulary_size} tokens."
                )
        special_tokens = dict.fromkeys([*special_tokens, *control])
        added_tokens = [token for token in added_tokens if token not in control]
        # the unknown token says that something was there, so it stays visible
        further = {self._special_id("special_tokens", token) for token in special_tokens} - {self.unknown_id}
        silent = {self.pad_id, self.start_id, self.end_id, self.mask_id, *further} - {None}
        self._is_silent = np.zeros(self.vocabulary_size, dtype=bool)
        self._is_silent[sorted(silent)] = True
        self.special_tokens: list[str] = [
            self._vocabulary[index] for index in sorted(silent | {self.unknown_id} - {None})
        ]
        self._further_special = [self._vocabulary[index] for index in sorted(further)]
        found = [*special_tokens, *added_tokens]
        if len(found) > MOST_FOUND:
            raise ValueError(
                f"special_tokens and added_tokens, which are looked for in every text, must be at most {MOST_FOUND}, "
                f"got {len(found)}."
            )
        self._added = {token: self._special_id("added_tokens", token) for token in added_tokens}
        self.strip_left: tuple[str, ...] = tuple(strip_left)
        self.strip_right: tuple[str, ...] = tuple(strip_right)
        self.single_words: tuple[str, ...] = tuple(single_words)
        for name, flag in (("adds_start", adds_start), ("adds_end", adds_end)):
            if flag not in (None, True, False):
                raise ValueError(f"{name} must be True, False or None, got {quote(flag)}.")
        self.adds_start: bool | None = adds_start
        self.adds_end: bool | None = adds_end
        known = {*self._added, *self.special_tokens}
        for role, tokens in (
            ("strip_left", strip_left),
            ("strip_right", strip_right),
            ("single_words", single_words),
        ):
            for token in tokens:
                if token not in known:
                    raise ValueError(f"{role}: {quote(token)} is neither a special nor an added token.")

    def _special_id(self, role: str, token: str | None) -> int | None:
        if token is not None and token not in self._ids:
            raise ValueError(f"{role} must be in the vocabulary of {self.vocabulary_size} tokens, got {quote(token)}.")
        return None if token is None else self._ids[token]

    def _special_config(self) -> dict[str, Any]:
        """The arguments of this class's constructor but for the vocabulary."""
        roles = ("pad", "start", "end", "unknown", "mask")
        ids = {f"{role}_token": getattr(self, f"{role}_id") for role in roles}
        return {
            **{role: None if index is None else self._vocabulary[index] for role, index in ids.items()},
            "special_tokens": list(self._further_special),
            "added_tokens": list(self._added),
            "strip_left": list(self.strip_left),
            "strip_right": list(self.strip_right),
            # left out where there are none, so that earlier versions read what they could write
            **({"single_words": list(self.single_words)} if self.single_words else {}),
            **({} if self.adds_start is None else {"adds_start": self.adds_start}),
            **({} if self.adds_end is None else {"adds_end": self.adds_end}),
            **({} if self.chat_format is None else {"chat_format": self.chat_format.to_dict()}),
        }

    @property
    def named_tokens(self) -> list[str]:
        """Tokens that are not parts of words: special and added tokens."""
        return list(dict.fromkeys([*self.special_tokens, *self._added]))

    def _spelled_by_no_text(self, tokens: Sequence[str]) -> bool:
        return all(token in self.special_tokens and token not in self._added for token in tokens)

    def get_vocabulary(self) -> list[str]:
        """Returns all tokens, in the order of their ids."""
        return list(self._vocabulary)

    def token_to_id(self, token: str) -> int:
        """Returns the id of a token.

        Raises:
            ValueError: The token is not in the vocabulary.
        """
        if token not in self._ids:
            raise ValueError(f"token must be in the vocabulary of {self.vocabulary_size} tokens, got {token!r}.")
        return self._ids[token]

    def id_to_token(self, token_id: int) -> str:
        """Returns the token with an id.

        Raises:
            ValueError: The id is not in the range 0 to `vocabulary_size - 1`.
        """
        if not 0 <= token_id < self.vocabulary_size:
            raise ValueError(f"token_id must be at least 0 and below {self.vocabulary_size}, got {token_id!r}.")
        return self._vocabulary[token_id]
