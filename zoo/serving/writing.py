"""A text that is being written by a served model: what was asked for, what has been written, how it ended."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

import zoo

# Why a text ended: as the fields `finish_reason` of well-known interfaces name it, and those that it has no name for.
STOP, LENGTH, CANCELLED, DEADLINE, FAILED = "stop", "length", "cancelled", "deadline", "failed"
# Why a text has not begun.
REFUSED = "refused"


@dataclasses.dataclass(frozen=True)
class WritingRequest:
    """A text that is asked for.

    Args:
        prompt: Token ids of the prompt, at least one.
        max_new_tokens: Most tokens that are written, at least 1.
        is_chat: Whether the prompt is a conversation, whose answer ends where a turn ends.
        temperature: 0 for the most probable token.
        top_k: 0 keeps all tokens.
        top_p: 1 keeps all tokens.
        min_p: 0 keeps all tokens.
        presence_penalty: Subtracted from the logits of tokens that the text has.
        frequency_penalty: Subtracted for each time that the text has the token.
        logit_bias: What is added to the logits of tokens.
        min_tokens: Tokens before one that ends the text.
        ignore_eos: Whether tokens that end texts are written like others.
        tells_tokens: Whether tokens and their log-probabilities are told, too.
        alternatives: Number of most probable tokens that are told of each place, with `tells_tokens`.
        grammar: What the text follows, see `zoo.generation.Grammar.lark`; None for nothing.
        seed: From 0 to 2**32 - 1.
        stream: Stream of random numbers, see `zoo.generation.request.streams_of`.
        stop: Stop strings, in addition to those of the model.
        streams_text: Whether pieces are wanted while the text is being written.
        deadline: Time of `time.monotonic()` after which nobody waits for the text; None for never.
        client: Who asks for it: clients share the rows of a batch, and the places to wait.
    """

    prompt: Sequence[int]
    max_new_tokens: int
    is_chat: bool = False
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = dataclasses.field(default_factory=dict)
    min_tokens: int = 0
    ignore_eos: bool = False
    tells_tokens: bool = False
    alternatives: int = 0
    grammar: str | None = None
    seed: int = 0
    stream: int = 0
    stop: Sequence[str] = ()
    streams_text: bool = False
    deadline: float | None = None
    client: str = ""


# Number and log-probability of a token, and the same of the most probable ones of its place.
ScoredToken = tuple[int, float, list[tuple[int, float]]]


@dataclasses.dataclass(frozen=True)
class Written:
    """What is new of a text.

    Args:
        text: Text beyond what was told before.
        reason: Why the text has ended; None while it goes on.
        tokens: Number of tokens that were written so far.
        log_probability: Sum of their log-probabilities under the model.
        scores: Tokens beyond those that were told before, where they are asked for; a token that ends the text is none.
        error: What failed, for the log.
    """

    text: str
    reason: str | None = None
    tokens: int = 0
    log_probability: float = 0.0
    scores: Sequence[ScoredToken] = ()
    error: str = ""


class Writing:
    """A text that is being written.

    Args:
        request: What was asked for.
        ends: What ends texts of this kind: the properties `texts` or `chat` of the endpoint `advance`.
        tell: Is given what is new, in the thread that writes; the last time with a reason.
    """

    def __init__(self, request: WritingRequest, ends: dict[str, Any], tell: Callable[[Written], None]) -> None:
        self.request, self.client = request, request.client
        self.tokens: list[int] = []
        # time of `time.monotonic()` when it was left to wait, and how long others have had its row before
        self.waits_since, self.seconds_aside = time.monotonic(), 0.0
        # what may come next, of a text that follows a grammar
        self.mask: zoo.generation.TextMask | None = None
        self._log_probabilities: list[float] = []
        self._best: list[list[tuple[int, float]]] = []
        self._told_tokens = 0
        # tokens that end the text, and those that do not and have no spelling
        self.end_ids = [] if request.ignore_eos else ends["end_ids"]
        self.silent_ids = frozenset(ends["end_ids"] if request.ignore_eos else ())
        self.stops = [*ends["stop"], *request.stop]
        self._edges = zoo.generation.chat.AnswerEdges(tuple(ends["begins"]), ends["ends"], ends["anew"])
        self._writer = zoo.generation.texts.PieceWriter(self.stops, self._edges)
        self._tell = tell
        self._cancelled = threading.Event()

    @property
    def fed_tokens(self) -> list[int]:
        """What its state has been fed before the next token is written: all tokens but the last one."""
        return [*self.request.prompt, *self.tokens][:-1]

    @property
    def needs_text(self) -> bool:
        """Whether the text has to be looked at before it ends."""
        return self.request.streams_text or bool(self.stops)

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Lets the text end soon; nobody waits for it any more. May be called in any thread."""
        self._cancelled.set()

    def take(
        self,
        token_ids: Sequence[int],
        log_probabilities: Sequence[float],
        best: Sequence[Sequence[tuple[int, float]]],
    ) -> None:
        """Adds tokens.

        Args:
            token_ids: Their ids.
            log_probabilities: Their log-probabilities.
            best: The most probable tokens of each place with theirs, at least as many as were asked for.
        """
        self.tokens += token_ids
        self._log_probabilities += map(float, log_probabilities)
        self._best += [list(each[: self.request.alternatives]) for each in best]

    @property
    def log_probability(self) -> float:
        """Sum of the log-probabilities of the tokens."""
        return sum(self._log_probabilities)

    def keep(self, count: int) -> None:
        """Forgets all but the first tokens."""
        self.tokens, self._log_probabilities = self.tokens[:count], self._log_probabilities[:count]
        self._best = self._best[:count]

    def has_stop(self, text: bytes) -> bool:
        """Returns whether a stop string is in a text."""
        return bool(self._cut(text)[0] != text)

    def look(self, whole: bytes, stable: bytes, ended: str | None) -> str | None:
        """Tells what is new of the text.

        Args:
            whole: Text of the tokens so far.
            stable: That of them which no further token changes.
            ended: Why the text has ended, None if it goes on as far as tokens tell.

        Returns:
            Why it has ended; a stop string is a reason too.
        """
        cut, stable = (self._cut(text) for text in (whole, stable))
        if cut[0] != whole:
            ended = STOP
        text = cut[1]
        if ended is not None:
            self.end(ended, self._writer.finish(text))
        elif self.request.streams_text:
            piece = self._writer.add(os.path.commonprefix([text, stable[1]]))
            if piece:
                self._say(Written(piece, None, len(self.tokens), self.log_probability, self._new_scores()))
        return ended

    def end(self, reason: str, text: str = "", error: str = "") -> None:
        """Tells that the text has ended."""
        self._say(Written(text, reason, len(self.tokens), self.log_probability, self._new_scores(), error))

    def _new_scores(self) -> list[ScoredToken]:
        if not self.request.tells_tokens:
            return []
        first, self._told_tokens = self._told_tokens, len(self.tokens)
        scored = list(zip(self.tokens, self._log_probabilities, self._best, strict=True))[first:]
        return [each for each in scored if each[0] not in self.end_ids]

    def _say(self, written: Written) -> None:
        try:
            self._tell(written)
        except Exception:  # whoever listened is gone: this text alone is of no use any more
            logging.getLogger(__name__).error("A text has lost its listener.")
            self.cancel()

    def _cut(self, text: bytes) -> tuple[bytes, bytes]:
        """The text up to a stop string, and this without what stands at the edges of answers."""
        cut = zoo.generation.texts.cut_at_stops(tf.constant([text]), self.stops)
        return cut.numpy()[0], self._edges.cut(cut).numpy()[0]
