"""Models in the formats of servers: what a model names as its endpoints, written to a folder."""

from zoo.export.endpoint import Endpoint, Field
from zoo.export.saved_model import require_format, write_saved_model

__all__ = ["Endpoint", "Field", "require_format", "write_saved_model"]
