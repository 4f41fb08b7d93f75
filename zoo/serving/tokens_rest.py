"""Tokens of texts and texts of tokens, as llama-server and vLLM describe their routes.

Reference:
    https://github.com/ggml-org/llama.cpp/tree/master/tools/server, https://docs.vllm.ai/en/latest/serving
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from zoo.serving.bodies import read_json
from zoo.serving.conversation_fields import Message, Tool
from zoo.serving.problems import Problem
from zoo.serving.request_fields import Fields, few
from zoo.serving.row_arrays import padded
from zoo.serving.server_state import ServerState
from zoo.serving.worker_client import WorkerClient

PATHS = ("/tokenize", "/detokenize")
# Tokens before one that tell how it is spelled.
_BEFORE = 32


class ContentBody(Fields):
    """A request for the tokens of a text, of llama-server."""

    model: str | None = None
    content: str
    add_special: bool = False
    with_pieces: bool = False


class PromptBody(Fields):
    """A request for the tokens of a prompt, of vLLM."""

    idle: ClassVar = {"return_token_strs": (False,)}
    model: str | None = None
    prompt: str
    add_special_tokens: bool = True


class ConversationBody(Fields):
    """A request for the tokens of a conversation, of vLLM."""

    idle: ClassVar = {
        "return_token_strs": (False,),
        "add_generation_prompt": (True,),
        "continue_final_message": (False,),
        "add_special_tokens": (False,),
    }
    model: str | None = None
    messages: Annotated[list[Message], Field(min_length=1), AfterValidator(few)]
    tools: list[Tool] = []


class TokensBody(Fields):
    """A request for the text of tokens."""

    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0, le=2**31 - 1)]]


def routes() -> list[Route]:
    """Returns the routes `/tokenize` and `/detokenize`."""
    return [Route(path, answer, methods=["POST"]) for path, answer in zip(PATHS, (tokenize, detokenize), strict=True)]


async def tokenize(request: Request) -> JSONResponse:
    """Answers the tokens of a text or a conversation."""
    state: ServerState = request.app.state.server
    content = await read_json(request, state.limits)
    if "content" in content:
        return await _tokens_with_pieces(state, ContentBody.read(content, state.limits))
    body: Any = (ConversationBody if "messages" in content else PromptBody).read(content, state.limits)
    async with state.models.fitting(body.model, has_tokens) as (name, worker):
        if isinstance(body, PromptBody):
            ids = await _ids(state, worker, body.prompt, body.add_special_tokens)
        elif "chat_tokens" not in worker.about["endpoints"]:
            raise Problem(422, f"The model {name!r} has no chat format: send a prompt.")
        else:
            messages, tools = ([each.request() for each in part] for part in (body.messages, body.tools))
            ids = await worker.chat_tokens(messages, tools, state.limits.seconds)
        longest = worker.about["endpoints"]["advance"]["properties"]["max_length"]
    return JSONResponse({"count": len(ids), "max_model_len": longest, "tokens": ids})


async def _tokens_with_pieces(state: ServerState, body: ContentBody) -> JSONResponse:
    async with state.models.fitting(body.model, has_tokens) as (_, worker):
        ids = await _ids(state, worker, body.content, body.add_special)
        if not body.with_pieces or not ids:
            return JSONResponse({"tokens": ids})
        before = [ids[max(place - _BEFORE, 0) : place] for place in range(len(ids))]
        *pieces, whole = await _texts(state, worker, [*before, []], [*([token] for token in ids), ids])
    if "".join(pieces) != whole:
        raise Problem(422, "with_pieces must be false: a token of this text is a part of a character.")
    return JSONResponse({"tokens": [{"id": token, "piece": p} for token, p in zip(ids, pieces, strict=True)]})


async def detokenize(request: Request) -> JSONResponse:
    """Answers the text of tokens, by the names of both programs; tokens that begin or end texts have none."""
    state: ServerState = request.app.state.server
    body = TokensBody.read(await read_json(request, state.limits), state.limits)
    async with state.models.fitting(body.model, has_tokens) as (_, worker):
        require_known(worker, body.tokens)
        start = await _ids(state, worker, "", True)
        ends = worker.about["endpoints"]["advance"]["properties"]["texts"]["end_ids"]
        ids = body.tokens[len(start) if body.tokens[: len(start)] == start else 0 :]
        ids = [token for token in ids if token not in ends]
        text = (await _texts(state, worker, [[]], [ids]))[0]
    return JSONResponse({"content": text, "prompt": text})


def has_tokens(about: dict[str, Any]) -> bool:
    """Whether a model says the tokens of a text, and the text of tokens."""
    return {"tokens", "continuation", "advance"} <= set(about["endpoints"])


def require_known(worker: WorkerClient, token_ids: list[int]) -> None:
    """Raises a `Problem` if the model has no token of a number: it would end all texts of its batch."""
    count = worker.about["endpoints"]["forward"]["outputs"][0]["shape"][-1]
    if max(token_ids, default=0) >= count:
        raise Problem(422, f"Tokens must be numbers from 0 to {count - 1} with this model.")


async def _ids(state: ServerState, worker: WorkerClient, text: str, has_start: bool) -> list[int]:
    """The tokens of a text, with those that stand before each prompt or without."""
    answer = await worker.call("tokens", {"texts": [text, ""]}, state.limits.seconds)
    ids, start = (row[:length].tolist() for row, length in zip(answer["token_ids"], answer["lengths"], strict=True))
    return ids if has_start or ids[: len(start)] != start else ids[len(start) :]


async def _texts(
    state: ServerState, worker: WorkerClient, before: list[list[int]], token_ids: list[list[int]]
) -> list[str]:
    """The texts that tokens add to those before them."""
    inputs = {"prompts": padded(before), "token_ids": padded(token_ids)}
    texts = (await worker.call("continuation", inputs, state.limits.seconds))["texts"].tolist()
    return [text.decode("utf-8", "replace") for text in texts]
