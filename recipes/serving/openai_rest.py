"""The interface of language models that most clients speak: completions, chat, embeddings, as OpenAI describes it.

Reference:
    https://platform.openai.com/docs/api-reference
"""

from __future__ import annotations

import asyncio
import base64
import collections
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from recipes.serving.bodies import read_json
from recipes.serving.disconnects import all_or_none, unless_gone
from recipes.serving.generations import begin_generation
from recipes.serving.openai_fields import ChatBody, CompletionBody, EmbeddingBody, WritingBody
from recipes.serving.problems import Problem, problem_of
from recipes.serving.scoring_rest import makes_vectors, require_width
from recipes.serving.server_state import ServerState
from recipes.serving.structured_output import require_followable
from recipes.serving.token_scores import TokenScore, as_content, as_lists, scores_of
from recipes.serving.tokens_rest import has_tokens, require_known
from recipes.serving.tool_grammar import call_grammar
from recipes.serving.worker_client import WorkerClient

# The stream of random numbers of result k of a text is k times this, as in `generate`.
FIRST_RESULTS = 1 << 24
PATHS = ("/v1/models", "/v1/completions", "/v1/chat/completions", "/v1/embeddings")
_REASONS = {"deadline": Problem(504, "The text was not complete in time."), "failed": Problem(500, "The text failed.")}


def routes() -> list[Route]:
    """Returns the routes `/v1/models`, `/v1/completions`, `/v1/chat/completions` and `/v1/embeddings`."""
    answers = (models, completions, chat_completions, embeddings)
    methods = (["GET"], ["POST"], ["POST"], ["POST"])
    return [Route(*each[:2], methods=each[2]) for each in zip(PATHS, answers, methods, strict=True)]


async def models(request: Request) -> JSONResponse:
    """Answers the list of models."""
    state: ServerState = request.app.state.server
    return JSONResponse({"object": "list", "data": [describe(name) for name in state.models.names]})


