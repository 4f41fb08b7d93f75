"""Endpoints: the functions that an exported model offers, described independently of the format they are written in."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Field:
    """A tensor that an endpoint takes or returns.

    Args:
        name: Its name in the signature.
        shape: Its sizes: integers, or names of sizes that vary, such as "batch".
        dtype: "string", "bool", "int32", "int64" or "float32".
        description: Its meaning, for the description of the export.
        default: Default of an input, as a JSON value; None for no default. A SavedModel needs all inputs, so the client
            fills it in.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    description: str = ""
    default: Any = None

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """The shape with None for sizes that vary."""
        return tuple(None if isinstance(size, str) else size for size in self.shape)

    def describe(self) -> dict[str, Any]:
        """Returns the fields as JSON values; the default only if there is one."""
        described = dataclasses.asdict(self)
        if self.default is None:
            del described["default"]
        return described


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """A function of an exported model, with named and documented inputs and outputs.

    Args:
        function: Maps the tensors of `inputs`, in their order, to a dictionary of the tensors of `outputs`, or to the
            tensor itself if there is one output.
        inputs: The tensors that it takes.
        outputs: The tensors that it returns.
        description: What it does, for the description of the export.
        properties: Further facts for callers, as JSON values.
        example: Arrays for the inputs, by name, on which an export for another runtime is compared with Python. None
            for no comparison.

    Example:

    >>> Endpoint(tf.strings.length, (Field("texts", ("batch",), "string"),), (Field("lengths", ("batch",), "int32"),))
    """

    function: Callable[..., Any]
    inputs: tuple[Field, ...]
    outputs: tuple[Field, ...]
    description: str = ""
    properties: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    example: Mapping[str, Any] | None = None

    def describe(self) -> dict[str, Any]:
        """Returns description, inputs, outputs and, if there are any, properties, as JSON values."""
        fields = {"inputs": self.inputs, "outputs": self.outputs}
        tensors = {side: [field.describe() for field in some] for side, some in fields.items()}
        properties = {"properties": dict(self.properties)} if self.properties else {}
        return {"description": self.description, **tensors, **properties}


def describe(endpoints: Mapping[str, Endpoint]) -> dict[str, Any]:
    """Returns the content of `signature.json` of an export.

    Args:
        endpoints: The endpoints by name. The first is the default one; a file for a program of its own has none.
    """
    return {
        "default": next(iter(endpoints), None),
        "endpoints": {name: endpoint.describe() for name, endpoint in endpoints.items()},
    }
