"""Models in the formats of servers: what a model names as its endpoints, written to a folder."""

from zoo.export.endpoint import Endpoint, Field
from zoo.export.requests import Request, requests_of, required_inputs, with_defaults
from zoo.export.saved_model import require_format, write_saved_model
from zoo.export.versions import new_version, newest_version, versions

__all__ = [
    "Endpoint",
    "Field",
    "Request",
    "new_version",
    "newest_version",
    "requests_of",
    "require_format",
    "required_inputs",
    "versions",
    "with_defaults",
    "write_saved_model",
]
