"""Exports of models to the formats of servers and devices: the endpoints that a model names, written to a folder."""

from zoo.export.endpoint import Endpoint, Field
from zoo.export.folder import DESCRIPTION_FILE
from zoo.export.formats import (
    FORMATS,
    GGUF,
    OPENVINO_GENAI,
    PROGRAM_FORMATS,
    RUNTIME_FORMATS,
    SAVED_MODEL,
    require_format,
    require_plain_weights,
)
from zoo.export.requests import Request, requests_of, required_inputs, with_defaults
from zoo.export.runtime_formats import write_runtime_format
from zoo.export.saved_model import write_saved_model
from zoo.export.versions import new_version, newest_version, versions

__all__ = [
    "DESCRIPTION_FILE",
    "FORMATS",
    "GGUF",
    "OPENVINO_GENAI",
    "PROGRAM_FORMATS",
    "RUNTIME_FORMATS",
    "SAVED_MODEL",
    "Endpoint",
    "Field",
    "Request",
    "new_version",
    "newest_version",
    "requests_of",
    "require_format",
    "require_plain_weights",
    "required_inputs",
    "versions",
    "with_defaults",
    "write_runtime_format",
    "write_saved_model",
]
