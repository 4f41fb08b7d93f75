"""The fields of requests that say what texts must be like: those of OpenAI, and those of vLLM.

Reference:
    https://platform.openai.com/docs/guides/structured-outputs; https://docs.vllm.ai/en/latest/features/structured_outputs
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic
from pydantic import BeforeValidator, Field, ValidationInfo

from zoo.lark import choice_grammar, json_grammar, lark_grammar, regex_grammar
from zoo.serving.bodies import parse_json
from zoo.serving.problems import Problem
from zoo.serving.request_fields import Fields
from zoo.serving.structured_output import MOST_CHARACTERS, require_followable

# The schema of any object.
_OBJECT = {"type": "object"}


def _schema(value: Any, info: ValidationInfo) -> Any:
    """A schema, which may be written as a text."""
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value.encode(), info.context)
    except Problem as problem:
        raise ValueError("must be an object, or a text of JSON that is one") from problem


Schema = Annotated[dict[str, Any], BeforeValidator(_schema)]
Choices = Annotated[list[str], Field(min_length=1, max_length=1024)]


class JSONSchemaFormat(Fields):
    """A schema with a name."""

    notes = ("description",)
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    schema_: dict[str, Any] = Field(_OBJECT, alias="schema")
    # texts are held to the schema in any case
    strict: bool = False


class ResponseFormat(Fields):
    """What an answer is, as OpenAI's interface has it."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JSONSchemaFormat | None = None

    @pydantic.model_validator(mode="after")
    def _has_schema(self) -> Self:
        if (self.type == "json_schema") is (self.json_schema is None):
            raise ValueError("json_schema must be given with the type json_schema, and with no other")
        return self


class StructuredOutputs(Fields):
    """What a text is, as vLLM has it."""

    idle: ClassVar = dict.fromkeys(
        ("disable_additional_properties", "disable_any_whitespace", "disable_fallback"), (False,)
    )
    json_: Schema | None = Field(None, alias="json")
    json_object: bool = False
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None


class GrammarFields(Fields):
    """Fields that say what texts must be like, of which a request may have one."""

    response_format: ResponseFormat = ResponseFormat(type="text")
    structured_outputs: StructuredOutputs = StructuredOutputs()
    guided_json: Schema | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = None

    async def grammar(self) -> dict[str, str]:
        """Returns the key `grammar` of a message to a worker, none where texts may be anything.

        Raises:
            Problem: If more than one field says what texts are like, or one says what they cannot be held to.
        """
        asked = self._asked()
        if not asked:
            return {}
        if len(asked) > 1:
            raise Problem(422, f"{' and '.join(name for name, _, _ in asked)} must not be given together.")
        [(name, make, value)] = asked
        if isinstance(value, str) and len(value) > MOST_CHARACTERS:
            raise Problem(422, f"{name} must have at most {MOST_CHARACTERS} characters.")
        try:
            # what takes long is not to hold up other requests
            grammar = await asyncio.to_thread(make, value)
        except Exception as error:  # of what reads grammars: its texts may show this one
            raise Problem(422, f"{name} cannot be followed: it is not valid.") from error
        await require_followable(name, grammar)
        return {"grammar": grammar}

    def _asked(self) -> list[tuple[str, Callable[[Any], str], Any]]:
        """What is asked for: the name of each field, what makes its grammar, and its value."""
        outputs, answer = self.structured_outputs, self.response_format
        schema = _OBJECT if answer.json_schema is None else answer.json_schema.schema_
        name = f"response_format{'.json_schema.schema' if answer.type == 'json_schema' else ''}"
        every = [
            (name, json_grammar, None if answer.type == "text" else schema),
            ("structured_outputs.json", json_grammar, outputs.json_),
            ("structured_outputs.json_object", json_grammar, _OBJECT if outputs.json_object else None),
            ("structured_outputs.regex", regex_grammar, outputs.regex),
            ("structured_outputs.choice", choice_grammar, outputs.choice),
            ("structured_outputs.grammar", lark_grammar, outputs.grammar),
            ("guided_json", json_grammar, self.guided_json),
            ("guided_regex", regex_grammar, self.guided_regex),
            ("guided_choice", choice_grammar, self.guided_choice),
            ("guided_grammar", lark_grammar, self.guided_grammar),
        ]
        return [each for each in every if each[2] is not None]
