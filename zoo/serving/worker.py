"""The process that holds one version of a model: it answers the messages of the server on a socket.

The server starts it as `python -m zoo.serving.worker DESCRIPTOR DIRECTORY OPTIONS`; it is not for people.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import logging
import os
import re
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.serving.continuous_batch import (
    ContinuousBatch,
    GrammarError,
    OldExportError,
    QueueFullError,
)
from zoo.serving.dynamic_batch import DynamicBatch, LateError
from zoo.serving.exported_model import ExportedModel
from zoo.serving.logs import set_up_logs
from zoo.serving.messages import pack, receive
from zoo.serving.options import Batching, Limits
from zoo.serving.recorded_requests import replay
from zoo.serving.row_scheduling import that_gives_place
from zoo.serving.talk import Talk, UnwritableError, read_piece
from zoo.serving.token_scores import score_of
from zoo.serving.whole_texts import ADJUSTMENTS, OF_THE_WRITER, UnknownSettingError, call_of, text_of
from zoo.serving.writing import LENGTH, REFUSED, STOP, WritingRequest, Written

# Kinds of errors, as the server tells them from each other.
INVALID, BUSY, LATE, FAILED = "invalid", "busy", "late", "failed"
# Fields of a request that are those of `WritingRequest`, besides the prompt and what is made of others.
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", *ADJUSTMENTS, "seed", "stream")
_SETTINGS = (*_SAMPLING, "grammar", "stop", "streams_text", "tells_tokens", "alternatives", "client")
# What the assertions in a graph begin with, when TensorFlow raises them.
_ASSERTION = "assertion failed: ["
# How their texts lead to the rows and values at fault, which are not shown: requests share a batch.
_LEADS_TO_VALUES = re.compile(r"(; rows and [a-z ]+:|, got| in row|, is not at)$")


class RefusedError(ValueError):
    """A request that cannot be answered; the message holds no text of the user's."""


class _Asked:
    """A request that is being answered; it may be cancelled at any moment, in any thread.

    Args:
        number: Its `id`.
        deadline: Time of `time.monotonic()` after which nobody waits for the answer; None for never.
        client: Who asks.
    """

    def __init__(self, number: int, deadline: float | None, client: str) -> None:
        self.number, self.deadline, self.client = number, deadline, client
        self._lock, self._cancel = threading.Lock(), None
        self.is_cancelled = False

    @property
    def is_late(self) -> bool:
        return self.deadline is not None and self.deadline < time.monotonic()

    def begins(self, cancel: Callable[[], None]) -> None:
        """Takes the function that ends what has begun; calls it if it has been cancelled in the meantime."""
        with self._lock:
            self._cancel = cancel
            is_cancelled = self.is_cancelled
        if is_cancelled:
            cancel()

    def cancel(self) -> None:
        """Ends it, or does not let it begin."""
        with self._lock:
            self.is_cancelled = True
            cancel = self._cancel
        if cancel is not None:
            cancel()


