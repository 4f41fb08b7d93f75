"""Who asks, as far as the server can tell."""

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from starlette.requests import Request  # noqa: E402

from zoo.serving.options import Limits  # noqa: E402
from zoo.serving.server_state import ServerState  # noqa: E402


@pytest.mark.parametrize(
    ("setting", "headers", "client"),
    [
        (None, ["203.0.113.7"], "192.0.2.1"),
        ("x-forwarded-for", ["203.0.113.7"], "203.0.113.7"),
        # what stands before was written by whoever asked the proxy
        ("X-Forwarded-For", ["1.1.1.1, 203.0.113.7"], "203.0.113.7"),
        ("X-Forwarded-For", ["1.1.1.1", "2001:db8::1"], "2001:db8::1"),
        ("X-Forwarded-For", [], ""),
    ],
)
def test_clients_are_told_apart(setting, headers, client):
    headers = [(b"x-forwarded-for", value.encode()) for value in headers]
    request = Request({"type": "http", "headers": headers, "client": ("192.0.2.1", 4000)})
    state = ServerState(None, Limits(), None, client_header=setting)
    assert state.client_of(request) == client
