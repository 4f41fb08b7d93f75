"""Grammars that generated texts follow: JSON of a schema, regular expressions, choices, and any other."""

from collections.abc import Mapping, Sequence
from typing import Any

from zoo.generation.token_masks import reason_of
from zoo.lark import choice_grammar, json_grammar, lark_grammar, llguidance, refusal, regex_grammar
from zoo.preprocessing.rows import shorten


class Grammar:
    """A grammar, which generated texts follow from their first to their last token.

    Each step has the tokens alone with which the text can still become one of the grammar. A text that reaches its
    largest number of tokens is cut, and then need not be one.

    Args:
        text: The grammar, in llguidance's notation of Lark, or in that of llama.cpp (GBNF).

    Attributes:
        lark: The grammar in llguidance's notation of Lark.

    Raises:
        TypeError: If the text is no string.
        ValueError: If it is no such grammar.
        MissingExtraError: Without the package llguidance, the extra `structured`.

    Example:

    >>> model.generate("How are you?", grammar=Grammar('start: ("well" | "ill") "."'))

    Reference:
        https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
    """

    def __init__(self, text: str) -> None:
        _require_string("text", text)
        llguidance()
        try:
            self.lark: str = lark_grammar(text)
        except Exception as error:  # of classes of its own
            raise ValueError(f"text must be a grammar: {error}") from error
        self._check("text")

    def _check(self, name: str) -> None:
        """Raises a ValueError if llguidance does not know what to do with it.

        Args:
            name: The argument that says it.
        """
        said = refusal(self.lark)
        if said is not None:
            raise ValueError(f"{name} must be what llguidance can follow: {reason_of(said)}.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shorten(self.lark)})"


class JSONSchema(Grammar):
    """JSON that is valid by a schema; without one, any object.

    Properties come in the order of the schema. Between the parts there is no white space, a space, or the end of a line
    with indentation.

    Args:
        schema: The schema, such as `Answer.model_json_schema()` of a pydantic class. Its key `x-guidance` may hold
            options of llguidance.

    Raises:
        TypeError: If the schema is no dictionary.
        ValueError: If it is not valid, not JSON, or has what texts cannot be held to; the message says what.

    Example:

    >>> schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    >>> json.loads(model.generate("Ada is 36.", grammar=JSONSchema(schema), strip_prompt=True))
    {'age': 36}

    Reference:
        https://json-schema.org/draft/2020-12;
        https://github.com/guidance-ai/llguidance/blob/main/docs/json_schema.md (what it supports).
    """

    def __init__(self, schema: Mapping[str, Any] | None = None) -> None:
        schema = {"type": "object"} if schema is None else schema
        if not isinstance(schema, Mapping):
            raise TypeError(f"schema must be a dictionary, got {shorten(schema)}.")
        try:
            self.lark = json_grammar(schema)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"schema must hold JSON values: {error}.") from error
        self._check("schema")


class Regex(Grammar):
    """Texts that a regular expression matches from their beginning to their end.

    Args:
        pattern: The expression, in the notation of Rust: that of Python but for references to groups, and for what
            looks ahead or back.

    Raises:
        TypeError: If the pattern is no string.
        ValueError: If it is not valid.

    Example:

    >>> model.generate("When?", grammar=Regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), strip_prompt=True)
    '2023-01-01'

    Reference:
        https://docs.rs/regex/latest/regex/#syntax
    """

    def __init__(self, pattern: str) -> None:
        _require_string("pattern", pattern)
        try:
            self.lark = regex_grammar(pattern)
        except ValueError as error:
            raise ValueError(f"pattern {error}.") from error
        self._check("pattern")


class Choice(Grammar):
    """One of some texts.

    Args:
        texts: The texts, at least one.

    Raises:
        TypeError: If one is no string.
        ValueError: If there is none.

    Example:

    >>> model.generate("Is the sky blue?", grammar=Choice(["yes", "no"]), strip_prompt=True)
    'yes'
    """

    def __init__(self, texts: Sequence[str]) -> None:
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise TypeError(f"texts must be a list of strings, got {shorten(texts)}.")
        if not texts:
            raise ValueError("texts must hold at least one, got none.")
        for place, text in enumerate(texts):
            _require_string(f"texts[{place}]", text)
        self.lark = choice_grammar(texts)
        self._check("texts")


def _require_string(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {shorten(value)}.")
