"""Work that ends when the client that waits for it has gone, and that fails as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

from starlette.requests import Request

from zoo.serving.problems import Problem

_Result = TypeVar("_Result")


async def unless_gone(request: Request, answer: Awaitable[_Result]) -> _Result:
    """Returns an answer; cancels it when the client goes.

    Args:
        request: The request, whose body has been read.
        answer: What is awaited.

    Raises:
        Problem: If the client goes first; nobody reads it but the counters.
    """
    task = asyncio.ensure_future(answer)

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    leaving = asyncio.create_task(gone())
    try:
        await asyncio.wait([task, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Problem(499, "The client has gone.")
        return task.result()
    finally:
        await _cancel([task, leaving])


async def all_or_none(answers: Iterable[Awaitable[_Result]]) -> list[_Result]:
    """Returns all answers; when one fails, the others are cancelled, for nobody would read them."""
    tasks = [asyncio.ensure_future(answer) for answer in answers]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
        return [task.result() for task in tasks]
    finally:
        await _cancel(tasks)


async def _cancel(tasks: list[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
