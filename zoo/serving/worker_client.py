"""The server's side of a worker: it starts the process, asks it, and notices its end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from zoo.serving.messages import pack, receive_from

# Seconds that a model may take to load, and those after which a process that says nothing is taken for stuck.
LOAD_SECONDS, STUCK_SECONDS = 900.0, 60.0
# Seconds between two looks whether it is stuck, and those that its own answer "too late" may take to arrive.
LOOK_SECONDS, LATE_SECONDS = 10.0, 2.0
# Most requests that one process is asked at the same time; it has limits of its own, for each kind.
MOST_ASKED = 4096
_GONE = "The process of the model has ended."


class WorkerError(RuntimeError):
    """A request that a worker did not answer.

    Attributes:
        kind: "invalid", "busy", "late" or "failed", as the worker says it, or "gone" if the worker has ended.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class WorkerClient:
    """A worker process.

    Example:

    >>> worker = await WorkerClient.start("models/dates/1", {})
    >>> await worker.call("serve", {"texts": ["1st of May 1999"]})
    {'texts': array([b'1999-05-01'], dtype=object)}

    Attributes:
        about: What the worker said of the model: its default endpoint, and its endpoints.
        pid: Number of the process.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process, self._reader, self._writer = process, reader, writer
        self.pid = process.pid
        self.about: dict[str, Any] = {}
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Queue[Any]] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._gone = self._closing = self._said_end = False
        self._listening: asyncio.Task[Any] | None = None

    @classmethod
    async def start(cls, directory: str | Path, options: dict[str, Any]) -> WorkerClient:
        """Starts a worker and waits until its model is loaded and warm.

        Args:
            directory: Folder of the export.
            options: As for `zoo.serving.worker.Worker`.

        Raises:
            WorkerError: If the model cannot be loaded, or takes longer than `LOAD_SECONDS`.
            OSError: If there is no room for another process.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "zoo.serving.worker", str(theirs.fileno()), str(directory)]
            try:
                process = subprocess.Popen(
                    [*command, json.dumps(options)],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, "KERAS_BACKEND": "tensorflow"},
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours)
        worker = cls(process, reader, writer)
        first: dict[str, Any] = {}
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                first = await receive_from(reader) or {"message": _GONE}
        except TimeoutError:
            first = {"message": f"The model was not loaded within {LOAD_SECONDS:g} seconds."}
        finally:
            if "ready" not in first:
                await worker._end()
        if "ready" not in first:
            raise WorkerError("failed", first["message"])
        worker.about = first["ready"]
        worker._listening = asyncio.create_task(worker._listen())
        return worker

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended, so that it answers no more."""
        return self._gone

    async def ended(self) -> None:
        """Waits until the process has ended; ends it if it is stuck."""
        while not self._listening.done():
            await asyncio.wait([self._listening], timeout=LOOK_SECONDS)
            if not (self._listening.done() or self._closing):
                await self._end_if_stuck()

    async def call(
        self, endpoint: str, inputs: dict[str, Any], seconds: float | None = None, client: str = ""
    ) -> dict[str, Any]:
        """Returns the outputs of an endpoint, arrays by name.

        Args:
            endpoint: Its name.
            inputs: An array or nested lists for each input.
            seconds: How long somebody waits for the answer.
            client: Who asks for it: clients share the places to wait.

        Raises:
            WorkerError: If it does not answer.
        """
        request = {"operation": "call", "endpoint": endpoint, "inputs": inputs, "seconds": seconds, "client": client}
        return (await self._ask_once(request, seconds))["outputs"]

    async def chat_tokens(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], seconds: float | None = None
    ) -> list[int]:
        """Returns the token ids of a conversation that asks for an answer.

        Args:
            messages: Its messages.
            tools: The tools that the model may call.
            seconds: How long somebody waits for them.

        Raises:
            WorkerError: If it does not answer.
        """
        request = {"operation": "tokens", "messages": messages, "tools": tools, "seconds": seconds}
        return (await self._ask_once(request, seconds))["token_ids"]

    async def write(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yields what is new of a text, the last time with a `reason`; closing the iteration cancels the rest.

        Args:
            request: `text`, `token_ids` or `messages`, and fields of `zoo.serving.writing.WritingRequest` but for
                the prompt; `seconds` instead of its deadline.

        Raises:
            WorkerError: If it does not answer.
        """
        async with contextlib.aclosing(self._ask({"operation": "write", **request}, request.get("seconds"))) as answers:
            async for answer in answers:
                yield answer
                if "reason" in answer:
                    return

    async def state(self, seconds: float = LOOK_SECONDS) -> dict[str, Any]:
        """Returns loads and counts of the worker.

        Args:
            seconds: How long somebody waits for them.
        """
        return await self._ask_once({"operation": "state"}, seconds)

    async def close(self, seconds: float = 30) -> None:
        """Waits for the answers to what was asked, and ends the worker; kills it if it takes longer.

        Args:
            seconds: How long it may take.
        """
        self._closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        if not self._gone:
            self._said_end = True
            self._writer.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 1)):
                await asyncio.shield(self._listening)
        self._process.kill()
        await self._listening

    async def _ask_once(self, request: dict[str, Any], seconds: float | None) -> dict[str, Any]:
        async with contextlib.aclosing(self._ask(request, seconds)) as answers:
            return await anext(answers)

    async def _ask(self, request: dict[str, Any], seconds: float | None) -> AsyncIterator[dict[str, Any]]:
        """Yields answers; the worker says itself when it is too late, but if it is stuck."""
        if self._gone or self._closing:
            raise WorkerError("gone", _GONE)
        if len(self._answers) >= MOST_ASKED:
            raise WorkerError("busy", f"{len(self._answers)} requests wait already.")
        ends = None if seconds is None else asyncio.get_running_loop().time() + seconds + LATE_SECONDS
        number = next(self._numbers)
        answers = self._answers[number] = asyncio.Queue()
        self._idle.clear()
        is_over = False
        try:
            self._writer.write(pack({"id": number, **request}))
            async with asyncio.timeout_at(ends):
                await self._writer.drain()
            while True:
                async with asyncio.timeout_at(ends):
                    answer = await answers.get()
                if answer is None:
                    raise WorkerError("gone", _GONE)
                is_over = "text" not in answer or "reason" in answer
                if "error" in answer:
                    raise WorkerError(answer["error"], answer["message"])
                yield answer
        except TimeoutError as error:
            raise WorkerError("late", "The model did not answer in time.") from error
        except ConnectionError as error:
            raise WorkerError("gone", _GONE) from error
        finally:
            del self._answers[number]
            if not (is_over or self._said_end or self._writer.is_closing()):
                self._writer.write(pack({"id": number, "operation": "cancel"}))
            if not self._answers:
                self._idle.set()

    async def _end_if_stuck(self) -> None:
        try:
            await self._ask_once({"operation": "state"}, STUCK_SECONDS)
        except WorkerError as error:
            if error.kind == "late":
                self._process.kill()

    async def _listen(self) -> None:
        try:
            while (answer := await receive_from(self._reader)) is not None:
                waiting = self._answers.get(answer["id"])
                if waiting is not None:
                    waiting.put_nowait(answer)
        except ValueError:  # no message: nothing that follows can be read
            pass
        finally:
            self._gone = True
            for waiting in self._answers.values():
                waiting.put_nowait(None)
            await self._end()

    async def _end(self) -> None:
        """Ends the process if it has not ended yet, and leaves nothing of it behind."""
        self._process.kill()
        self._writer.close()
        await asyncio.to_thread(self._process.wait)
