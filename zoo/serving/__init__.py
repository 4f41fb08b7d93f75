"""A server of exported models: `python -m recipes.serve`, or `app` within a program of one's own."""

from typing import TYPE_CHECKING, Any

from zoo.extras import require_extra
from zoo.serving.options import Batching, Limits

if TYPE_CHECKING:
    from zoo.serving.application import app

__all__ = ["Batching", "Limits", "app"]


def __getattr__(name: str) -> Any:
    # it needs an extra, which workers and the options do without
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_extra("serve", "zoo.serving.app")
    from zoo.serving.application import app

    return app


def __dir__() -> list[str]:
    return __all__
