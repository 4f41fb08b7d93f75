"""The interface of language models that most clients speak: completions, chat, embeddings, as OpenAI describes it.

Reference:
    https://platform.openai.com/docs/api-reference
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from zoo.serving.bodies import read_json
from zoo.serving.generations import begin_generation
from zoo.serving.openai_choices import ChatAnswer, CompletionAnswer
from zoo.serving.openai_fields import ChatBody, CompletionBody, EmbeddingBody
from zoo.serving.problems import Problem
from zoo.serving.read_texts import read_texts, read_tokens
from zoo.serving.scoring_rest import makes_vectors, require_width, usage_of
from zoo.serving.server_state import ServerState
from zoo.serving.text_answers import answer_texts

# The stream of random numbers of result k of a text is k times this, as in `generate`.
FIRST_RESULTS = 1 << 24
PATHS = ("/v1/models", "/v1/completions", "/v1/chat/completions", "/v1/embeddings")


def routes() -> list[Route]:
    """Returns the routes `/v1/models`, `/v1/completions`, `/v1/chat/completions` and `/v1/embeddings`."""
    answers = (models, completions, chat_completions, embeddings)
    methods = (["GET"], ["POST"], ["POST"], ["POST"])
    return [Route(*each[:2], methods=each[2]) for each in zip(PATHS, answers, methods, strict=True)]


async def models(request: Request) -> JSONResponse:
    """Answers the list of models."""
    state: ServerState = request.app.state.server
    if not state.models.names:  # clients choose from the list: an empty one would end them
        state.models.require_known()
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
        for number in range(body.written)
    ]
    return await answer_texts(request, body, asked, CompletionAnswer(body))


async def chat_completions(request: Request) -> Response:
    """Answers answers to a conversation."""
    state: ServerState = request.app.state.server
    body = ChatBody.read(await read_json(request, state.limits), state.limits)
    settings = {**body.request(), **await body.grammar()}
    asked = [{**settings, "stream": k * FIRST_RESULTS} for k in range(body.n)]
    return await answer_texts(request, body, asked, ChatAnswer(body))


async def embeddings(request: Request) -> Response:
    """Answers a vector for each text."""
    state: ServerState = request.app.state.server
    body = EmbeddingBody.read(await read_json(request, state.limits), state.limits)
    async with state.models.worker(body.model) as worker:
        if not makes_vectors(worker.about):
            raise Problem(422, f"The model {body.model!r} makes no embeddings.")
        generation = begin_generation(request.scope, "embeddings", body.model)
        if isinstance(body.input[0], str):
            outputs, count = await read_texts(request, worker, worker.about["default"], {"texts": body.input})
        else:
            outputs, count = await read_tokens(request, worker, body.input)
    vectors, usage = outputs["embeddings"].astype("float32"), usage_of(count)
    generation.count(usage)
    require_width(vectors, body.dimensions)

    def written(vector: np.ndarray) -> Any:
        return base64.b64encode(vector.tobytes()).decode() if body.encoding_format == "base64" else vector.tolist()

    data = [{"object": "embedding", "index": index, "embedding": written(v)} for index, v in enumerate(vectors)]
    return JSONResponse({"object": "list", "data": data, "model": body.model, "usage": usage})
