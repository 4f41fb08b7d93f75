"""Grammars in the notation of Lark that llguidance reads: of JSON schemas, regular expressions, texts and others.

Reference:
    https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

import concurrent.futures
import json
import threading
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from zoo.extras import import_extra

# Between the parts of JSON there may be a space, or the end of a line with some indentation: as much white space as a
# model likes to write could be without an end.
_JSON_OPTIONS = {"whitespace_pattern": r"( |\r?\n[ \t]{0,20})"}
# Stack of what reads a grammar: llguidance calls itself for each rule that refers to another one, and thousands of them
# overflow one of the usual 8 MB, which ends the process. It is taken as it is needed.
_STACK_BYTES = 2**29


def llguidance() -> ModuleType:
    """Returns the package `llguidance`, of the extra `structured`.

    Raises:
        MissingExtraError: If it is not installed.
    """
    return import_extra("llguidance", "structured")


def json_grammar(schema: Mapping[str, Any]) -> str:
    """Returns the grammar of JSON that is valid by a schema.

    Args:
        schema: The schema; a key `x-guidance` holds options of llguidance.

    Raises:
        TypeError, ValueError, RecursionError: If it holds what JSON cannot.

    Example:

    >>> json_grammar({"type": "integer"})
    'start: %json {"x-guidance": {...}, "type": "integer"}'
    """
    return f"start: %json {json.dumps({'x-guidance': _JSON_OPTIONS, **schema}, allow_nan=False)}"


def regex_grammar(pattern: str) -> str:
    """Returns the grammar of texts that a regular expression matches from their beginning to their end.

    Args:
        pattern: The expression, in the notation of Rust.

    Raises:
        ValueError: If it ends within an escape, which would be lost.

    Example:

    >>> regex_grammar("[a-z]+")
    'start: /[a-z]+/'
    """
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise ValueError("must not end with a single backslash")
    return f"start: /{llguidance().regex_to_lark(pattern, '')}/"


def choice_grammar(texts: Sequence[str]) -> str:
    """Returns the grammar of some texts.

    Args:
        texts: At least one text.

    Example:

    >>> choice_grammar(["yes", "no"])
    'start: "yes" | "no"'
    """
    # as JSON but for a control character that llguidance does not take as it is
    written = (json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f") for text in texts)
    return f"start: {' | '.join(written)}"


def lark_grammar(text: str) -> str:
    """Returns a grammar of llguidance, or one of llama.cpp (GBNF), as one of llguidance.

    Args:
        text: The grammar.

    Raises:
        Exception: Of classes of llguidance, if it is in none of these notations.

    Example:

    >>> lark_grammar('root ::= "yes"')
    '%llguidance {}\\n\\nstart: "yes"\\n'
    """
    return import_extra("llguidance.gbnf_to_lark", "structured").any_to_lark(text)


def refusal(grammar: str) -> str | None:
    """Returns what llguidance says of a grammar that it cannot follow, with parts of the grammar; None if it can.

    Args:
        grammar: The grammar.

    Example:

    >>> refusal('start: "yes"') is None
    True
    """
    is_refused, said = llguidance().LLMatcher.validate_grammar_with_warnings(grammar)
    return said[0] if is_refused else None


def deep_thread() -> concurrent.futures.ThreadPoolExecutor:
    """Returns a thread with a stack that is large enough to read grammars.

    Example:

    >>> with deep_thread() as thread:
    ...     said = thread.submit(refusal, grammar).result()
    """
    before = threading.stack_size(_STACK_BYTES)
    try:
        thread = concurrent.futures.ThreadPoolExecutor(1, "grammars")
        thread.submit(int).result()  # it is made now
    finally:
        threading.stack_size(before)
    return thread
