"""Models in the formats of servers and devices: what a model names as its endpoints, written to a folder."""

from zoo.export.endpoint import Endpoint, Field
from zoo.export.formats import (
    FORMATS,
    RUNTIME_FORMATS,
    SAVED_MODEL,
    require_format,
    require_plain_weights,
)
from zoo.export.runtime_formats import write_runtime_format
from zoo.export.saved_model import write_saved_model

__all__ = [
    "FORMATS",
    "RUNTIME_FORMATS",
    "SAVED_MODEL",
    "Endpoint",
    "Field",
    "require_format",
    "require_plain_weights",
    "write_runtime_format",
    "write_saved_model",
]
