"""The server's side of a worker: it starts the process, asks it, and notices its end."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from recipes.serving.messages import pack, receive_from


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

    def __init__(self, process: subprocess.Popen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._process, self._reader, self._writer = process, reader, writer
        self.pid = process.pid
        self.about: dict[str, Any] = {}
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Queue] = {}
        self._gone = False
        self._listening: asyncio.Task | None = None

    @classmethod
    async def start(cls, directory: str | Path, options: dict[str, Any]) -> WorkerClient:
        """Starts a worker and waits until its model is loaded and warm.

        Args:
            directory: Folder of the export.
            options: As for `recipes.serving.worker.Worker`.

        Raises:
            WorkerError: If the model cannot be loaded.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "recipes.serving.worker", str(theirs.fileno()), str(directory)]
            process = subprocess.Popen(
                [*command, json.dumps(options)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ},
                start_new_session=True,
            )
        ours.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours)
        worker = cls(process, reader, writer)
        try:
            first = await receive_from(reader)
        except asyncio.CancelledError:
            process.kill()
            raise
        if first is None or "ready" not in first:
            process.kill()
            await asyncio.to_thread(process.wait)
            raise WorkerError("failed", (first or {}).get("message", "The process of the model has ended."))
        worker.about = first["ready"]
        worker._listening = asyncio.create_task(worker._listen())
        return worker

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended, so that it answers no more."""
        return self._gone

    async def ended(self) -> None:
        """Waits until the process has ended."""
        if self._listening is not None:
            await asyncio.wait([self._listening])

    async def call(self, endpoint: str, inputs: dict[str, Any], seconds: float | None = None) -> dict[str, Any]:
        """Returns the outputs of an endpoint, arrays by name.

        Args:
            endpoint: Its name.
            inputs: An array or nested lists for each input.
            seconds: How long somebody waits for the answer.

        Raises:
            WorkerError: If it does not answer.
        """
        answers = self._ask({"operation": "call", "endpoint": endpoint, "inputs": inputs, "seconds": seconds})
        async for answer in answers:
            return answer["outputs"]
        raise AssertionError  # an iteration without an answer raises

    async def write(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yields what is new of a text, the last time with a `reason`; leaving the loop cancels the rest.

        Args:
            request: `text` or `messages`, and fields of `recipes.serving.writing.WritingRequest` but for the prompt;
                `seconds` instead of its deadline.

        Raises:
            WorkerError: If it does not answer.
        """
        async for answer in self._ask({"operation": "write", **request}):
            yield answer
            if "reason" in answer:
                return

    async def state(self) -> dict[str, Any]:
        """Returns loads and counts of the worker."""
        async for answer in self._ask({"operation": "state"}):
            return answer
        raise AssertionError

    async def close(self, seconds: float = 30) -> None:
        """Lets the worker answer what it was asked, and ends it; kills it if it takes longer.

        Args:
            seconds: How long it may take.
        """
        if self._writer.can_write_eof() and not self._gone:
            self._writer.write_eof()
        try:
            await asyncio.wait_for(asyncio.to_thread(self._process.wait), seconds)
        except TimeoutError:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        if self._listening is not None:
            await self._listening
        self._writer.close()

    async def _ask(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        if self._gone:
            raise WorkerError("gone", "The process of the model has ended.")
        number = next(self._numbers)
        answers = self._answers[number] = asyncio.Queue()
        is_over = False
        try:
            self._writer.write(pack({"id": number, **request}))
            await self._writer.drain()
            while True:
                answer = await answers.get()
                if answer is None:
                    is_over = True
                    raise WorkerError("gone", "The process of the model has ended.")
                if "error" in answer:
                    is_over = True
                    raise WorkerError(answer["error"], answer["message"])
                is_over = "text" not in answer or "reason" in answer
                yield answer
        except ConnectionError as error:
            is_over = True
            raise WorkerError("gone", "The process of the model has ended.") from error
        finally:
            del self._answers[number]
            if not is_over and not self._gone:
                self._writer.write(pack({"id": number, "operation": "cancel"}))

    async def _listen(self) -> None:
        try:
            while (answer := await receive_from(self._reader)) is not None:
                waiting = self._answers.get(answer["id"])
                if waiting is not None:
                    waiting.put_nowait(answer)
        finally:
            self._gone = True
            for waiting in self._answers.values():
                waiting.put_nowait(None)
