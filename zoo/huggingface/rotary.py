"""Rotary positions in configurations of the Transformers library, in its older and its newer form."""

from typing import Any

from zoo.config import PositionConfig
from zoo.huggingface.config_reader import ConfigReader
from zoo.storage import quote, require_type

LENGTH = "original_max_position_embeddings"
# our kind and theirs
KINDS = {
    "linear": "linear",
    "dynamic": "dynamic_ntk",
    "yarn": "yarn",
    "llama3": "llama3",
    "longrope": "longrope",
    "su": "longrope",
}
NAMES = {"dynamic_ntk": "dynamic", "linear": "linear", "yarn": "yarn", "llama3": "llama3", "longrope": "longrope"}


def read_rotary(reader: ConfigReader, head_dim: int, max_length: int) -> PositionConfig:
    """Returns the rotary positions of a configuration.

    Args:
        reader: The configuration: `rope_parameters`, or `rope_theta` and `rope_scaling`.
        head_dim: Width of a head.
        max_length: Its longest sequence.

    Raises:
        ValueError: If the kind of scaling or one of its keys is unknown.
    """
    base = reader.take("rope_theta", 10000.0)
    partial = reader.take("partial_rotary_factor", None)
    parameters = {
        "rope_theta": base,
        "partial_rotary_factor": partial,
        **(reader.take("rope_scaling", None) or {}),
        **(reader.take("rope_parameters", None) or {}),
    }
    return rotary_position(parameters, head_dim, max_length)


def rotary_position(parameters: dict[str, Any], head_dim: int, max_length: int) -> PositionConfig:
    """Returns the rotary positions that a dictionary of the Transformers library describes.

    Args:
        parameters: `rope_theta`, `rope_type` (older: `type`) and the numbers of that type.
        head_dim: Width of a head.
        max_length: Longest sequence of the model, which some types take for the length of the first training.

    Raises:
        ValueError: If the type or a number is unknown.

    Example:

    >>> rotary_position({"rope_theta": 1e6, "rope_type": "default"}, 64, 2048).base
    1000000.0
    """
    parameters = {key: value for key, value in parameters.items() if value is not None}
    for key, value in parameters.items():
        kind = str if key in ("rope_type", "type") else float | bool | list[float]
        require_type(value, kind, f"rope parameters: {key}")
    require_type(parameters.get("rope_theta", 1.0), float, "rope parameters: rope_theta")
    base = float(parameters.pop("rope_theta", 10000.0))
    partial = parameters.pop("partial_rotary_factor", 1.0)
    require_type(partial, float, "rope parameters: partial_rotary_factor")
    if not 0 < partial <= 1:
        raise ValueError(f"partial_rotary_factor must be above 0 and at most 1, got {quote(partial)}.")
    rotary_dim = int(head_dim * partial)
    if partial != 1 and (rotary_dim < 2 or rotary_dim % 2):
        raise ValueError(
            f"partial_rotary_factor must give an even number of the {head_dim} entries of a head, got {quote(partial)}."
        )
    kinds = {parameters.pop(key, "default") for key in ("rope_type", "type")} - {"default"} or {"default"}
    kind = kinds.pop()
    if kinds:
        raise ValueError(f"rope_type and type must be the same, got {quote(sorted({kind, *kinds}))}.")
    if kind not in ("default", *KINDS):
        raise ValueError(f"rope_type must be one of {['default', *KINDS]}, got {quote(kind)}.")
    scaling = None
    if kind == "default":
        parameters.pop(LENGTH, None)  # of a scaling that is switched off
        if parameters:
            raise ValueError(f"rope parameters of the type 'default' must be none, got {sorted(parameters)}.")
    else:
        scaling = {"kind": KINDS[kind], **parameters}
        original = scaling.get(LENGTH, max_length)
        if isinstance(original, bool) or not isinstance(original, int) or original < 1:
            raise ValueError(f"rope parameters: {LENGTH} must be an integer of at least 1, got {quote(original)}.")
        if scaling["kind"] != "linear":
            scaling.setdefault(LENGTH, max_length)
        if scaling["kind"] == "longrope" and "attention_factor" not in scaling:
            scaling.setdefault("factor", max_length / scaling[LENGTH])
    return PositionConfig("rotary", base=base, scaling=scaling, rotary_dim=None if partial == 1.0 else rotary_dim)


def write_rotary(position: PositionConfig, head_dim: int) -> dict[str, Any]:
    """Returns the keys for rotary positions that every version of the Transformers library reads.

    Args:
        position: The positions.
        head_dim: Width of a head.

    Raises:
        ValueError: If there is no such form.
    """
    values: dict[str, Any] = {"rope_theta": position.base}
    if position.rotary_dim is not None:
        values["partial_rotary_factor"] = position.rotary_dim / head_dim
    if position.scaling is not None:
        scaling = dict(position.scaling)
        kind = scaling.pop("kind")
        if kind not in NAMES:
            raise ValueError(f"position.scaling must be of a kind out of {sorted(NAMES)}, got {kind!r}.")
        values["rope_scaling"] = {"rope_type": NAMES[kind], **scaling}
    return values
