"""Grammars of answers that must call tools, as texts of the library llguidance."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

# JSON as models have learnt to write it, and `json.dumps` writes it
_OPTIONS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def call_grammar(style: Mapping[str, Any], functions: Sequence[Mapping[str, Any]], most: int | None = None) -> str:
    """Returns the grammar of answers that are calls of some functions, at least one.

    Args:
        style: The style of the model, as `ToolStyle.to_dict` describes it.
        functions: The functions, with `name` and `parameters`.
        most: Most calls, 1; None for any number.

    Example:

    >>> call_grammar({"call_begin": "<call>", "call_end": "</call>"}, [{"name": "now"}], most=1)
    'start: "" call ""\\ncall: call_0\\ncall_0: "<call>{\\"name\\": \\"now\\", ...'
    """
    texts = {name: style.get(name, "") for name in ("calls_begin", "calls_end", "call_begin", "call_end")}
    separator = style.get("calls_separator", "\n")
    more = "" if most == 1 else f" ({_text(separator)} call)*"
    lines = [
        f"start: {_text(texts['calls_begin'])} call{more} {_text(texts['calls_end'])}",
        f"call: {' | '.join(f'call_{place}' for place in range(len(functions)))}",
    ]
    for place, function in enumerate(functions):
        key = style.get("arguments", "arguments")
        before = f'{texts["call_begin"]}{{"name": {_text(function["name"])}, "{key}": '
        lines.append(f"call_{place}: {_text(before)} arguments_{place} {_text('}' + texts['call_end'])}")
        # each schema is a document of its own, to which its references refer
        schema = {"x-guidance": _OPTIONS, "type": "object", **(function.get("parameters") or {})}
        lines.append(f"arguments_{place}: %json {json.dumps(schema)}")
    return "\n".join(lines)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
