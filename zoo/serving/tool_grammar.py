"""Grammars of answers that call tools, as texts of the library llguidance."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

NO_TOOLS = "The chat format of this model has no tools: choose a style by chat_format.with_tools, and export it again."
# JSON as models have learnt to write it, and `json.dumps` writes it
_OPTIONS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}

# what allows arguments that `properties` does not name, or says itself that there are none
_WITH_OTHERS = {
    *("additionalProperties", "patternProperties", "unevaluatedProperties", "$ref", "$dynamicRef"),
    *("allOf", "anyOf", "oneOf", "if", "dependentSchemas"),
}


def call_grammar(
    style: Mapping[str, Any],
    functions: Sequence[Mapping[str, Any]],
    most: int | None = None,
    words: str | None = None,
) -> str:
    """Returns the grammar of answers that are calls of some functions, at least one.

    Args:
        style: The style of the model, as `ToolStyle.to_dict` describes it.
        functions: The functions, with `name` and `parameters`.
        most: Most calls, 1; None for any number.
        words: What answers may be, too: "" for any words, in which what begins as a call must be one; or a rule, such
            as `%json {"type": "object"}`. None for calls alone.

    Example:

    >>> call_grammar({"call_begin": "<call>", "call_end": "</call>"}, [{"name": "now"}], most=1)
    'start: calls\\ncalls: "" call ""\\ncall: "<call>" body "</call>"\\nbody: body_0\\n...'
    """
    texts = {name: style.get(name, "") for name in ("calls_begin", "calls_end", "call_begin", "call_end")}
    calls_begin, calls_end, begin, end = map(_text, texts.values())
    more = "" if most == 1 else f" ({_text(style.get('calls_separator', chr(10)))} call)*"
    lines = ["start: calls", f"calls: {calls_begin} call{more} {calls_end}", f"call: {begin} body {end}"]
    if words:
        lines = ["start: calls | words", *lines[1:], f"words: {words}"]
    elif words is not None and texts["call_begin"]:
        sign = re.escape(texts["call_begin"].strip()).replace("/", r"\/")
        free = f"WORDS: /(?s:.*)/ & ~/(?s:.*){sign}(?s:.*)/"
        lines = [f"start: (BEFORE body {end})* WORDS", f"BEFORE: WORDS {begin}", free]
    elif words is not None:
        sign = re.escape(texts["calls_begin"] or "{")
        lines = ["start: calls | WORDS", *lines[1:], rf"WORDS: /(?s:\s*[^\s{sign}].*)?/"]
    lines.append(f"body: {' | '.join(f'body_{place}' for place in range(len(functions)))}")
    for place, function in enumerate(functions):
        before = f'{{"name": {_text(function["name"])}, "{style.get("arguments", "arguments")}": '
        lines.append(f"body_{place}: {_text(before)} arguments_{place} {_text('}')}")
        # each schema is a document of its own, to which its references refer
        schema = {"x-guidance": _OPTIONS, **_closed(function.get("parameters") or {}), "type": "object"}
        lines.append(f"arguments_{place}: %json {json.dumps(schema)}")
    return "\n".join(lines)


def _closed(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of arguments without any beside those that are named: a function takes no others."""
    is_plain = "properties" in parameters and not _WITH_OTHERS & parameters.keys()
    return {**parameters, "additionalProperties": False} if is_plain else parameters


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
