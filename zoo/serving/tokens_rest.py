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
from zoo.serving.read_texts import require_known, without_special
from zoo.serving.request_fields import Fields, few
from zoo.serving.row_arrays import padded
from zoo.serving.server_state import ServerState
from zoo.serving.worker_client import WorkerClient

PATHS = ("/tokenize", "/detokenize")


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
    client = state.client_of(request)
    content = await read_json(request, state.limits)
    if "content" in content:
        return await _tokens_with_pieces(state, client, ContentBody.read(content, state.limits))
    body: Any = (ConversationBody if "messages" in content else PromptBody).read(content, state.limits)
    async with state.models.fitting(body.model, continues_texts, has_tokens) as (name, worker):
        if isinstance(body, PromptBody):
            ids = await _ids(state, worker, client, body.prompt, body.add_special_tokens)
        elif "chat_tokens" not in worker.about["endpoints"]:
            raise Problem(422, f"The model {name!r} has no chat format: send a prompt.")
        else:
            messages, tools = ([each.request() for each in part] for part in (body.messages, body.tools))
            ids = await worker.chat_tokens(messages, tools, state.limits.seconds)
    return JSONResponse({"count": len(ids), "max_model_len": _facts(worker.about)["max_length"], "tokens": ids})


async def _tokens_with_pieces(state: ServerState, client: str, body: ContentBody) -> JSONResponse:
    async with state.models.fitting(body.model, continues_texts, has_tokens) as (_, worker):
        ids = await _ids(state, worker, client, body.content, body.add_special)
        if not body.with_pieces:
            return JSONResponse({"tokens": ids})
        if "spellings" not in worker.about["endpoints"]:
            raise Problem(422, "with_pieces must be false with this model.")
        answer = await worker.call("spellings", {"token_ids": ids}, state.limits.seconds, client)
    pieces = map(_piece, answer["spellings"].tolist())
    return JSONResponse({"tokens": [{"id": token, "piece": piece} for token, piece in zip(ids, pieces, strict=True)]})


def _piece(spelling: bytes) -> str | list[int]:
    """What a token adds to a text; the bytes of one that is a part of a character."""
    try:
        return spelling.decode()
    except UnicodeDecodeError:
        return list(spelling)


async def detokenize(request: Request) -> JSONResponse:
    """Answers the text of tokens, by the names of both programs; tokens that begin or end texts have none."""
    state: ServerState = request.app.state.server
    client = state.client_of(request)
    body = TokensBody.read(await read_json(request, state.limits), state.limits)
    async with state.models.fitting(body.model, continues_texts) as (_, worker):
        require_known(worker, body.tokens)
        start = await _ids(state, worker, client, "", True)
        ends = worker.about["endpoints"]["advance"]["properties"]["texts"]["end_ids"]
        ids = body.tokens[len(start) if body.tokens[: len(start)] == start else 0 :]
        ids = [token for token in ids if token not in ends]
        inputs = {"prompts": padded([[]]), "token_ids": padded([ids])}
        answer = await worker.call("continuation", inputs, state.limits.seconds, client)
    text = answer["texts"][0].decode("utf-8", "replace")
    return JSONResponse({"content": text, "prompt": text})


def continues_texts(about: dict[str, Any]) -> bool:
    """Whether a model writes token by token, and says the tokens of a text, and the text of tokens."""
    return {"tokens", "continuation", "advance"} <= set(about["endpoints"])


def has_tokens(about: dict[str, Any]) -> bool:
    """Whether a model says the tokens of a text."""
    endpoint = about["endpoints"].get("tokens")
    return endpoint is not None and len(endpoint["inputs"]) == 1


def _facts(about: dict[str, Any]) -> dict[str, Any]:
    return about["endpoints"]["advance" if continues_texts(about) else "tokens"]["properties"]


async def _ids(state: ServerState, worker: WorkerClient, client: str, text: str, has_special: bool) -> list[int]:
    """The tokens of a text, with those that stand around each text or without."""
    answer = await worker.call("tokens", {"texts": [text, ""]}, state.limits.seconds, client)
    ids, start = (row[:length].tolist() for row, length in zip(answer["token_ids"], answer["lengths"], strict=True))
    if has_special:
        return ids
    if not continues_texts(worker.about):
        return without_special(ids, _facts(worker.about))
    return ids if ids[: len(start)] != start else ids[len(start) :]