def describe(name: str) -> dict[str, Any]:
    """Returns what the list of models says of one."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "zoo"}


async def completions(request: Request) -> Response:
    """Answers texts that continue prompts."""
    state: ServerState = request.app.state.server
    body = CompletionBody.read(await read_json(request, state.limits), state.limits)
    settings = {**body.request(), **await body.grammar()}
    asked = [
        {"text" if isinstance(prompt, str) else "token_ids": prompt, **settings, "stream": number * FIRST_RESULTS}
        for prompt in body.prompt
        for number in range(body.n)
    ]
    return await _answer(request, body, asked, _Completion(body, "cmpl", "text_completion"))


async def chat_completions(request: Request) -> Response:
    """Answers answers to a conversation."""
    state: ServerState = request.app.state.server
    body = ChatBody.read(await read_json(request, state.limits), state.limits)
    settings = {**body.request(), **await body.grammar()}
    asked = [{**settings, "stream": k * FIRST_RESULTS} for k in range(body.n)]
    return await _answer(request, body, asked, _Chat(body, "chatcmpl", "chat.completion"))


async def embeddings(request: Request) -> Response:
    """Answers a vector for each text."""
    state: ServerState = request.app.state.server
    body = EmbeddingBody.read(await read_json(request, state.limits), state.limits)
    async with state.models.worker(body.model) as worker:
        if not makes_vectors(worker.about):
            raise Problem(422, f"The model {body.model!r} makes no embeddings.")
        begin_generation(request.scope, "embeddings", body.model)
        call = worker.call(worker.about["default"], {"texts": body.input}, state.limits.seconds)
        vectors = (await unless_gone(request, call))["embeddings"].astype("float32")
    require_width(vectors, body.dimensions)

    def written(vector: np.ndarray) -> Any:
        return base64.b64encode(vector.tobytes()).decode() if body.encoding_format == "base64" else vector.tolist()

    data = [{"object": "embedding", "index": index, "embedding": written(v)} for index, v in enumerate(vectors)]
    usage = {"prompt_tokens": 0, "total_tokens": 0}
    return JSONResponse({"object": "list", "data": data, "model": body.model, "usage": usage})


class _Completion:
    """How texts and their pieces are written in answers."""

    operation = "text_completion"

    def __init__(self, body: WritingBody, prefix: str, kind: str) -> None:
        self.kind, self.alternatives = kind, body.alternatives
        self.head = {"id": f"{prefix}-{secrets.token_hex(12)}", "created": int(time.time()), "model": body.model}
        # what has been told of each text with its tokens
        self._told: dict[int, bytes] = {}

    def whole(self, index: int, text: str, last: dict[str, Any]) -> dict[str, Any]:
        """The choice of a text, of whose pieces the last one has all tokens."""
        return self._choice(index, last.get("before", "") + text, last)

    def pieces(self, index: int, piece: dict[str, Any] | None) -> list[dict[str, Any]]:
        """The choices of the events of a piece; None before the first one."""
        if piece is None:
            return []
        text = piece.get("before", "") + piece["text"]
        return [self._choice(index, text, piece)] if text or "reason" in piece else []

    def _choice(self, index: int, text: str, piece: dict[str, Any]) -> dict[str, Any]:
        return {
            "index": index,
            "text": text,
            "logprobs": self._logprobs(index, piece),
            "finish_reason": piece.get("reason"),
        }

    def _logprobs(self, index: int, piece: dict[str, Any]) -> dict[str, Any] | None:
        if self.alternatives is None:
            return None
        scores, before = scores_of(piece), self._told.get(index, b"")
        self._told[index] = before + b"".join(score["bytes"] for score in scores)
        return as_lists(scores, self.alternatives, before)

    def event(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {**self.head, "object": self.kind, "choices": choices, **more}


class _Chat(_Completion):
    operation = "chat"

    def __init__(self, body: WritingBody, prefix: str, kind: str) -> None:
        super().__init__(body, prefix, kind)
        # calls of each answer that were told, and tokens that were not: their text may yet become a call
        self._called: collections.Counter[int] = collections.Counter()
        self._untold: dict[int, list[TokenScore]] = collections.defaultdict(list)

    def whole(self, index: int, text: str, last: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        if calls := last.get("calls"):
            message |= {"content": text or None, "tool_calls": calls}
            self._called[index] = len(calls)
        told = self._logprobs(index, last)
        return {"index": index, "message": message, "logprobs": told, "finish_reason": self._reason(index, last)}

    def pieces(self, index: int, piece: dict[str, Any] | None) -> list[dict[str, Any]]:
        if piece is None:
            return [self._delta(index, {"role": "assistant", "content": ""})]
        choices = [self._delta(index, {"content": piece["text"]})] if piece["text"] else []
        for call in piece.get("calls", ()):
            numbered = {"index": self._called[index], **call}
            self._called[index] += 1
            choices.append(self._delta(index, {"tool_calls": [numbered]}))
        if "reason" in piece and (piece.get("calls") or not choices):
            # clients take a call for complete when something else comes
            choices.append(self._delta(index, {}))
        if not choices:
            self._untold[index] += scores_of(piece)
            return []
        choices[0]["logprobs"] = self._logprobs(index, piece)
        if "reason" in piece:
            choices[-1]["finish_reason"] = self._reason(index, piece)
        return choices

    def _delta(self, index: int, delta: dict[str, Any]) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def _reason(self, index: int, last: dict[str, Any]) -> str:
        return "tool_calls" if last["reason"] == "stop" and self._called[index] else last["reason"]

    def _logprobs(self, index: int, piece: dict[str, Any]) -> dict[str, Any] | None:
        if self.alternatives is None:
            return None
        return as_content([*self._untold.pop(index, ()), *scores_of(piece)], self.alternatives)

    def event(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {**super().event(choices, **more), "object": f"{self.kind}.chunk"}


async def _answer(request: Request, body: WritingBody, asked: list[dict[str, Any]], form: _Completion) -> Response:
    state: ServerState = request.app.state.server
    if len(asked) > state.limits.rows:
        raise Problem(413, f"A request must have at most {state.limits.rows} results.")
    shared = {"streams_text": body.stream, "seconds": state.limits.seconds, "client": state.client_of(request)}
    asked = [{**each, **shared} for each in asked]
    if body.stream:
        # the first piece is awaited here, so that what is refused has a status of its own
        events = _events(state, body, asked, form, request.scope)
        first = await unless_gone(request, anext(events))
        return _Stream(_lines(first, events), media_type="text/event-stream", headers={"Cache-Control": "no-store"})
    async with state.models.worker(body.model) as worker:
        asked = await _fitting(worker, body, asked)
        generation = begin_generation(request.scope, form.operation, body.model)
        results = await unless_gone(request, all_or_none(_whole(worker, each) for each in asked))
    choices = [form.whole(index, text, last) for index, (text, last) in enumerate(results)]
    usage = _usage([last for _, last in results], body.n)
    generation.count(usage)
    return JSONResponse({**form.head, "object": form.kind, "choices": choices, "usage": usage})


async def _whole(worker: WorkerClient, asked: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A text and its last piece, with all calls and tokens of the text."""
    text, told, calls, scores = "", {}, [], []
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
    form: _Completion,
    scope: MutableMapping[str, Any],
) -> AsyncIterator[dict[str, Any] | None]:
    """The events of texts that are written at the same time, None where there has been none for long."""
    began, lasts = time.monotonic(), {}
    told: asyncio.Queue = asyncio.Queue()
    async with state.models.worker(body.model) as worker:
        asked = await _fitting(worker, body, asked)
        generation = begin_generation(scope, form.operation, body.model)

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
            while len(lasts) < len(asked):
                try:
                    async with asyncio.timeout(state.limits.heartbeat_seconds):
                        index, piece = await told.get()
                except TimeoutError:
                    yield None
                    continue
                if isinstance(piece, Exception):
                    raise piece
                if "reason" in piece:
                    _require_complete(piece)
                    lasts[index] = piece
                choices = [] if index in begun else form.pieces(index, None)
                if not begun:
                    generation.first_seconds = time.monotonic() - began
                begun.add(index)
                choices += form.pieces(index, piece)
                for choice in choices:
                    yield form.event([choice])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    usage = _usage([lasts[index] for index in sorted(lasts)], body.n)
    generation.count(usage)
    if body.stream_options.include_usage:
        yield form.event([], usage=usage)


