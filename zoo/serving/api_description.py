"""What the server can be asked, for programs (OpenAPI) and for people: made from its routes and their declared fields.

Reference:
    https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from zoo.serving import inference_rest, openai_rest, responses_rest, scoring_rest, tokens_rest
from zoo.serving.openai_fields import ChatBody, CompletionBody, EmbeddingBody
from zoo.serving.request_fields import Fields
from zoo.serving.responses_fields import ResponseBody
from zoo.serving.scoring_fields import (
    EmbedBody,
    PredictBody,
    RerankBody,
    RerankTextsBody,
    ScoreBody,
    SimilarityBody,
)
from zoo.serving.web_page import HEADERS
from zoo.version import __version__

PATHS = ("/openapi.json", "/docs")
# What the bodies of requests are, by who answers them: one of several kinds.
BODIES: dict[Callable[..., Any], tuple[type[Fields], ...]] = {
    openai_rest.completions: (CompletionBody,),
    openai_rest.chat_completions: (ChatBody,),
    openai_rest.embeddings: (EmbeddingBody,),
    responses_rest.responses: (ResponseBody,),
    scoring_rest.embed: (EmbedBody,),
    scoring_rest.similarity: (SimilarityBody,),
    scoring_rest.predict: (PredictBody,),
    scoring_rest.rerank: (RerankBody, RerankTextsBody),
    scoring_rest.score: (ScoreBody,),
    tokens_rest.tokenize: (tokens_rest.ContentBody, tokens_rest.PromptBody, tokens_rest.ConversationBody),
    tokens_rest.detokenize: (tokens_rest.TokensBody,),
    inference_rest.infer: (inference_rest.InferBody,),
}
_PLACE = "#/components/schemas/{model}"


def routes() -> list[Route]:
    """Returns the routes `/openapi.json` and `/docs`."""
    return [Route(path, answer, methods=["GET"]) for path, answer in zip(PATHS, (openapi, docs), strict=True)]


async def openapi(request: Request) -> JSONResponse:
    """Answers this description for programs."""
    return JSONResponse(_described(request))


async def docs(request: Request) -> Response:
    """Answers this description for people."""
    return Response(page_of(_described(request)), media_type="text/html", headers=HEADERS)


def _described(request: Request) -> dict[str, Any]:
    state = request.app.state
    if not hasattr(state, "description"):  # made once: nobody needs a key to ask for it
        found = [each for each in request.app.routes if not each.path.startswith("/page/")]
        state.description = describe_api(found, state.server.api_key is not None)
    mounted_at = request.scope.get("root_path")
    return {**state.description, "servers": [{"url": mounted_at}]} if mounted_at else state.description


def describe_api(found: Iterable[Route], needs_key: bool) -> dict[str, Any]:
    """Returns the document of OpenAPI.

    Args:
        found: The routes. The first line of what a function says of itself describes its route.
        needs_key: Whether requests must bring a key.

    Example:

    >>> describe_api(openai_rest.routes(), False)["paths"]["/v1/models"]["get"]["summary"]
    'Answers the list of models.'
    """
    kinds = list(dict.fromkeys(kind for every in BODIES.values() for kind in every))
    references, definitions = models_json_schema([(kind, "validation") for kind in kinds], ref_template=_PLACE)
    schemas = definitions["$defs"] | {"Error": {"type": "object", "required": ["error"]}}
    failure = {"description": "What was wrong.", "content": _json({"$ref": _PLACE.format(model="Error")})}
    paths: dict[str, dict[str, Any]] = {}
    for route in found:
        for method in sorted(set(route.methods or ()) - {"HEAD"}):
            said = {"summary": (route.endpoint.__doc__ or "").partition("\n")[0]}
            said["responses"] = {"200": {"description": "The answer."}, "4XX": failure, "5XX": failure}
            said["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in re.findall(r"{(\w+)}", route.path)
            ]
            if method == "POST":
                bodies = [references[kind, "validation"] for kind in BODIES.get(route.endpoint, ())]
                content = {"anyOf": bodies} if len(bodies) > 1 else bodies[0] if bodies else {"type": "object"}
                said["requestBody"] = {"required": True, "content": _json(content)}
            paths.setdefault(route.path, {})[method.lower()] = said
    document = {"openapi": "3.1.0", "info": {"title": "keras-transformer-zoo", "version": __version__}, "paths": paths}
    document["components"] = {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
    return document | ({"security": [{"key": []}]} if needs_key else {})


def page_of(document: dict[str, Any]) -> str:
    """Returns a page for people: a section for each route, with the fields of its bodies."""
    parts = []
    for path, methods in document["paths"].items():
        for method, said in methods.items():
            parts.append(
                f"<h2><code>{method.upper()} {html.escape(path)}</code></h2><p>{html.escape(said['summary'])}</p>"
            )
            schema = said.get("requestBody", {"content": _json({})})["content"]["application/json"]["schema"]
            for body in schema.get("anyOf", [schema]):
                parts += _rows(document["components"]["schemas"].get(body.get("$ref", "").rpartition("/")[2]))
    title = html.escape(document["info"]["title"])
    head = f'<meta charset="utf-8"><title>{title}</title><link rel="stylesheet" href="page/look.css">'
    lead = f'<h1>{title}</h1><p><a href="openapi.json">OpenAPI</a></p>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{lead}{"".join(parts)}</body></html>'


def _rows(schema: dict[str, Any] | None) -> Iterable[str]:
    if schema is None:
        return
    yield f"<p>{html.escape(schema.get('description', '').partition(chr(10))[0])}</p><ul>"
    for name, field in schema["properties"].items():
        need = ", required" if name in schema.get("required", ()) else ""
        yield f"<li><code>{html.escape(name)}</code>: {html.escape(_kind(field))}{need}</li>"
    yield "</ul>"


def _kind(field: dict[str, Any]) -> str:
    """A type in words, such as "string or array"."""
    if "enum" in field or "const" in field:
        return " or ".join(json.dumps(value) for value in field.get("enum", [field.get("const")]))
    kinds = [field.get("type") or field.get("$ref", "any").rpartition("/")[2] for field in field.get("anyOf", [field])]
    return " or ".join(dict.fromkeys(kinds))


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
