"""Whether texts can be held to the grammar of a request; what is said of it has no word of the user's."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import re

from zoo.lark import deep_thread, refusal
from zoo.serving.problems import Problem

# Most characters of a grammar: reading one takes up to a second for each hundred thousand.
MOST_CHARACTERS = 2**16
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


async def require_followable(field: str, grammar: str) -> None:
    """Raises a `Problem` if texts cannot be held to a grammar.

    Args:
        field: The field of the request that says it, for the message.
        grammar: The grammar.
    """
    if len(grammar) > MOST_CHARACTERS:
        raise Problem(422, f"{field} must have at most {MOST_CHARACTERS} characters, written as a grammar.")
    # what takes long is not to hold up other requests
    said = await asyncio.wrap_future(_reader().submit(refusal, grammar))
    if said is not None:
        raise Problem(422, f"{field} cannot be followed{_without_texts(said)}.")


@functools.cache
def _reader() -> concurrent.futures.ThreadPoolExecutor:
    return deep_thread()


def _without_texts(said: str) -> str:
    """What llguidance says, without what the user wrote."""
    phrase = next((phrase for phrase in _PHRASES if phrase in said), None)
    if phrase is None:
        return ""
    words = ", ".join(dict.fromkeys(_WORDS.findall(said)))
    return f": {phrase} ({words})" if words else f": {phrase}"
