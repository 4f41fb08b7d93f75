"""Continuous batching: texts join and leave a batch that is being written at every step."""

from __future__ import annotations

import collections
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import zoo
from zoo.serving.decoder_texts import DecoderTexts
from zoo.serving.exported_model import ExportedModel
from zoo.serving.options import Batching
from zoo.serving.prefixes import Prefixes
from zoo.serving.row_arrays import ROW_INPUTS, most_probable_tokens, row_inputs
from zoo.serving.row_scheduling import by_urgency, text_that_gives_way, that_gives_place
from zoo.serving.row_states import State, StateFormat, rounded_positions
from zoo.serving.writing import CANCELLED, DEADLINE, FAILED, LENGTH, REFUSED, STOP, Writing, WritingRequest, Written

# Most texts of a batch in which those that stream are told token by token. More would pay for it: in each turn states
# are copied, and whole texts are looked at.
ROWS_OF_SINGLE_TOKENS = 2
# Longest turn while a text streams: so long clients wait for a piece, and rows for the end of a stream that was closed.
TURN_SECONDS = 0.1


class OldExportError(ValueError):
    """An export lacks inputs that this version of the server gives. The message holds no path."""


class GrammarError(ValueError):
    """A text of this model cannot follow a grammar. The message holds nothing of it."""


class QueueFullError(RuntimeError):
    """There is no place for another text to wait."""


@dataclasses.dataclass(eq=False)
class _Filling:
    """A text whose tokens are being fed, all but the last one.

    Args:
        writing: The text.
        tokens: What is to be fed.
        state: The state.
        fed: Number of tokens that the state has been fed.
        victim: The text that gives its row to this one, if it is still being written then.
    """

    writing: Writing
    tokens: Sequence[int]
    state: State
    fed: int
    victim: Writing | None


