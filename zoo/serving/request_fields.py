"""Declared fields of requests: what they may be, and in which words this server refuses others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from zoo.serving.options import Limits
from zoo.serving.problems import Problem


class Fields(pydantic.BaseModel):
    """The fields of a request, or of an object in it. A field that is null counts as absent; unknown ones are refused.

    Attributes:
        idle: Fields that ask for what models here do not do: allowed with the values that ask for nothing.
        notes: Fields that describe the request to somebody else and change no answer.

    Example:

    >>> class Query(Fields):
    ...     text: str
    >>> Query.read({"text": "a", "language": None}, Limits()).text
    'a'
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)
    idle: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    notes: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def read(cls, body: dict[str, Any], limits: Limits) -> Self:
        """Returns the checked fields of a body.

        Args:
            body: The body.
            limits: The limits of the server, which validators find as their context.

        Raises:
            Problem: If a field is missing, unknown, wrong, or asks for what models here do not do.
        """
        try:
            return cls.model_validate(body, context=limits)
        except pydantic.ValidationError as error:
            raise Problem(422, _reason(error.errors(include_url=False, include_input=False)[0], cls)) from error

    @pydantic.model_validator(mode="before")
    @classmethod
    def _meaningful(cls, values: Any) -> Any:
        """The fields that mean something."""
        if not isinstance(values, dict):
            return values
        left = {name: value for name, value in values.items() if value is not None and name not in cls.notes}
        for name in set(left) & set(cls.idle):
            value = left.pop(name)
            if not any(isinstance(value, bool) is isinstance(idle, bool) and value == idle for idle in cls.idle[name]):
                raise ValueError(f"{name} is not supported")
        return left

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: pydantic.GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema with the fields that ask for nothing."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        others = {name: {"enum": [*values, None]} for name, values in cls.idle.items()}
        schema["properties"] = {**schema["properties"], **dict.fromkeys(cls.notes, {}), **others}
        return schema


def _reason(error: Any, fields: type[Fields]) -> str:
    """What is wrong, without what the user wrote."""
    *parents, last = error["loc"] or ("",)
    path, parent = _path((*parents, last)), _path(parents)
    if error["type"] == "extra_forbidden":
        # a mistyped name is shown; what else stands there may be a text
        shown = f" {last!r}" if re.fullmatch(r"[A-Za-z_]{1,40}", last) else " of one of the names given"
        return f"There is no field{shown}{f' in {parent}' if parent else ''}."
    if error["type"] == "missing":
        return f"{path} is missing."
    if error["type"] == "model_type":
        said = "must be an object"
    elif error["type"].startswith("union_tag"):  # the tag itself may be a text
        tags = error["ctx"].get("expected_tags")
        said = f"must have {error['ctx']['discriminator']} {tags}" if tags else "must have a type"
    elif error["type"] == "value_error":
        said = str(error["ctx"]["error"])
    elif (bounds := _bounds(error["loc"], fields)) is not None and error["type"].endswith("_than_equal"):
        said = "must be from {} to {}".format(*bounds)
    else:  # such as "Input should be a valid integer"
        said = error["msg"].partition(" ")[2].replace("should", "must", 1).replace(" after validation", "")
    return f"{path} {said}.".strip()


def _bounds(place: tuple[Any, ...], fields: type[Fields]) -> tuple[Any, Any] | None:
    """The least and the greatest value of a field of the request itself that has both."""
    if len(place) != 1 or place[0] not in fields.model_fields:
        return None
    metadata = fields.model_fields[place[0]].metadata
    least, greatest = (
        next((getattr(part, name) for part in metadata if hasattr(part, name)), None) for name in ("ge", "le")
    )
    return None if least is None or greatest is None else (least, greatest)


def _path(place: Any) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def as_list(value: Any) -> Any:
    """Returns a text alone as a list of one."""
    return [value] if isinstance(value, str) else value


def few(values: list[Any], info: ValidationInfo) -> list[Any]:
    """Returns the rows of a request; raises a `Problem` if there are too many."""
    if len(values) > info.context.rows:
        raise Problem(413, f"A request must have at most {info.context.rows} rows.")
    return values


# Texts of a request, at least one.
TextList = Annotated[list[str], Field(min_length=1), AfterValidator(few)]
# The same, or one text.
Texts = Annotated[TextList, BeforeValidator(as_list, json_schema_input_type=str | TextList)]
