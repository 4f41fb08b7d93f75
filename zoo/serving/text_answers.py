"""Texts of language models as answers: whole, or as a stream of events; each interface has its own words for them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, MutableMapping, Sequence
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from zoo.serving.disconnects import all_or_none, unless_gone
from zoo.serving.generations import begin_generation
from zoo.serving.openai_fields import ChatBody, WritingBody
from zoo.serving.problems import Problem, problem_of
from zoo.serving.read_texts import require_known
from zoo.serving.server_state import ServerState
from zoo.serving.structured_output import require_followable
from zoo.serving.tokens_rest import continues_texts
from zoo.serving.tool_grammar import NO_TOOLS, call_grammar
from zoo.serving.worker_client import WorkerClient

# Texts with their last pieces.
Results = Sequence[tuple[str, dict[str, Any]]]
# Numbers of tokens by the names of completions; None where the model does not count them.
Usage = dict[str, int] | None
# Most log-probabilities of the prompts of a request: they take some 60 bytes each, several times.
MOST_SCORES = 2**19
_REASONS = {
    "deadline": Problem(504, "The text was not complete in time."),
    # of which nobody but the client can have been the reason, who has no answer then
    "cancelled": Problem(500, "The text failed."),
    "failed": Problem(500, "The text failed."),
}


class Answer(Protocol):
    """How texts that are written at the same time are told.

    Attributes:
        operation: What is done, see `zoo.serving.generations.Generation`.
        closing: What ends a stream.
    """

    operation: str
    closing: str

    def whole(self, results: Results, usage: Usage) -> dict[str, Any]:
        """Returns the answer that has all texts.

        Args:
            results: Of each its text and its last piece, which has the calls and tokens of all.
            usage: Numbers of tokens.
        """

    def begin(self, index: int) -> list[dict[str, Any]]:
        """Returns the events before the first piece of a text."""

    def events(self, index: int, piece: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the events of a piece of a text, as a worker tells it."""

    def end(self, usage: Usage) -> list[dict[str, Any]]:
        """Returns the events behind all texts."""

    def failed(self, problem: Problem) -> dict[str, Any]:
        """Returns the event of a problem, which ends the stream."""

    def line(self, event: dict[str, Any]) -> str:
        """Returns an event as it is sent."""


