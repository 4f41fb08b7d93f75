"""The page at `/`, to try the models in a browser: its files, and what a browser may do with them."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zoo.serving.bodies import path_of

FOLDER = Path(__file__).with_name("page")
# what the pages of inspections have too: found without an import of the models
SHARED = Path(__file__).parents[2] / "zoo" / "inspect" / "page"
SHARED_FILES = ("elements.js", "heat.js", "look.css")
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# Files of this server alone, no code in the page, no other page around it, and no text that becomes code.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
# The files by the paths at which they are; they hold nothing of the models, and need no key.
FILES = {
    "/" if path.name == "index.html" else f"/page/{path.name}": path
    for path in (*sorted(FOLDER.iterdir()), *(SHARED / name for name in SHARED_FILES))
    if path.suffix in _TYPES
}


def routes() -> list[Route]:
    """Returns a route for each file of the page."""
    return [Route(path, show, methods=["GET"]) for path in FILES]


async def show(request: Request) -> Response:
    """Answers a file of the page."""
    path = FILES[path_of(request.scope)]
    return Response(path.read_bytes(), media_type=_TYPES[path.suffix], headers=HEADERS)
