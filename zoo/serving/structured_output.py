"""Grammars that answers must follow, as the texts that the library llguidance reads: the key `grammar` of a message.

A worker lets a text have the tokens alone with which it can still become one of the grammar, whatever this says: a
schema, a regular expression, some texts of which it is one, or a grammar that is written as one.

Reference:
    https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import json
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.extras import import_extra
from zoo.serving.problems import Problem

# Between the parts of JSON there may be a space, or the end of a line with some indentation: as much white space as a
# model likes to write could be without an end. As in `zoo.generation.JSONSchema`.
JSON_OPTIONS = {"whitespace_pattern": r"( |\r?\n[ \t]{0,20})"}
# Most characters of a grammar: reading one takes up to a second for each hundred thousand.
MOST_CHARACTERS = 2**16
# Stack of what reads them: rules that refer to each other by the thousand overflow one of the usual 8 MB, which ends
# the process. It is taken as it is needed.
STACK_BYTES = 2**29
# Parts of what llguidance says that are no text of the user's, and words of JSON Schema that it may not know.
_PHRASES = (
    "Invalid type",
    "No options in anyOf",
    "Unimplemented keys",
    "Unknown format",
    "Unsatisfiable schema",
    "backreferences are not supported",
    "look-around, including look-ahead and look-behind, is not supported",
    "lookarounds not supported",
    "oneOf constraints are not supported",
    "recursion limit exceeded",
    "regex parse error",
    "retrieving it failed",
    "too deeply nested",
    "unclosed group",
    "unknown name",
)
_WORDS = re.compile(
    r'"(if|then|else|not|contains|minContains|maxContains|uniqueItems|propertyNames|dependentRequired|dependentSchemas|'
    r'dependencies|unevaluatedItems|unevaluatedProperties|additionalItems|minProperties|maxProperties|\$dynamicRef)"'
)


def json_grammar(schema: Mapping[str, Any]) -> str:
    """Returns the grammar of JSON that is valid by a schema.

    Args:
        schema: The schema; a key `x-guidance` holds options of llguidance.

    Example:

    >>> json_grammar({"type": "integer"})
    'start: %json {"x-guidance": {...}, "type": "integer"}'
    """
    return f"start: %json {json.dumps({'x-guidance': JSON_OPTIONS, **schema})}"


def regex_grammar(pattern: str) -> str:
    """Returns the grammar of texts that a regular expression matches from their beginning to their end.

    Raises:
        ValueError: If it ends within an escape, which would be lost.
    """
    llguidance = import_extra("llguidance", "structured")
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise ValueError("must not end with a single backslash")
    return f"start: /{llguidance.regex_to_lark(pattern, '')}/"


def choice_grammar(texts: Sequence[str]) -> str:
    """Returns the grammar of some texts.

    Args:
        texts: At least one text.
    """
    # as JSON but for a control character that llguidance does not take as it is; as in `zoo.generation.Choice`
    written = (json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f") for text in texts)
    return f"start: {' | '.join(written)}"


def lark_grammar(text: str) -> str:
    """Returns a grammar that is written as one, in the notation of Lark or that of llama.cpp (GBNF), in that of Lark.

    Raises:
        ValueError: If it is in none of them.
    """
    return import_extra("llguidance.gbnf_to_lark", "structured").any_to_lark(text)


async def require_followable(field: str, grammar: str) -> None:
    """Raises a `Problem` if texts cannot be held to a grammar.

    Args:
        field: The field of the request that says it, for the message.
        grammar: The grammar.
    """
    if len(grammar) > MOST_CHARACTERS:
        raise Problem(422, f"{field} must have at most {MOST_CHARACTERS} characters, written as a grammar.")
    # what takes long is not to hold up other requests
    said = await asyncio.wrap_future(_readers().submit(_refusal, grammar))
    if said is not None:
        raise Problem(422, f"{field} cannot be followed{_without_texts(said)}.")


@functools.cache
def _readers() -> concurrent.futures.ThreadPoolExecutor:
    """A thread that reads grammars: llguidance calls itself for each rule that refers to another one."""
    before = threading.stack_size(STACK_BYTES)
    try:
        readers = concurrent.futures.ThreadPoolExecutor(1, "grammars")
        readers.submit(int).result()  # the thread is made now
    finally:
        threading.stack_size(before)
    return readers


def _refusal(grammar: str) -> str | None:
    """Why llguidance refuses a grammar; None if it does not."""
    llguidance = import_extra("llguidance", "structured")
    is_refused, said = llguidance.LLMatcher.validate_grammar_with_warnings(grammar)
    return said[0] if is_refused else None


def _without_texts(said: str) -> str:
    """What llguidance says, without what the user wrote."""
    phrase = next((phrase for phrase in _PHRASES if phrase in said), None)
    if phrase is None:
        return ""
    words = ", ".join(dict.fromkeys(_WORDS.findall(said)))
    return f": {phrase} ({words})" if words else f": {phrase}"