class Worker:
    """Answers requests with a model.

    Requests are dictionaries with an `id`, which their answers have too, and an `operation`:

    * `call`: `endpoint` and `inputs`; the answer has `outputs`;
    * `write`: a `text`, `token_ids` or `messages`, and fields of `WritingRequest`; answers have a `text` piece each,
      with `tells_tokens` the `scores` of its tokens, and the last one a `reason`; with `echo` the first one has the
      prompt as `before` and `scores_before`; with `tools` they have `calls`, too, `most_calls` at most, which are no
      part of the text; models that cannot write token by token answer once, without the number of tokens;
    * `tokens`: `messages` and `tools`; the answer has `token_ids`;
    * `cancel`: the `id` of another request;
    * `state`: the answer has the loads and counts.

    What goes wrong is an answer with `error`, one of "invalid", "busy", "late" and "failed", and a `message`.

    Args:
        model: The exported model.
        options: Fields of `Batching`, and `waiting` of `Limits`.
        send: Sends an answer; may be called in any thread.
    """

    def __init__(self, model: ExportedModel, options: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> None:
        self._model, self._send = model, send
        waiting = options.get("waiting", Limits().waiting)
        batching = Batching(**{name: value for name, value in options.items() if name != "waiting"})
        self._writer = ContinuousBatch(model, batching, waiting) if "advance" in model.endpoints else None
        self._talk = None if self._writer is None or not self._writer.texts.is_chat else Talk(self._writer.texts)
        self._batches = {
            name: DynamicBatch(model, name, batching.batch, waiting, _sharing(endpoint.get("properties", {})))
            for name, endpoint in model.endpoints.items()
            if name not in OF_THE_WRITER
        }
        self._asked: dict[int, _Asked] = {}
        self._tokenizing = concurrent.futures.ThreadPoolExecutor(2, "tokens")
        # what takes long before a text is begun: other texts do not wait behind it
        self._scoring = concurrent.futures.ThreadPoolExecutor(1, "scores and grammars")
        # texts whose prompts are not tokenized yet: those that wait for a thread, and the number of those that have one
        self._unread: dict[_Asked, dict[str, Any]] = {}
        self._reading = 0
        self._most_unread, self._unread_lock = waiting, threading.Lock()

    def handle(self, request: dict[str, Any]) -> None:
        """Answers a request, now or later."""
        number, operation = request["id"], request["operation"]
        try:
            if operation == "call":
                self._call(number, request, self._begin(number, request))
            elif operation == "write":
                asked = self._begin(number, request)
                self._let_wait(asked, request)
                is_long = request.get("grammar") is not None or (request.get("echo") and request.get("tells_tokens"))
                (self._scoring if is_long else self._tokenizing).submit(self._write_when_free, asked)
            elif operation == "tokens":
                asked = self._begin(number, request)
                self._tokenizing.submit(self._tell_tokens, number, request, asked)
            elif operation == "cancel":
                asked = self._asked.pop(number, None)
                if asked is not None:
                    asked.cancel()
            elif operation == "state":
                self._send({"id": number, **self.state()})
            else:
                raise RefusedError(f"There is no operation {operation!r}.")
        except Exception as error:  # each request is answered, whatever it raises
            self._fail(number, error)

    def warm_up(self) -> None:
        """Calls what requests call, so that the first one does not wait for what happens once only."""
        writes = "generate" in self._model.endpoints
        # the default of what writes texts goes on to the length of the export: thousands of tokens take minutes
        others = {*OF_THE_WRITER, *([self._model.default] if writes else [])}
        for name, endpoint in self._model.endpoints.items():
            if name not in others and _takes_texts(endpoint):
                # the text may be none for this model; what else fails is the matter of those who ask the endpoint
                refusals = tf.errors.InvalidArgumentError if name == self._model.default else tf.errors.OpError
                with contextlib.suppress(refusals):
                    self._model.call(name, **{field["name"]: ["a"] for field in endpoint["inputs"]})
        if self._writer is not None:
            told: list[Written] = []
            # in a batch of its own, whose tokens nobody counts
            with ContinuousBatch(self._model) as batch:
                # any tokens will do: some texts have none
                prompt = [0] * min(3, batch.max_length - 1)
                for is_chat in (False, True)[: 1 + batch.texts.is_chat]:
                    batch.write(WritingRequest(prompt, 2, is_chat=is_chat, **batch.settings), told.append)
                if batch.texts.is_chat:
                    with contextlib.suppress(tf.errors.InvalidArgumentError):
                        batch.texts.chat_tokens([{"role": "user", "content": "a"}])
            for written in told:
                if written.error:
                    raise RuntimeError(f"No text can be written: {written.error}.")
        if writes:
            with contextlib.suppress(tf.errors.InvalidArgumentError, UnknownSettingError):
                name, inputs = call_of(self._model.endpoints, {"text": "a", "max_new_tokens": 1})
                self._model.call(name, **inputs)

    def state(self) -> dict[str, Any]:
        """Returns the loads of the batches, and what was counted."""
        state: dict[str, Any] = {"waiting": sum(batch.load for batch in self._batches.values())}
        state["batches"] = {name: [batch.batches, batch.rows] for name, batch in self._batches.items()}
        if self._writer is not None:
            writer = self._writer
            state |= {**writer.load, "waiting": state["waiting"] + writer.load["waiting"]}
            state |= {name: getattr(writer, name) for name in ("tokens_written", "tokens_fed", "tokens_shared")}
        return state

    def _begin(self, number: int, request: dict[str, Any]) -> _Asked:
        seconds = request.get("seconds")
        deadline = None if seconds is None else time.monotonic() + seconds
        asked = self._asked[number] = _Asked(number, deadline, request.get("client", ""))
        return asked

    def _call(self, number: int, request: dict[str, Any], asked: _Asked) -> None:
        batch = self._batches.get(request["endpoint"])
        if batch is None:
            raise RefusedError(f"endpoint must be one of {sorted(self._batches)}.")

        def tell(answer: Any) -> None:
            self._asked.pop(number, None)
            if isinstance(answer, Exception):
                self._fail(number, answer)
            else:
                self._send({"id": number, "outputs": answer})

        try:
            asked.begins(batch.call(request["inputs"], tell, asked.deadline, asked.client))
        except ValueError as error:  # of the checks of shapes and types, which show no values
            raise RefusedError(str(error)) from error

    def _let_wait(self, asked: _Asked, request: dict[str, Any]) -> None:
        """Gives a text a place to wait until a thread reads its prompt."""
        refused = None
        full = QueueFullError("Too many texts wait already.")
        with self._unread_lock:
            if len(self._unread) + self._reading >= self._most_unread:
                self._unread = {each: given for each, given in self._unread.items() if not each.is_cancelled}
            if len(self._unread) + self._reading >= self._most_unread:
                refused = that_gives_place(list(self._unread), asked.client)
                if refused is None:
                    raise full
                del self._unread[refused]
            self._unread[asked] = request
        if refused is not None:
            self._fail(refused.number, full)

    def _write_when_free(self, asked: _Asked) -> None:
        with self._unread_lock:
            request = self._unread.pop(asked, None)
            if request is None or asked.is_cancelled:  # it has lost its place, or nobody wants it
                return
            self._reading += 1
        try:
            if asked.is_late:
                raise LateError("Nobody waits for the text.")
            self._write(asked.number, request, asked)
        except Exception as error:  # each request is answered, whatever it raises
            self._fail(asked.number, error)
        finally:
            with self._unread_lock:
                self._reading -= 1

    def _write(self, number: int, request: dict[str, Any], asked: _Asked) -> None:
        writer = self._writer
        if writer is None:
            self._write_whole(number, request, asked)
            return
        is_chat, reader = "messages" in request, None
        if is_chat:
            talk = self._require_talk()
            prompt, reader = talk.tokens(request), talk.reader(request)
        else:
            prompt = request["token_ids"] if "token_ids" in request else writer.texts.tokens([request["text"]])[0]
        most = request.get("max_new_tokens")
        most = writer.properties["max_new_tokens"] if most is None else most
        longest = writer.max_length - min(most, 1)
        if not 0 < len(prompt) <= longest:
            raise RefusedError(f"The prompt must have from 1 to {longest} tokens, it has {len(prompt)}.")
        settings = {**writer.settings, **{name: request[name] for name in _SETTINGS if request.get(name) is not None}}
        settings.setdefault("seed", secrets.randbits(32))
        settings["logit_bias"] = dict(request.get("logit_bias") or ())
        if settings.get("min_tokens", 0) > (room := min(most, writer.max_length - len(prompt))):
            raise RefusedError(f"min_tokens must be at most {room}, the most tokens of this text.")

        before: dict[str, Any] = {}
        if request.get("echo"):
            before["before"] = request["text"] if "text" in request else writer.texts.text_of(prompt)
            if settings.get("tells_tokens"):
                each, most_scores = 1 + settings.get("alternatives", 0), request["most_scores"]
                if len(prompt) * each > most_scores:
                    raise RefusedError(
                        f"The prompt must have at most {most_scores // each} tokens with these logprobs."
                    )
                told = writer.texts.score(prompt, settings.get("alternatives", 0))
                before["scores_before"] = [score_of(*each, writer.texts.spellings) for each in told]

        def answer_of(written: Written) -> dict[str, Any]:
            calls: list[dict[str, Any]] = []
            text = written.text
            if reader is not None:
                text, calls = read_piece(reader, text, written.reason is not None)
            answer = {"id": number, "text": text, "calls": calls, "tokens": written.tokens, **before}
            answer["prompt_tokens"] = len(prompt)
            before.clear()
            if written.scores:
                answer["scores"] = [score_of(*each, writer.texts.spellings) for each in written.scores]
            if written.reason is not None:
                answer |= {"reason": written.reason, "log_probability": written.log_probability}
            return answer

        def tell(written: Written) -> None:
            if written.reason == REFUSED:
                self._fail(number, QueueFullError("Too many texts wait already."))
                return
            if written.error:
                logging.getLogger(__name__).error("A text could not be written: %s", written.error)
            try:
                self._send(answer_of(written))
            except Exception as error:  # whoever waits is told, whatever the text has
                self._fail(number, error)
                raise
            if written.reason is not None:
                self._asked.pop(number, None)

        if not most:
            tell(Written("", LENGTH))
            return
        wanted = WritingRequest(prompt, most, is_chat=is_chat, deadline=asked.deadline, **settings)
        if not asked.is_cancelled:
            asked.begins(writer.write(wanted, tell).cancel)

    def _tell_tokens(self, number: int, request: dict[str, Any], asked: _Asked) -> None:
        try:
            if asked.is_late:
                raise LateError("Nobody waits for the tokens.")
            token_ids = self._require_talk().tokens(request)
            self._asked.pop(number, None)
            self._send({"id": number, "token_ids": token_ids})
        except Exception as error:  # each request is answered, whatever it raises
            self._fail(number, error)

    def _require_talk(self) -> Talk:
        if self._talk is None:
            raise RefusedError("This model has no chat format: send a text.")
        return self._talk

    def _write_whole(self, number: int, request: dict[str, Any], asked: _Asked) -> None:
        name, inputs = call_of(self._model.endpoints, request)

        def tell(answer: Any) -> None:
            self._asked.pop(number, None)
            if isinstance(answer, Exception):
                self._fail(number, answer)
            else:
                text = text_of(self._model.endpoints[name], request, answer)
                before = {"before": request["text"]} if request.get("echo") else {}
                self._send({"id": number, "text": text, "reason": STOP, **before})

        asked.begins(self._batches[name].call(inputs, tell, asked.deadline, asked.client))

    def _fail(self, number: int, error: Exception) -> None:
        self._asked.pop(number, None)
        if isinstance(error, (RefusedError, UnknownSettingError, UnwritableError, GrammarError)):
            kind, message = INVALID, str(error)
        elif isinstance(error, QueueFullError):
            kind, message = BUSY, str(error)
        elif isinstance(error, LateError):
            kind, message = LATE, str(error)
        elif isinstance(error, tf.errors.InvalidArgumentError):
            kind, message = INVALID, _assertion(error.message)
        else:
            kind, message = FAILED, "The model could not answer."
            logging.getLogger(__name__).error("A request failed: %s", type(error).__name__)
        self._send({"id": number, "error": kind, "message": message})


def _takes_texts(endpoint: Mapping[str, Any]) -> bool:
    return all(field["dtype"] == "string" and field["shape"] == ["batch"] for field in endpoint["inputs"])


def _sharing(properties: Mapping[str, Any]) -> Callable[[Mapping[str, np.ndarray]], bool]:
    """Says of which calls of an endpoint the results do not depend on their places in a batch."""
    if properties.get("draws", False):
        return lambda inputs: False
    if properties.get("may_draw", False):
        return lambda inputs: not (inputs["temperature"] > 0).any()
    return lambda inputs: True


def _assertion(message: str) -> str:
    """What an assertion of ours says, which holds no text of the user's; of other errors nothing."""
    _, found, rest = message.partition(_ASSERTION)
    if not found:
        return "The input is not valid."
    said = rest.partition("\n")[0].partition("[[")[0].partition("]")[0]
    return _LEADS_TO_VALUES.sub("", said).rstrip(" .:") + "."


def main(arguments: list[str]) -> None:
    """Runs the process.

    Args:
        arguments: The number of an open socket, the folder of the model, and options as JSON.
    """
    descriptor, directory, options = arguments
    set_up_logs()
    connection = socket.socket(fileno=int(descriptor))
    # the server ends its workers itself, when it has got what it asked for; others may tell a whole group to end
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    lock = threading.Lock()

    def send(answer: dict[str, Any]) -> None:
        with lock:
            connection.sendall(pack(answer))

    try:
        model = ExportedModel(Path(directory))
        worker = Worker(model, json.loads(options), send)
        worker.warm_up()
        replay(model, directory)
    except Exception as error:  # whatever a damaged export raises
        # the message of a folder that is no model may show where it is
        said = str(error).replace(directory, Path(directory).name).replace(str(Path(directory).resolve()), "")
        logging.getLogger(__name__).error("The model could not be loaded: %s: %s", type(error).__name__, said)
        reason = str(error) if isinstance(error, OldExportError) else f"{type(error).__name__}."
        send({"id": 0, "error": FAILED, "message": f"The model could not be loaded: {reason}"})
        sys.exit(1)
    about = {"default": model.default, "endpoints": model.endpoints}
    send({"id": 0, "ready": about})
    while (request := receive(connection)) is not None:
        worker.handle(request)
    # nobody waits for an answer any more: what is being computed need not come to its end
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
