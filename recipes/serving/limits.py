"""What a server takes: sizes of requests, how many at a time, and how long they may last."""

from __future__ import annotations

import dataclasses

from recipes.common.config import setting

# Addresses that other machines do not reach.
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


@dataclasses.dataclass(frozen=True)
class LimitsConfig:
    """Limits of the server; what is beyond them is refused, and said so."""

    body_bytes: int = setting(2**20, "Most bytes of a request.", least=1)
    text_characters: int = setting(100_000, "Most characters of a text.", least=1)
    rows: int = setting(128, "Most texts of a request.", least=1)
    new_tokens: int = setting(4096, "Most tokens that a request may have written.", least=1)
    waiting: int = setting(256, "Most requests that wait for a model; more are answered 429.", least=1)
    seconds: float = setting(60.0, "Seconds after which a request is given up.", above=0)
    read_seconds: float = setting(10.0, "Seconds within which a request must have arrived.", above=0)
    write_seconds: float = setting(30.0, "Seconds after which a client that reads nothing is given up.", above=0)
