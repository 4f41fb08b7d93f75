"""What a server takes, and how it puts requests together."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

# Addresses that other machines do not reach.
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
_COMPARE = {"at least": lambda value, bound: value >= bound, "above": lambda value, bound: value > bound}


def _number(default: float, help: str, *, least: float | None = None, above: float | None = None) -> Any:
    """A field with the metadata from which the recipe `serve` makes its keys."""
    bounds = {"at least": least, "above": above}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    return dataclasses.field(default=default, metadata={"help": help, "bounds": given})


class _Numbers:
    """Checks the fields of a dataclass of numbers."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, kinds = getattr(self, field.name), int if field.type == "int" else (int, float)
            is_number = isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)
            for words, bound in field.metadata["bounds"].items():
                if not is_number or not _COMPARE[words](value, bound):
                    what = "an integer" if field.type == "int" else "a number"
                    raise ValueError(f"{field.name} must be {what} {_words(words, bound)}, got {value!r}")


def _words(words: str, bound: float) -> str:
    return f"of {words} {bound}" if words == "at least" else f"{words} {bound}"


@dataclasses.dataclass(frozen=True)
class Limits(_Numbers):
    """Limits of the server; what is beyond them is refused, and said so.

    Args:
        body_bytes: Most bytes of a request.
        text_characters: Most characters of a text.
        rows: Most texts of a request.
        new_tokens: Most tokens that a request may ask for.
        waiting: Most requests that wait for an endpoint of a model.
        connections: Most open connections.
        load_seconds: Seconds that a request waits for a model that is being loaded.
        heartbeat_seconds: Seconds without a piece of text after which a stream gets a comment.
        seconds: Seconds after which a request is abandoned.
        read_seconds: Seconds within which a request must have arrived.
        write_seconds: Seconds after which the connection of a client that reads nothing is closed.

    Raises:
        ValueError: If one is out of its bounds.

    Example:

    >>> app = zoo.serving.app("models", limits=Limits(rows=8))
    """

    body_bytes: int = _number(2**20, "Largest number of bytes of a request.", least=1)
    text_characters: int = _number(100_000, "Largest number of characters of a text.", least=1)
    rows: int = _number(128, "Largest number of texts of a request.", least=1)
    new_tokens: int = _number(4096, "Largest number of tokens that a request may ask for.", least=1)
    waiting: int = _number(
        256,
        "Largest number of requests that wait for a model. Further requests are answered with 429.",
        least=1,
    )
    connections: int = _number(
        1000, "Largest number of open connections. Requests on further ones are answered with 503.", least=1
    )
    load_seconds: float = _number(30.0, "Seconds that a request waits for a model that is being loaded.", least=0)
    heartbeat_seconds: float = _number(
        10.0, "Seconds without a piece of text after which a stream gets a comment, so that it stays open.", above=0
    )
    seconds: float = _number(60.0, "Seconds after which a request is abandoned.", above=0)
    read_seconds: float = _number(10.0, "Seconds within which a request must have arrived.", above=0)
    write_seconds: float = _number(
        30.0, "Seconds after which the connection of a client that reads nothing is closed.", above=0
    )


@dataclasses.dataclass(frozen=True)
class Batching(_Numbers):
    """How requests are put together.

    Args:
        rows: Most texts that a language model writes at the same time.
        steps: Tokens that each of them gets before others may join; 1 where one or two texts stream.
        prefill: Most tokens of prompts that are fed between two such turns, so that long prompts do not hold up others.
        batch: Most rows of a batch of other requests.
        state_bytes: Most bytes of the state of all texts that are being written; a single one may have more.
        prefix_bytes: Most bytes of the states of prompts that are kept for others with the same beginning.

    Raises:
        ValueError: If one is out of its bounds.

    Example:

    >>> app = zoo.serving.app("models", batching=Batching(rows=32))
    """

    rows: int = _number(16, "Number of texts that a language model generates at the same time.", least=1)
    steps: int = _number(
        8,
        "Number of tokens that each running text gets before other texts may join; 1 where one or two texts stream.",
        least=1,
    )
    prefill: int = _number(128, "Largest number of prompt tokens that are processed between two such steps.", least=1)
    batch: int = _number(32, "Largest number of rows of a batch of other requests.", least=1)
    state_bytes: int = _number(2**30, "Largest number of bytes of the caches of running texts.", least=0)
    prefix_bytes: int = _number(
        2**28,
        "Largest number of bytes of cached prompts, which are reused for prompts with the same beginning.",
        least=0,
    )
