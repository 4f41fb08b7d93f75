"""Texts of an exported decoder: to tokens and back, their scores, and what is new of those that are being written."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.serving.exported_model import ExportedModel
from zoo.serving.row_arrays import most_probable_tokens, padded
from zoo.serving.writing import FAILED, STOP, Writing

# Tokens at the end of a prompt that tell how the first generated ones are spelled, control tokens among them.
_CONTEXT = 32


class DecoderTexts:
    """What an exported decoder says of texts and their tokens.

    Args:
        model: The exported model, which has the endpoint `advance`.

    Example:

    >>> DecoderTexts(model).tokens(["Once upon a time"])
    [[1, 403, 407, 261, 378]]
    """

    def __init__(self, model: ExportedModel) -> None:
        self._model = model
        self.properties = model.endpoints["advance"]["properties"]

    @property
    def is_chat(self) -> bool:
        """Whether the model answers conversations."""
        return "chat" in self.properties

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the token ids of prompts."""
        return _rows_of(self._model.call("tokens", texts=list(texts)))

    def chat_tokens(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Returns the token ids of a conversation.

        Args:
            messages: Its messages, dictionaries with `role` and `content` alone.
        """
        roles, contents = ([[message[key] for message in messages]] for key in ("role", "content"))
        return _rows_of(self._model.call("chat_tokens", roles=roles, contents=contents))[0]

    @functools.cached_property
    def spellings(self) -> list[bytes]:
        """What each token adds to a text, empty for those that no text has."""
        ids = np.arange(self.properties["vocabulary_size"])
        return self._model.call("spellings", token_ids=ids)["spellings"].tolist()

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Returns the text of tokens; those that begin, end or divide texts have none."""
        ids = [token for token in token_ids if self.spellings[token]]
        return self._model.call("continuation", prompts=padded([[]]), token_ids=padded([ids]))["texts"][0].decode(
            "utf-8", "replace"
        )

    def score(self, token_ids: Sequence[int], alternatives: int) -> list[tuple[int, float | None, list[Any]]]:
        """Returns the tokens of a text with their log-probabilities, and the same of the most probable ones.

        Args:
            token_ids: At least one token. Of the first one nothing is known.
            alternatives: Number of most probable tokens.
        """
        found = self._model.call("score_tokens", token_ids=padded([token_ids]), alternatives=alternatives)
        values = [None, *found["log_probabilities"][0].tolist()[1:]]
        return list(zip(token_ids, values, most_probable_tokens(found)[0], strict=True))

    def look(self, writings: Sequence[Writing], reasons: list[str | None]) -> None:
        """Tells what is new of each text that has not failed.

        Args:
            writings: The texts.
            reasons: Why each has ended, None if it goes on. A stop string becomes a reason here.
        """
        for is_chat in (False, True):
            rows = [
                row
                for row, writing in enumerate(writings)
                if writing.request.is_chat is is_chat
                and reasons[row] != FAILED
                and (reasons[row] is not None or writing.needs_text)
            ]
            if not rows:
                continue
            looked_at = [writings[row] for row in rows]
            tokens = [_without_end(writings[row], reasons[row]) for row in rows]
            unstable = self.properties["unstable_tokens"]
            whole = self._texts(looked_at, tokens)
            stable = whole
            if unstable and any(reasons[row] is None for row in rows):
                stable = self._texts(looked_at, [ids[: max(len(ids) - unstable, 0)] for ids in tokens])
            for row, writing, ids, *texts in zip(rows, looked_at, tokens, whole, stable, strict=True):
                if writing.stops and writing.has_stop(texts[0]):
                    writing.keep(self._tokens_to_stop(writing, ids))
                reasons[row] = writing.look(*texts, reasons[row])

    def _tokens_to_stop(self, writing: Writing, tokens: Sequence[int]) -> int:
        """Number of tokens up to the one with which a stop string is complete."""
        without, complete = 0, len(tokens)
        while complete - without > 1:
            middle = (without + complete) // 2
            if writing.has_stop(self._texts([writing], [tokens[:middle]])[0]):
                complete = middle
            else:
                without = middle
        return complete

    def _texts(self, writings: Sequence[Writing], tokens: Sequence[Sequence[int]]) -> list[bytes]:
        """What tokens of texts, which are all conversations or none, add to their prompts."""
        endpoint = "chat_continuation" if writings[0].request.is_chat else "continuation"
        prompts = [writing.request.prompt[-_CONTEXT:] for writing in writings]
        heard = [
            [each for each in ids if each not in writing.silent_ids]
            for writing, ids in zip(writings, tokens, strict=True)
        ]
        return self._model.call(endpoint, prompts=padded(prompts), token_ids=padded(heard))["texts"].tolist()


def _without_end(writing: Writing, reason: str | None) -> list[int]:
    tokens = writing.tokens
    return tokens[:-1] if reason == STOP and tokens[-1] in writing.end_ids else tokens


def _rows_of(tokens: dict[str, np.ndarray]) -> list[list[int]]:
    return [ids[:length].tolist() for ids, length in zip(tokens["token_ids"], tokens["lengths"], strict=True)]
