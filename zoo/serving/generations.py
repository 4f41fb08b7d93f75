"""What a request has had a language model do: told by the routes, read by counters and traces."""

from __future__ import annotations

import dataclasses
from collections.abc import MutableMapping
from typing import Any

# The key of the scope of a request.
_KEY = "zoo.generation"


@dataclasses.dataclass
class Generation:
    """What a model has done for a request, by the names of OpenTelemetry's conventions; no texts.

    Args:
        operation: "chat", "text_completion" or "embeddings".
        model: Name of a model that there is.
        first_seconds: Seconds to the first piece of a text; None while there is none.
        input_tokens: Tokens of prompts; None where they are not counted.
        output_tokens: Tokens of texts; None where they are not counted.
    """

    operation: str
    model: str
    first_seconds: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    def count(self, usage: dict[str, int] | None) -> None:
        """Takes the tokens of the field `usage` of an answer.

        Args:
            usage: The field; None where tokens are not counted.
        """
        if usage is not None:
            self.input_tokens, self.output_tokens = usage["prompt_tokens"], usage.get("completion_tokens")


def begin_generation(scope: MutableMapping[str, Any], operation: str, model: str) -> Generation:
    """Notes what a request asks for.

    Args:
        scope: The scope of the request, as ASGI says.
        operation, model: See `Generation`.
    """
    scope[_KEY] = Generation(operation, model)
    return scope[_KEY]


def generation_of(scope: MutableMapping[str, Any]) -> Generation | None:
    """Returns what was noted of a request; None if nothing was."""
    return scope.get(_KEY)
