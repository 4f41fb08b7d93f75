"""The extras of setup.cfg, and a clear error where one is missing."""

import importlib
import importlib.util
from collections.abc import Sequence
from types import ModuleType

# modules of the packages that each extra installs; without argcomplete, shells complete nothing, and all else works
EXTRAS: dict[str, Sequence[str]] = {
    "recipes": (
        *("filelock", "jsonargparse", "markdown_it", "matplotlib", "pooch", "requests"),
        *("nltk", "rouge_score", "sacrebleu", "sacremoses", "scipy", "sklearn", "tensorboard"),
    ),
    "serve": ("msgpack", "prometheus_client", "pydantic", "starlette", "tensorflow_serving", "uvicorn"),
    "structured": ("llguidance",),
    "trace": ("opentelemetry",),
    "corpus": ("array_record", "datasketch", "pyarrow"),
    "datasets": ("datasets",),
    "ray": ("ray",),
    "benchmark": ("array_record", "datasets", "datasketch", "grain", "locust", "playwright", "pyarrow"),
    "jax": ("jax", "jaxlib"),
}


class MissingExtraError(ModuleNotFoundError):
    """Packages of an extra are not installed; the message names them and the command that installs them."""


def require_extra(extra: str, what: str) -> None:
    """Raises an error if a package of an extra is not installed.

    Args:
        extra: The extra, one of `EXTRAS`.
        what: What needs it, for the error.

    Raises:
        MissingExtraError: If one is missing.

    Example:

    >>> require_extra("serve", "Serving")
    """
    missing = [module for module in EXTRAS[extra] if importlib.util.find_spec(module) is None]
    if missing:
        raise _error(extra, what, missing)


def import_extra(module: str, extra: str) -> ModuleType:
    """Imports a module that an extra installs.

    Args:
        module: Its name, dotted.
        extra: The extra.

    Raises:
        MissingExtraError: If it is not installed.

    Example:

    >>> import_extra("pyarrow.parquet", "corpus").read_schema("a.parquet").names
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module + ".").startswith(error.name + "."):
            raise
        raise _error(extra, "This", [error.name]) from error


def _error(extra: str, what: str, missing: Sequence[str]) -> MissingExtraError:
    command = f'pip install "keras-transformer-zoo[{extra}]"'
    return MissingExtraError(f"{what} needs {', '.join(missing)}, of the extra {extra}: {command}", name=missing[0])
