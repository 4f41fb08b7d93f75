"""How completions and chats are answered: whole, and in events of a stream."""

from __future__ import annotations

import collections
import json
import secrets
import time
from typing import Any

from zoo.serving.openai_fields import WritingBody
from zoo.serving.problems import Problem
from zoo.serving.text_answers import Results, Usage
from zoo.serving.token_scores import TokenScore, as_content, as_lists, scores_of


class CompletionAnswer:
    """Answers of `/v1/completions`, see `zoo.serving.text_answers.Answer`.

    Args:
        body: The request.
    """

    operation, closing = "text_completion", "data: [DONE]\n\n"
    _prefix, _kind, _kind_of_events = "cmpl", "text_completion", "text_completion"

    def __init__(self, body: WritingBody) -> None:
        self._alternatives, self._tells_usage = body.alternatives, body.stream_options.include_usage
        self._head = {
            "id": f"{self._prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": body.model,
        }
        # what has been told of each text with its tokens
        self._told: dict[int, bytes] = {}

    def whole(self, results: Results, usage: Usage) -> dict[str, Any]:
        """Returns the answer that has all texts."""
        chosen = [self._whole(index, text, last) for index, (text, last) in enumerate(results)]
        return {**self._head, "object": self._kind, "choices": chosen, "usage": usage}

    def begin(self, index: int) -> list[dict[str, Any]]:
        """Returns the events before the first piece of a text."""
        return []

    def events(self, index: int, piece: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the events of a piece of a text."""
        return [self._event([choice]) for choice in self._pieces(index, piece)]

    def end(self, usage: Usage) -> list[dict[str, Any]]:
        """Returns the events behind all texts."""
        return [self._event([], usage=usage)] if self._tells_usage else []

    def failed(self, problem: Problem) -> dict[str, Any]:
        """Returns the event of a problem."""
        return {"error": {"message": problem.reason, "code": problem.status}}

    def line(self, event: dict[str, Any]) -> str:
        """Returns an event as it is sent."""
        return f"data: {json.dumps(event, ensure_ascii=False)}\n\n"

    def _whole(self, index: int, text: str, last: dict[str, Any]) -> dict[str, Any]:
        return self._choice(index, last.get("before", "") + text, last)

    def _pieces(self, index: int, piece: dict[str, Any]) -> list[dict[str, Any]]:
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
        if self._alternatives is None:
            return None
        scores, before = scores_of(piece), self._told.get(index, b"")
        self._told[index] = before + b"".join(score["bytes"] for score in scores)
        return as_lists(scores, self._alternatives, before)

    def _event(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {**self._head, "object": self._kind_of_events, "choices": choices, **more}


class ChatAnswer(CompletionAnswer):
    """Answers of `/v1/chat/completions`, see `zoo.serving.text_answers.Answer`.

    Args:
        body: The request.
    """

    operation = "chat"
    _prefix, _kind, _kind_of_events = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, body: WritingBody) -> None:
        super().__init__(body)
        # calls of each answer that were told, and tokens that were not: their text may yet become a call
        self._called: collections.Counter[int] = collections.Counter()
        self._untold: dict[int, list[TokenScore]] = collections.defaultdict(list)

    def _whole(self, index: int, text: str, last: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        if calls := last.get("calls"):
            message |= {"content": text or None, "tool_calls": calls}
            self._called[index] = len(calls)
        told = self._logprobs(index, last)
        return {"index": index, "message": message, "logprobs": told, "finish_reason": self._reason(index, last)}

    def begin(self, index: int) -> list[dict[str, Any]]:
        return [self._event([self._delta(index, {"role": "assistant", "content": ""})])]

    def _pieces(self, index: int, piece: dict[str, Any]) -> list[dict[str, Any]]:
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
        if self._alternatives is None:
            return None
        return as_content([*self._untold.pop(index, ()), *scores_of(piece)], self._alternatives)