class ContinuousBatch:
    """Writes texts with an exported decoder, many at a time, in a thread of its own.

    Between two turns of some tokens for all, texts that have ended leave, and others take their places: their prompts
    are fed in pieces, behind what an earlier prompt has in common with them. Clients share the rows, and the places to
    wait. Of the texts of a client those with the fewest tokens left come first, and sooner the longer they wait. A text
    gives its row to one of a client with fewer rows, or to a much shorter one, and goes on later, from its state as
    long as there is room for it. Each text is the one that `generate` writes for its prompt, settings and seed,
    whatever else is in the batch. While a text in a row follows a grammar, turns have one token; and where one or two
    texts are alone, of which one is told as it is written. With more of them, a turn has as many tokens as come in a
    tenth of a second.

    Args:
        model: The exported model, which has the endpoint `advance`.
        batching: How many texts are written together.
        waiting: Most texts that wait.

    Raises:
        OldExportError: If the export was made before `advance` took all settings of a row.

    Example:

    >>> with ContinuousBatch(model, Batching(rows=8)) as batch:
    ...     batch.write(WritingRequest(batch.texts.tokens(["Once upon a time"])[0], 40), print)

    Reference:
        Yu et al. 2022, "Orca: a distributed serving system for Transformer-based generative models", section 4.1;
        Agrawal et al. 2024, "Taming throughput-latency tradeoff in LLM inference with Sarathi-Serve", section 4.1
        (prompts in pieces).
    """

    def __init__(self, model: ExportedModel, batching: Batching | None = None, waiting: int = 256) -> None:
        self._model, self._batching, self._most_waiting = model, batching or Batching(), waiting
        self.properties = model.endpoints["advance"]["properties"]
        missing = sorted(ROW_INPUTS - {field["name"] for field in model.endpoints["advance"]["inputs"]})
        if missing:
            raise OldExportError(f"its endpoint advance must take {', '.join(missing)}: export the model again.")
        self.texts = DecoderTexts(model)
        self._format = StateFormat(self.properties["state"])
        self._prefixes = Prefixes(self._format, self._batching.prefix_bytes)
        self._waiting: list[Writing] = []
        self._filling: collections.deque[_Filling] = collections.deque()
        self._rows: list[Writing] = []
        self._state: State = self._format.empty(1, rounded_positions(1, self.max_length))
        self._batch_size, self._positions = 1, rounded_positions(1, self.max_length)
        self._changed = threading.Condition()
        self._closing = False
        # of the last turn: none before the first
        self._seconds_per_step = 0.0
        self.steps_done = self.tokens_written = self.tokens_fed = self.tokens_shared = 0
        self._thread = threading.Thread(target=self._run, name="continuous batch", daemon=True)
        self._thread.start()

    def __enter__(self) -> ContinuousBatch:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def max_length(self) -> int:
        """Most tokens of prompt and text together."""
        return self.properties["max_length"]

    @functools.cached_property
    def _masks(self) -> zoo.generation.TokenMasks:
        """Says what may come next in texts that follow grammars."""
        return zoo.generation.TokenMasks(self.texts.spellings)

    @property
    def load(self) -> dict[str, int]:
        """How many texts are waiting, have their prompts fed, and are being written."""
        return {"waiting": len(self._waiting), "filling": len(self._filling), "writing": len(self._rows)}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a row that the export was made with."""
        return dict(self.properties["settings"])

    def write(self, request: WritingRequest, tell: Callable[[Written], None]) -> Writing:
        """Lets a text be written.

        Args:
            request: What is asked for.
            tell: Is given what is new of it, in another thread; the last time with the reason why it ended.

        Returns:
            The text, which may be cancelled.

        Raises:
            ValueError: If the prompt is empty, or leaves no room for a token.
            GrammarError: If no text can follow the grammar.
            QueueFullError: If too many texts wait, and no other client has more of them. Otherwise the newest text of
                the client with the most is told that it is refused.
        """
        if not 0 < len(request.prompt) < self.max_length:
            raise ValueError(f"A prompt must have from 1 to {self.max_length - 1} tokens, got {len(request.prompt)}.")
        if request.is_chat and not self.texts.is_chat:
            raise ValueError("A conversation needs a model with a chat format.")
        writing = Writing(request, self.properties["chat" if request.is_chat else "texts"], tell)
        if request.grammar is not None:
            try:
                writing.mask = self._masks.begin(request.grammar, writing.end_ids)
            except ValueError as error:
                raise GrammarError("The grammar is none that a text of this model can follow.") from error
            if writing.mask.must_end:  # its only text is the empty one
                writing.end(STOP)
                return writing
        refused = None
        with self._changed:
            if self._closing:
                raise QueueFullError("The model is being closed.")
            waiting = [each for each in self._waiting if not each.is_cancelled]
            if len(waiting) >= self._most_waiting:
                # of those that were put aside, some may have been told
                refused = that_gives_place([each for each in waiting if not each.tokens], writing.client)
                if refused is None:
                    raise QueueFullError(f"{len(waiting)} texts wait already.")
                self._waiting.remove(refused)
            self._waiting.append(writing)
            self._changed.notify()
        if refused is not None:
            refused.end(REFUSED)
        return writing

    def close(self) -> None:
        """Writes what is begun or waiting to its end, and stops."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    # What follows runs in the thread of the batch.

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._filling or self._rows or self._closing):
                    self._changed.wait()
                if self._closing and not (self._waiting or self._filling or self._rows):
                    return
            try:
                self._turn()
            except Exception as error:  # whatever TensorFlow raises: no text of this batch can go on
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        writings = {id(writing): writing for writing in (*self._rows, *(each.writing for each in self._filling))}
        # without a state: it may be that there is no memory for another one
        self._rows, self._filling, self._state = [], collections.deque(), {}
        for writing in writings.values():
            writing.end(FAILED, error=type(error).__name__)

    def _turn(self) -> None:
        self._drop_unwanted()
        self._admit()
        began = self._feed()
        if began:
            victims = [filling.victim for filling in began if filling.victim in self._rows]
            self._keep_states(victims)
            # they stay among those that are being fed until they have a row: what fails in between ends them too
            self._arrange(began, victims)
            self._filling = collections.deque(filling for filling in self._filling if filling not in began)
            with self._changed:
                for victim in victims:
                    victim.waits_since = time.monotonic()
                    self._waiting.append(victim)
        if self._rows:
            self._advance()

    def _drop_unwanted(self) -> None:
        """Ends what was cancelled or is too late."""
        now = time.monotonic()
        unwanted: dict[int, str] = {}

        def is_wanted(writing: Writing) -> bool:
            deadline = writing.request.deadline
            if writing.is_cancelled:
                unwanted[id(writing)] = CANCELLED
            elif deadline is not None and deadline < now:
                unwanted[id(writing)] = DEADLINE
            return id(writing) not in unwanted

        with self._changed:
            every = [*self._waiting, *(filling.writing for filling in self._filling), *self._rows]
            self._waiting = list(filter(is_wanted, self._waiting))
        self._filling = collections.deque(filling for filling in self._filling if is_wanted(filling.writing))
        gone = [writing for writing in self._rows if not is_wanted(writing)]
        if gone:
            self._arrange([], leaving=gone)
        for writing in every:
            if id(writing) in unwanted:
                writing.end(unwanted[id(writing)])

    def _admit(self) -> None:
        """Begins with the texts for which there is room, or which are worth to put others aside."""
        while True:
            now = time.monotonic()
            with self._changed:
                chosen, victim = self._chosen(now)
                if chosen is None:
                    return
                self._waiting.remove(chosen)
                if chosen.tokens:
                    chosen.seconds_aside += now - chosen.waits_since
                filling = _Filling(chosen, chosen.fed_tokens, {}, 0, victim)
                self._filling.append(filling)
            shared, state = self._prefixes.find(filling.tokens)
            positions = rounded_positions(len(filling.tokens) + 1, self.max_length)
            parts = [] if state is None else [(state, [0])]
            filling.state, filling.fed = self._format.arrange(parts, 1, positions), shared
            self.tokens_shared += shared

    def _chosen(self, now: float) -> tuple[Writing | None, Writing | None]:
        """The text that is begun next, and the one that gives it its row; None if there is none."""
        taken = self._victims()
        others = [each for each in self._rows if each not in taken]
        rows = collections.Counter(each.client for each in (*others, *(each.writing for each in self._filling)))
        ordered = by_urgency(self._waiting, self._left, now, rows)
        if ordered and self._has_room(ordered[0], None):
            return ordered[0], None
        for writing in ordered:
            victim = text_that_gives_way(others, writing, self._left, self._batching.steps, rows)
            if victim is not None and self._has_room(writing, victim):
                return writing, victim
        return None, None

    def _left(self, writing: Writing) -> int:
        """Most tokens that a text still has to write."""
        return self._limit(writing) - len(writing.tokens)

    def _victims(self) -> list[Writing]:
        """The texts that are being written until another one takes their rows."""
        return [filling.victim for filling in self._filling if filling.victim in self._rows]

    def _has_room(self, writing: Writing, victim: Writing | None) -> bool:
        """Whether there is a row, and memory, for another text when those that give way have left."""
        leaving = [*self._victims(), victim]
        others = [*(each for each in self._rows if each not in leaving), *(each.writing for each in self._filling)]
        if not others:
            return True
        longest = max(self._needs(each, self._limit(each)) for each in (writing, *others))
        rows = _rounded_rows(len(others) + 1)
        size = self._format.size(rows, rounded_positions(longest, self.max_length))
        return len(others) < self._batching.rows and size <= self._batching.state_bytes

    def _keep_states(self, writings: Sequence[Writing]) -> None:
        """Keeps the states of texts that are put aside, as of prompts that come again."""
        for writing in writings:
            tokens = writing.fed_tokens
            positions = rounded_positions(len(tokens) + 1, self.max_length)
            parts = [(self._state, [self._rows.index(writing)])]
            self._prefixes.keep(tokens, self._format.arrange(parts, 1, positions))

    def _needs(self, writing: Writing, new: int) -> int:
        """Positions of a text with so many tokens of its own."""
        return min(len(writing.request.prompt) + new, self.max_length)

    def _feed(self) -> list[_Filling]:
        """Feeds pieces of texts, each in its turn; returns those that are ready to be written."""
        ready, budget = [], self._batching.prefill
        for filling in tuple(self._filling):
            tokens = filling.tokens
            piece = tokens[filling.fed : filling.fed + budget]
            if piece:
                inputs = {"token_ids": [piece], "lengths": [len(piece)], "index": [filling.fed]}
                tensors = self._model.tensors("begin", inputs) | dict(filling.state)
                filling.state = self._model.run("begin", tensors)
                filling.fed += len(piece)
                budget -= len(piece)
                self.tokens_fed += len(piece)
                if filling.fed == len(tokens):
                    self._prefixes.keep(tokens, filling.state)
            if filling.fed == len(tokens):
                ready.append(filling)
            elif piece:  # others come first the next time
                self._filling.remove(filling)
                self._filling.append(filling)
        return ready

    def _arrange(self, joining: Sequence[_Filling], leaving: Sequence[Writing] = ()) -> None:
        """Puts the state of the batch together anew: without texts that leave, with those that join."""
        gone = set(map(id, leaving))
        kept = [row for row, writing in enumerate(self._rows) if id(writing) not in gone]
        parts = [(self._state, kept), *((filling.state, [0]) for filling in joining)]
        self._rows = [*(self._rows[row] for row in kept), *(filling.writing for filling in joining)]
        self._batch_size = _rounded_rows(len(self._rows))
        self._positions = self._wanted_positions()
        self._state = self._format.arrange(parts, self._batch_size, self._positions)

    def _wanted_positions(self) -> int:
        """Positions that the next turn needs."""
        steps = self._batching.steps
        needs = [self._needs(writing, len(writing.tokens) + steps) for writing in self._rows]
        return rounded_positions(max(needs, default=1), self.max_length)

    def _advance(self) -> None:
        """Writes some tokens in each row, and ends those that are complete."""
        if self._wanted_positions() > self._positions:
            self._arrange([])
        inputs = row_inputs(self._rows, [self._limit(writing) for writing in self._rows], self._batch_size)
        tensors = self._model.tensors("advance", {**inputs, "steps": self._steps()})
        began = time.monotonic()
        result = self._model.run("advance", tensors | dict(self._state))
        self._state = {name: result[name] for name in self._state}
        ids, scores, lengths, ended = (
            result[name].numpy() for name in ("token_ids", "log_probabilities", "lengths", "ended")
        )
        best = most_probable_tokens(result)
        steps = int(lengths.max())
        self.steps_done += steps
        self._seconds_per_step = (time.monotonic() - began) / max(steps, 1)
        reasons: list[str | None] = []
        for row, writing in enumerate(self._rows):
            count = lengths[row]
            writing.take(ids[row, :count].tolist(), scores[row, :count], best[row][:count])
            self.tokens_written += int(count)
            reasons.append(STOP if ended[row] else self._reason(writing))
        for writing, reason in zip(self._rows, reasons, strict=True):
            if reason == FAILED:
                writing.end(FAILED, error=GrammarError.__name__)
        self.texts.look(self._rows, reasons)
        leaving = [writing for writing, reason in zip(self._rows, reasons, strict=True) if reason is not None]
        if leaving:
            self._arrange([], leaving)

    def _steps(self) -> int:
        """Tokens of this turn."""
        # what may come next in a grammar is known for a single step
        if any(writing.mask is not None for writing in self._rows):
            return 1
        if not any(row.request.streams_text for row in self._rows):
            return self._batching.steps
        if len(self._rows) <= ROWS_OF_SINGLE_TOKENS:
            return 1
        fit = TURN_SECONDS / self._seconds_per_step if self._seconds_per_step else 1
        return max(1, min(self._batching.steps, int(fit)))

    def _reason(self, writing: Writing) -> str | None:
        """Why a text without an end token ends, None if it goes on."""
        mask = writing.mask
        if mask is not None:
            try:
                mask.accept(writing.tokens[-1])
            except ValueError:  # the others of the batch go on
                return FAILED
            if mask.must_end:  # complete, or at a place where no token fits
                return STOP if mask.may_end else LENGTH
        return LENGTH if len(writing.tokens) >= self._limit(writing) else None

    def _limit(self, writing: Writing) -> int:
        request = writing.request
        return min(request.max_new_tokens, self.max_length - len(request.prompt))


def _rounded_rows(rows: int) -> int:
    rounded = 1
    while rounded < rows:
        rounded *= 2
    return rounded
