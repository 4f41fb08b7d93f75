"""Bodies of requests: read within the limits, and checked for what all routes forbid."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request

from zoo.serving.options import Limits
from zoo.serving.problems import Problem

# Nested lists and dictionaries of a body are no deeper than this.
_DEEPEST = 32


def path_of(scope: Mapping[str, Any]) -> str:
    """Returns the path of a request within this application, which another one may have mounted.

    Args:
        scope: What ASGI says of the request.

    Example:

    >>> path_of({"path": "/models/health", "root_path": "/models"})
    '/health'
    """
    path, root = scope["path"], scope.get("root_path", "")
    # a server that has cut it off before may have one that begins alike
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


async def read_json(request: Request, limits: Limits) -> dict[str, Any]:
    """Returns the body of a request, a JSON object.

    Args:
        request: The request.
        limits: The limits of the server.

    Raises:
        Problem: As of `read_body` and `parse_json`.
    """
    return parse_json(await read_body(request, limits), limits)


async def read_body(request: Request, limits: Limits) -> bytes:
    """Returns the body of a request.

    Args:
        request: The request.
        limits: The limits of the server.

    Raises:
        Problem: If it is too large or too slow.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(limits.read_seconds):
            async for part in request.stream():
                body += part
                if len(body) > limits.body_bytes:
                    raise Problem(413, f"The body must have at most {limits.body_bytes} bytes.")
    except TimeoutError as error:
        # what is left of the body would be taken for another request
        raise Problem(408, f"The body must arrive within {limits.read_seconds:g} seconds.", closes=True) from error
    except ClientDisconnect as error:
        raise Problem(400, "The body did not arrive.") from error
    return bytes(body)


def parse_json(body: bytes, limits: Limits) -> dict[str, Any]:
    """Returns the JSON object of a body.

    Args:
        body: The body.
        limits: The limits of the server.

    Raises:
        Problem: If it is no JSON object in UTF-8, or holds texts that are too long.
    """
    try:
        content = json.loads(body.decode("utf-8"), parse_constant=_refused)
    except UnicodeDecodeError as error:
        raise Problem(400, "The body must be JSON in UTF-8.") from error
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        place = f": line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise Problem(400, f"The body must be JSON{place}.") from error
    if not isinstance(content, dict):
        raise Problem(400, "The body must be a JSON object.")
    check_values(content, limits)
    return content


def check_values(content: Any, limits: Limits) -> None:
    """Checks values that were read from JSON.

    Args:
        content: The values.
        limits: The limits of the server.

    Raises:
        Problem: If a text is too long or no Unicode, a number is too large, or something is nested too deep.
    """
    _check(content, limits, 0)


def _refused(constant: str) -> Any:
    raise Problem(400, f"The body must be JSON, which has no {constant}.")


def _check(value: Any, limits: Limits, depth: int) -> None:
    if depth > _DEEPEST:
        raise Problem(400, f"The body must be nested at most {_DEEPEST} deep.")
    if isinstance(value, str):
        if len(value) > limits.text_characters:
            raise Problem(413, f"A text must have at most {limits.text_characters} characters.")
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise Problem(422, "A text must be Unicode without surrogates.")
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise Problem(422, "A whole number must fit into 64 bits.")
    elif isinstance(value, dict):
        for name, each in value.items():
            _check(name, limits, depth + 1)
            _check(each, limits, depth + 1)
    elif isinstance(value, list):
        for each in value:
            _check(each, limits, depth + 1)