async def answer_texts(request: Request, body: WritingBody, asked: list[dict[str, Any]], answer: Answer) -> Response:
    """Lets texts be written, and answers them whole or as a stream.

    Args:
        request: The request.
        body: Its fields.
        asked: What is asked of the worker for each text.
        answer: How it is told.

    Raises:
        Problem: If the model does not write such texts, or not in time.
    """
    state: ServerState = request.app.state.server
    if len(asked) > state.limits.rows:
        raise Problem(413, f"A request must have at most {state.limits.rows} results.")
    shared = {"streams_text": body.stream, "seconds": state.limits.seconds, "client": state.client_of(request)}
    asked = [{**each, **shared, "most_scores": MOST_SCORES // len(asked)} for each in asked]
    if body.stream:
        # the first piece is awaited here, so that what is refused has a status of its own
        events = _events(state, body, asked, answer, request.scope)
        first = await unless_gone(request, anext(events))
        return _Stream(
            _lines(first, events, answer), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )
    async with state.models.worker(body.model) as worker:
        asked = await _fitting(worker, body, asked)
        generation = begin_generation(request.scope, answer.operation, body.model)
        results = await unless_gone(request, all_or_none(_whole(worker, each) for each in asked))
    usage = _usage([last for _, last in results], body.written)
    generation.count(usage)
    results = _best(results, body)
    # tokens with their log-probabilities may be many
    return await asyncio.to_thread(lambda: JSONResponse(answer.whole(results, usage)))


async def _whole(worker: WorkerClient, asked: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A text and its last piece, with all calls and tokens of the text."""
    told: dict[str, Any] = {}
    text, calls, scores = "", [], []
    async with contextlib.aclosing(worker.write(asked)) as pieces:
        async for piece in pieces:
            told |= piece
            text += piece["text"]
            calls += piece.get("calls", ())
            scores += piece.get("scores", ())
    _require_complete(told)
    return text, {**told, "calls": calls, "scores": scores}


async def _events(
    state: ServerState,
    body: WritingBody,
    asked: list[dict[str, Any]],
    answer: Answer,
    scope: MutableMapping[str, Any],
) -> AsyncIterator[dict[str, Any] | None]:
    """The events of texts that are written at the same time, None where there has been none for long."""
    lasts: dict[int, float] = {}
    began = time.monotonic()
    told: asyncio.Queue[Any] = asyncio.Queue()
    async with state.models.worker(body.model) as worker:
        asked = await _fitting(worker, body, asked)
        generation = begin_generation(scope, answer.operation, body.model)

        async def follow(index: int) -> None:
            try:
                async with contextlib.aclosing(worker.write(asked[index])) as pieces:
                    async for piece in pieces:
                        told.put_nowait((index, piece))
            except Exception as error:  # whatever ends one text ends the answer
                told.put_nowait((index, error))

        tasks = [asyncio.create_task(follow(index)) for index in range(len(asked))]
        try:
            begun: set[int] = set()
            clock = asyncio.get_running_loop().time
            said = clock()
            while len(lasts) < len(asked):
                try:
                    async with asyncio.timeout_at(said + state.limits.heartbeat_seconds):
                        index, piece = await told.get()
                except TimeoutError:
                    said = clock()
                    yield None
                    continue
                if isinstance(piece, Exception):
                    raise piece
                if "reason" in piece:
                    _require_complete(piece)
                    lasts[index] = piece
                events = [] if index in begun else answer.begin(index)
                if not begun:
                    generation.first_seconds = time.monotonic() - began
                begun.add(index)
                for event in [*events, *answer.events(index, piece)]:
                    said = clock()
                    yield event
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    usage = _usage([lasts[index] for index in sorted(lasts)], body.written)
    generation.count(usage)
    for event in answer.end(usage):
        yield event


async def _lines(
    first: dict[str, Any] | None, events: AsyncIterator[dict[str, Any] | None], answer: Answer
) -> AsyncIterator[str]:
    """Events as a stream of lines; one that fails ends with the reason."""

    def line(event: dict[str, Any] | None) -> str:
        # a comment keeps proxies and clients from closing the connection
        return ": waiting\n\n" if event is None else answer.line(event)

    async with contextlib.aclosing(events):
        yield line(first)
        try:
            async for event in events:
                yield line(event)
        except Exception as error:  # the answer has begun: only an event can say so
            yield line(answer.failed(problem_of(error)))
            return
        yield answer.closing


class _Stream(StreamingResponse):
    """Closes what it streams when the client goes, so that its texts end at once."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async with contextlib.aclosing(self.body_iterator):
            await super().__call__(scope, receive, send)


async def _fitting(worker: WorkerClient, body: WritingBody, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same requests, as the model takes them; raises a `Problem` if it does not."""
    _require_writer(worker, body.model, asked)
    if not isinstance(body, ChatBody) or not asked[0].get("tools"):
        return asked
    words = None
    if body.tool_choice == "auto":
        # an answer that must be JSON may call tools in its place; of other grammars nothing can be told
        given = asked[0].get("grammar")
        if given is None and not body.has_strict_tools:
            return asked
        words = "" if given is None else given.removeprefix("start: ")
        if words and not words.startswith("%json "):
            return asked
    properties = worker.about["endpoints"].get("advance", {}).get("properties", {})
    style = properties.get("chat", {}).get("format", {}).get("tools")
    if style is None:
        raise Problem(422, NO_TOOLS)
    grammar = call_grammar(style, body.held_functions, body.most_calls, words)
    await require_followable("tools", grammar)
    return [{**each, "grammar": grammar} for each in asked]


def _require_writer(worker: WorkerClient, name: str, asked: list[dict[str, Any]]) -> None:
    if not {"advance", "generate"} & set(worker.about["endpoints"]):
        raise Problem(422, f"The model {name!r} does not write texts.")
    if continues_texts(worker.about):
        require_known(worker, [token for each in asked for token in each.get("token_ids", ())])
        require_known(worker, [token for token, _ in asked[0].get("logit_bias", ())])


def _best(results: Results, body: WritingBody) -> Results:
    """The `n` texts of each prompt whose tokens are the most probable on average, the best one first."""
    if body.written == body.n:
        return results

    def mean(result: tuple[str, dict[str, Any]]) -> float:
        return result[1]["log_probability"] / max(result[1]["tokens"], 1)

    prompts = [results[first : first + body.written] for first in range(0, len(results), body.written)]
    return [each for texts in prompts for each in sorted(texts, key=mean, reverse=True)[: body.n]]


def _require_complete(piece: dict[str, Any]) -> None:
    if piece["reason"] in _REASONS:
        raise _REASONS[piece["reason"]]


def _usage(lasts: list[dict[str, Any]], per_prompt: int) -> dict[str, int] | None:
    """Tokens of prompts, each counted once, and of texts; None where the model does not count them."""
    if any("tokens" not in last for last in lasts):
        return None
    prompts = sum(last["prompt_tokens"] for last in lasts[::per_prompt])
    written = sum(last["tokens"] for last in lasts)
    return {"prompt_tokens": prompts, "completion_tokens": written, "total_tokens": prompts + written}
