"""Vectors, scores and ranks, as Text Embeddings Inference, Cohere, Jina and vLLM describe their routes.

Reference:
    https://huggingface.github.io/text-embeddings-inference, https://docs.cohere.com/reference/rerank,
    https://api.jina.ai/redoc, https://docs.vllm.ai/en/latest/models/pooling_models
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from zoo.serving.bodies import path_of, read_json
from zoo.serving.problems import Problem
from zoo.serving.read_texts import read_texts
from zoo.serving.scoring_fields import (
    EmbedBody,
    PredictBody,
    RerankBody,
    RerankTextsBody,
    ScoreBody,
    SimilarityBody,
)
from zoo.serving.server_state import ServerState
from zoo.serving.worker_client import WorkerClient

# Where errors have the form of Text Embeddings Inference, and of OpenAI.
TEXT_EMBEDDINGS_PATHS = ("/embed", "/similarity", "/predict", "/rerank")
PATHS = ("/v1/rerank", "/v2/rerank", "/v1/score")
_ERROR_TYPES = {429: "Overloaded", 500: "Backend", 503: "Unhealthy", 504: "Backend"}
# Where Text Embeddings Inference tells how many tokens its model has read.
_TOKENS_HEADER = "X-Compute-Tokens"


def routes() -> list[Route]:
    """Returns the routes `/embed`, `/similarity`, `/predict`, `/rerank`, `/v1/rerank`, `/v2/rerank` and `/v1/score`."""
    answers = (embed, similarity, predict, rerank, rerank, rerank, score)
    paths = (*TEXT_EMBEDDINGS_PATHS, *PATHS)
    return [Route(path, answer, methods=["POST"]) for path, answer in zip(paths, answers, strict=True)]


def error_type(status: int) -> str:
    """Returns what Text Embeddings Inference calls an error of a status."""
    return _ERROR_TYPES.get(status, "Validation")


async def embed(request: Request) -> JSONResponse:
    """Answers a vector for each text."""
    state: ServerState = request.app.state.server
    body = EmbedBody.read(await read_json(request, state.limits), state.limits)
    async with state.models.fitting(body.model, makes_vectors) as (_, worker):
        vectors, count = await _vectors(request, worker, body.inputs, body.prompt_name)
    require_width(vectors, body.dimensions)
    return _counted((_unit(vectors) if body.normalize else vectors).tolist(), count)


async def similarity(request: Request) -> JSONResponse:
    """Answers the cosine of a sentence and each of others."""
    state: ServerState = request.app.state.server
    body = SimilarityBody.read(await read_json(request, state.limits), state.limits)
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    async with state.models.fitting(body.model, makes_vectors) as (_, worker):
        vectors, count = await _vectors(request, worker, texts, body.parameters.prompt_name)
    vectors = _unit(vectors)
    return _counted((vectors[1:] @ vectors[0]).tolist(), count)


async def predict(request: Request) -> JSONResponse:
    """Answers the labels of each row with their scores, the highest first."""
    state: ServerState = request.app.state.server
    body = PredictBody.read(await read_json(request, state.limits), state.limits)
    is_one = isinstance(body.inputs[0], str)
    rows = [body.inputs] if is_one else body.inputs
    state.require_rows([rows])
    async with state.models.fitting(body.model, classifies) as (_, worker):
        inputs = [field["name"] for field in _default(worker.about)["inputs"]]
        if any(len(row) != len(inputs) for row in rows):
            raise Problem(422, f"inputs must have rows of {len(inputs)} texts with this model.")
        columns = zip(*rows, strict=True)
        scores, count = await _scores_of_labels(request, worker, columns, body.raw_scores)
        names = (await worker.call("label_names", {}, state.limits.seconds, state.client_of(request)))["label_names"]
    labels = [name.decode("utf-8", "replace") for name in names]
    answers = [[{"score": float(row[index]), "label": labels[index]} for index in _best_first(row)] for row in scores]
    return _counted(answers[0] if is_one else answers, count)


async def rerank(request: Request) -> JSONResponse:
    """Answers which documents fit to a query best."""
    state: ServerState = request.app.state.server
    content = await read_json(request, state.limits)
    path = path_of(request.scope)
    if path == "/rerank" and "documents" not in content:
        return await _rerank_texts(request, RerankTextsBody.read(content, state.limits))
    body = RerankBody.read(content, state.limits)
    name, scores, count = await _scores_of_pairs(request, body.model, [body.query], body.documents)
    shows = path != "/v2/rerank" if body.return_documents is None else body.return_documents
    results = [
        {"index": index, "relevance_score": float(scores[index])}
        | ({"document": {"text": body.documents[index]}} if shows else {})
        for index in _best_first(scores)[: body.top_n or None]
    ]
    version = {"version": "2" if path == "/v2/rerank" else "1"}
    meta = {"api_version": version, "tokens": {"input_tokens": count, "output_tokens": 0}}
    return JSONResponse({**_head("rerank", name, count), "results": results, "meta": meta})


async def _rerank_texts(request: Request, body: RerankTextsBody) -> JSONResponse:
    state: ServerState = request.app.state.server
    async with state.models.fitting(body.model, ranks) as (_, worker):
        columns = [body.query] * len(body.texts), body.texts
        rows, count = await _scores_of_labels(request, worker, columns, body.raw_scores)
    scores = rows[:, 0]
    results = [
        {"index": index, **({"text": body.texts[index]} if body.return_text else {}), "score": float(scores[index])}
        for index in _best_first(scores)
    ]
    return _counted(results, count)


async def score(request: Request) -> JSONResponse:
    """Answers how well the texts of each pair fit."""
    state: ServerState = request.app.state.server
    body = ScoreBody.read(await read_json(request, state.limits), state.limits)
    body.require_pairs()
    name, scores, count = await _scores_of_pairs(request, body.model, body.first, body.second)
    data = [{"index": index, "object": "score", "score": float(each)} for index, each in enumerate(scores)]
    return JSONResponse({**_head("score", name, count), "created": int(time.time()), "data": data})


def _head(prefix: str, model: str, count: int) -> dict[str, Any]:
    return {"id": f"{prefix}-{secrets.token_hex(12)}", "object": "list", "model": model, "usage": usage_of(count)}


def usage_of(count: int) -> dict[str, int]:
    """Returns the numbers of tokens by the names of OpenAI, of an answer that has none."""
    return {"prompt_tokens": count, "total_tokens": count}


def _counted(answer: Any, count: int) -> JSONResponse:
    """An answer of Text Embeddings Inference."""
    return JSONResponse(answer, headers={_TOKENS_HEADER: f"{count}"})


# What models are, by what the server knows of them.


def _default(about: dict[str, Any]) -> dict[str, Any]:
    return about["endpoints"][about["default"]]


def makes_vectors(about: dict[str, Any]) -> bool:
    """Whether a model makes a vector of a text."""
    return [field["name"] for field in _default(about)["outputs"]] == ["embeddings"]


def classifies(about: dict[str, Any]) -> bool:
    """Whether a model makes numbers of a text, or of a pair of texts: one for each of its labels."""
    field = _default(about)["outputs"][0]
    has_numbers = field["name"] in ("probabilities", "values") and len(field["shape"]) == 2
    return has_numbers and "label_names" in about["endpoints"]


def ranks(about: dict[str, Any]) -> bool:
    """Whether a model makes one number of a pair of texts."""
    return classifies(about) and len(_default(about)["inputs"]) == 2 and _default(about)["outputs"][0]["shape"][1] == 1


# What they answer.


async def _call(request: Request, worker: WorkerClient, endpoint: str, columns: Any) -> tuple[np.ndarray, int]:
    """The first output of an endpoint, and the number of tokens that it has read."""
    about = worker.about["endpoints"][endpoint]
    inputs = {field["name"]: list(column) for field, column in zip(about["inputs"], columns, strict=True)}
    outputs, count = await read_texts(request, worker, endpoint, inputs)
    return outputs[about["outputs"][0]["name"]], count


async def _vectors(
    request: Request, worker: WorkerClient, texts: Sequence[str], prompt: str | None = None
) -> tuple[np.ndarray, int]:
    endpoint = worker.about["default"]
    if prompt is not None:
        prompts = [name for name in worker.about["endpoints"] if name.startswith("serve_")]
        endpoint = "serve_" + re.sub(r"\W", "_", prompt, flags=re.ASCII)
        if endpoint not in prompts:
            known = ", ".join(name.removeprefix("serve_") for name in prompts)
            raise Problem(422, f"prompt_name must be one of {known}." if known else "This model has no prompts.")
    vectors, count = await _call(request, worker, endpoint, [texts])
    return vectors.astype("float32"), count


async def _scores_of_labels(request: Request, worker: WorkerClient, columns: Any, raw: bool) -> tuple[np.ndarray, int]:
    """Probabilities, or the values of a regression: raw as they are, otherwise between 0 and 1."""
    has_values = _default(worker.about)["outputs"][0]["name"] == "values"
    if raw and not has_values:
        raise Problem(422, "raw_scores must be false: this model was exported with probabilities.")
    scores, count = await _call(request, worker, worker.about["default"], columns)
    # the logistic function, without an overflow
    return (1 + np.tanh(scores / 2)) / 2 if has_values and not raw else scores, count


async def _scores_of_pairs(
    request: Request, model: str | None, first: Sequence[str], second: Sequence[str]
) -> tuple[str, np.ndarray, int]:
    """The name of the model, what it says of each pair (a cross-encoder, otherwise cosines), and the tokens."""
    state: ServerState = request.app.state.server
    async with state.models.fitting(model, ranks, makes_vectors) as (name, worker):
        if ranks(worker.about):
            columns = list(first) * (len(second) // len(first)), second
            scores, count = await _call(request, worker, worker.about["default"], columns)
            return name, scores[:, 0], count
        vectors, count = await _vectors(request, worker, [*first, *second])
    vectors = _unit(vectors)
    return name, np.sum(vectors[: len(first)] * vectors[len(first) :], axis=1), count


def require_width(vectors: np.ndarray, dimensions: int | None) -> None:
    """Raises a `Problem` if vectors have another width than a request asks for."""
    if dimensions not in (None, vectors.shape[1]):
        raise Problem(422, f"dimensions must be {vectors.shape[1]} with this model.")


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo("float32").tiny)


def _best_first(scores: np.ndarray) -> list[int]:
    """Equal ones in their order."""
    return np.argsort(-scores, kind="stable").tolist()
