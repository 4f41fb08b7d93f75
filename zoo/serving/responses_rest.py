"""Responses, OpenAI's newer interface for chats: texts and calls of functions, whole or as a stream of events.

Reference:
    https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zoo.serving.bodies import read_json
from zoo.serving.problems import Problem
from zoo.serving.responses_fields import LOGPROBS, ResponseBody
from zoo.serving.server_state import ServerState
from zoo.serving.text_answers import Results, Usage, answer_texts
from zoo.serving.token_scores import as_content, scores_of

PATHS = ("/v1/responses",)


def routes() -> list[Route]:
    """Returns the route `/v1/responses`."""
    return [Route(PATHS[0], responses, methods=["POST"])]


async def responses(request: Request) -> Response:
    """Answers a response to a text or a conversation."""
    state: ServerState = request.app.state.server
    body = ResponseBody.read(await read_json(request, state.limits), state.limits)
    chat = body.chat(state.limits)
    asked = [{**chat.request(), **await chat.grammar()}]
    return await answer_texts(request, chat, asked, ResponseAnswer(body))


class ResponseAnswer:
    """Answers of `/v1/responses`, see `zoo.serving.text_answers.Answer`.

    Args:
        body: The request.
    """

    operation, closing = "chat", ""

    def __init__(self, body: ResponseBody) -> None:
        self._body = body
        self._best = body.top_logprobs if LOGPROBS in body.include else None
        self._id, self._created = _name("resp"), int(time.time())
        self._output: list[dict[str, Any]] = []
        # the message that is being written, its text, and tokens whose text is not told yet
        self._message: dict[str, Any] | None = None
        self._untold: list[dict[str, Any]] = []
        self._reason = ""
        self._number = 0

    def whole(self, results: Results, usage: Usage) -> dict[str, Any]:
        """Returns the response."""
        [(text, last)] = results
        calls = last.get("calls", ())
        if text or not calls:
            part = {**_part(text), "logprobs": self._logprobs(scores_of(last))}
            self._output.append({**_message(_status(last)), "content": [part]})
        self._output += [_call(call) for call in calls]
        self._reason = last["reason"]
        return self._response(usage)

    def begin(self, index: int) -> list[dict[str, Any]]:
        """Returns the events before the text."""
        response = {**self._response(None), "status": "in_progress"}
        return [self._event(f"response.{name}", response=response) for name in ("created", "in_progress")]

    def events(self, index: int, piece: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the events of a piece of the text."""
        self._untold += scores_of(piece)
        calls, is_last = piece.get("calls", ()), "reason" in piece
        events = []
        if piece["text"] or (is_last and not (calls or self._output or self._message)):
            events += self._write(piece["text"])
        if calls or is_last:
            if self._message is not None and self._untold:  # tokens without a text of their own
                events += self._write("")
            events += self._end_message(_status(piece))
        if calls:
            self._untold = []  # those of calls
        for call in calls:
            events += self._called(call)
        self._reason = piece.get("reason", "")
        return events

    def end(self, usage: Usage) -> list[dict[str, Any]]:
        """Returns the event that has the whole response."""
        response = self._response(usage)
        return [self._event(f"response.{response['status']}", response=response)]

    def failed(self, problem: Problem) -> dict[str, Any]:
        """Returns the event of a problem."""
        return self._event("error", code=str(problem.status), message=problem.reason, param=None)

    def line(self, event: dict[str, Any]) -> str:
        """Returns an event as it is sent."""
        return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n"

    def _write(self, text: str) -> list[dict[str, Any]]:
        events = []
        if self._message is None:
            self._message = {**_message("in_progress"), "content": [_part("")]}
            item = {**self._message, "content": []}
            events.append(self._event("response.output_item.added", output_index=len(self._output), item=item))
            events.append(self._of_part("response.content_part.added", part=_part("")))
        told, self._untold = self._logprobs(self._untold), []
        part = self._message["content"][0]
        part["text"] += text
        part["logprobs"] = [*part["logprobs"], *told]
        if text:
            events.append(self._of_part("response.output_text.delta", delta=text, logprobs=told))
        return events

    def _end_message(self, status: str) -> list[dict[str, Any]]:
        if self._message is None:
            return []
        message = {**self._message, "status": status}
        [part] = message["content"]
        events = [
            self._of_part("response.output_text.done", text=part["text"], logprobs=part["logprobs"]),
            self._of_part("response.content_part.done", part=part),
            self._event("response.output_item.done", output_index=len(self._output), item=message),
        ]
        self._output.append(message)
        self._message = None
        return events

    def _called(self, call: dict[str, Any]) -> list[dict[str, Any]]:
        item, place = _call(call), {"output_index": len(self._output)}
        self._output.append(item)
        begun, arguments = {**item, "status": "in_progress", "arguments": ""}, item["arguments"]
        of_item = {**place, "item_id": item["id"]}
        return [
            self._event("response.output_item.added", **place, item=begun),
            self._event("response.function_call_arguments.delta", **of_item, delta=arguments),
            self._event("response.function_call_arguments.done", **of_item, arguments=arguments, name=item["name"]),
            self._event("response.output_item.done", **place, item=item),
        ]

    def _of_part(self, kind: str, **fields: Any) -> dict[str, Any]:
        """An event about the text of the message that is being written."""
        assert self._message is not None
        place = {"item_id": self._message["id"], "output_index": len(self._output), "content_index": 0}
        return self._event(kind, **place, **fields)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}

    def _logprobs(self, scores: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [] if self._best is None else as_content(scores, self._best)["content"]

    def _response(self, usage: Usage) -> dict[str, Any]:
        body, status = self._body, _status({"reason": self._reason})
        counted = None
        if usage is not None:
            counted = {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            }
        given = body.model_dump(
            include={
                "instructions",
                "max_output_tokens",
                "parallel_tool_calls",
                "temperature",
                "tool_choice",
                "tools",
                "top_logprobs",
                "top_p",
            },
            by_alias=True,
        )
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "error": None,
            "model": body.model,
            "output": list(self._output),
            "metadata": {},
            "store": False,
            "text": {"format": body.text.format.model_dump(by_alias=True, exclude_none=True)},
            "truncation": "disabled",
            "usage": counted,
            **given,
        }


def _name(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"


def _status(piece: dict[str, Any]) -> str:
    return "incomplete" if piece.get("reason") == "length" else "completed"


def _message(status: str) -> dict[str, Any]:
    return {"type": "message", "id": _name("msg"), "status": status, "role": "assistant"}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """A call as an item of the output."""
    function = {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
    return {"type": "function_call", "id": _name("fc"), "call_id": call["id"], "status": "completed", **function}
