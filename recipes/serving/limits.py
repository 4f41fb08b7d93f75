"""What a server takes: sizes of requests, how many at a time, and how long they may last."""

from __future__ import annotations

import dataclasses

from recipes.common.config import setting

# Addresses that other machines do not reach.
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


@dataclasses.dataclass(frozen=True)
class LimitsConfig:
    """Limits of the server; what is beyond them is refused, and said so."""

    body_bytes: int = setting(2**20, "Largest number of bytes of a request.", least=1)
    text_characters: int = setting(100_000, "Largest number of characters of a text.", least=1)
    rows: int = setting(128, "Largest number of texts of a request.", least=1)
    new_tokens: int = setting(4096, "Largest number of tokens that a request may ask for.", least=1)
    waiting: int = setting(
        256, "Largest number of requests that wait for a model. Further requests are answered with 429.", least=1
    )
    connections: int = setting(
        1000, "Largest number of open connections. Requests on further ones are answered with 503.", least=1
    )
    load_seconds: float = setting(30.0, "Seconds that a request waits for a model that is being loaded.", least=0)
    heartbeat_seconds: float = setting(
        10.0, "Seconds without a piece of text after which a stream gets a comment, so that it stays open.", above=0
    )
    seconds: float = setting(60.0, "Seconds after which a request is abandoned.", above=0)
    read_seconds: float = setting(10.0, "Seconds within which a request must have arrived.", above=0)
    write_seconds: float = setting(
        30.0, "Seconds after which the connection of a client that reads nothing is closed.", above=0
    )
