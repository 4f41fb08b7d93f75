"""Requests that pages of other sites let a browser send to this machine, where no key keeps them out."""

from __future__ import annotations

import re
from collections.abc import Mapping

from zoo.serving.options import LOCAL_HOSTS
from zoo.serving.problems import Problem

# A name of this machine, and a port or none: parsers of addresses also take what stands before "@" or behind "/".
_NAMES = "|".join(re.escape(f"[{host}]" if ":" in host else host) for host in LOCAL_HOSTS)
_LOCAL = re.compile(rf"(?:{_NAMES})(?::[0-9]+)?", re.IGNORECASE)


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
    host, origin = headers.get("host"), headers.get("origin")
    # clients of HTTP/1.0 may say none, browsers always do
    is_local = host is None or _LOCAL.fullmatch(host) is not None
    is_own = origin is None or (
        host is not None and origin.lower() in (f"http://{host}".lower(), f"https://{host}".lower())
    )
    if not (is_local and is_own):
        raise Problem(403, "Without a key this server answers this machine alone, and no page of another site.")
