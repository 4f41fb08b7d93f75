"""Requests that pages of other sites let a browser send to this machine, where no key keeps them out."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from recipes.serving.limits import LOCAL_HOSTS
from recipes.serving.problems import Problem


def require_own_page(headers: Mapping[str, str]) -> None:
    """Refuses what a page of another site sends to a server of this machine.

    Any page may let the browser send a request to localhost; one whose name is bound to 127.0.0.1 when it has been
    loaded may also read the answer. The first names its own site as the origin, the second as the host.

    Args:
        headers: Those of the request.

    Raises:
        Problem: If the host is no name of this machine, or the origin is another one than the host.

    Reference:
        Jackson et al. 2007, "Protecting browsers from DNS rebinding attacks", section 5.3 (checking the header Host).
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    try:
        # clients of HTTP/1.0 may say none, browsers always do
        is_local = not host or urlsplit(f"//{host}").hostname in LOCAL_HOSTS
        is_own = origin is None or urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # no address
        is_local = is_own = False
    if not (is_local and is_own):
        raise Problem(403, "Without a key this server answers this machine alone, and no page of another site.")