async def _lines(first: dict[str, Any] | None, events: AsyncIterator[dict[str, Any] | None]) -> AsyncIterator[str]:
    """Events as a stream of lines; one that fails ends with the reason."""
    async with contextlib.aclosing(events):
        yield _line(first)
        try:
            async for event in events:
                yield _line(event)
        except Exception as error:  # the answer has begun: only an event can say so
            problem = problem_of(error)
            yield _line({"error": {"message": problem.reason, "code": problem.status}})
            return
        yield "data: [DONE]\n\n"


def _line(event: dict[str, Any] | None) -> str:
    # a comment keeps proxies and clients from closing the connection
    return ": waiting\n\n" if event is None else f"data: {json.dumps(event, ensure_ascii=False)}\n\n"


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
        raise Problem(422, f"The chat format of the model {body.model!r} has no tools.")
    grammar = call_grammar(style, body.held_functions, body.most_calls, words)
    await require_followable("tools", grammar)
    return [{**each, "grammar": grammar} for each in asked]


def _require_writer(worker: WorkerClient, name: str, asked: list[dict[str, Any]]) -> None:
    if not {"advance", "generate"} & set(worker.about["endpoints"]):
        raise Problem(422, f"The model {name!r} does not write texts.")
    if has_tokens(worker.about):
        require_known(worker, [token for each in asked for token in each.get("token_ids", ())])
        require_known(worker, [token for token, _ in asked[0].get("logit_bias", ())])


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
