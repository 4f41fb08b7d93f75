"""Rotary positions in configurations of the Transformers library, in its older and its newer form."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from layers.positions.rotary_scaling import check_rotary_scaling
from zoo.config import PositionConfig, TransformerConfig
from zoo.config.checks import require
from zoo.huggingface.config_reader import ConfigReader
from zoo.storage import quote, quote_key, require_type

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
WITH_LENGTH = {"llama3", "yarn", "longrope", "su"}
NAMES = {"dynamic_ntk": "dynamic", "linear": "linear", "yarn": "yarn", "llama3": "llama3", "longrope": "longrope"}
# what numbers must be, whatever the type
_NUMBERS = (
    ("rope_theta", "above 0", lambda value: value > 0),
    ("partial_rotary_factor", "above 0 and at most 1", lambda value: 0 < value <= 1),
)


def read_rotary(
    reader: ConfigReader,
    head_dim: int,
    max_length: int,
    base: float = 10000.0,
    partial: float | None = None,
    original: int | None = None,
    even: bool = False,
) -> PositionConfig:
    """Returns the rotary positions of a configuration.

    Args:
        reader: The configuration: `rope_parameters`, or `rope_theta` and `rope_scaling`.
        head_dim: Width of a head.
        max_length: Its longest sequence.
        base: What a missing `rope_theta` means.
        partial: What a missing `partial_rotary_factor` means; None for a family that turns whole heads only.
        original: What a missing `original_max_position_embeddings` outside of these dictionaries means; None for
            what stands in them.
        even: Whether the family turns even numbers of features only.

    Raises:
        ValueError: If the kind of scaling or one of its keys is unknown.
    """
    older = {key: reader.take(key, None) for key in ("rope_theta", "partial_rotary_factor")}
    scaling, newer = reader.take("rope_scaling", None), reader.take("rope_parameters", None)
    parameters, names = merged({"": older, "rope_scaling": scaling, "rope_parameters": newer})
    where = "rope_parameters" if newer or not scaling else "rope_scaling"
    for key, missing in (("rope_theta", base), ("partial_rotary_factor", partial)):
        if parameters.get(key) is None:
            parameters[key] = missing
    if partial is None:
        turned = parameters["partial_rotary_factor"]
        require(turned in (None, 1), names["partial_rotary_factor"], turned, "1 in this family")
    original = reader.take(LENGTH, original)
    if original is not None and {parameters.get("rope_type"), parameters.get("type")} & WITH_LENGTH:
        # what stands outside goes first
        parameters[LENGTH], names[LENGTH] = original, LENGTH
    return rotary_position(parameters, head_dim, max_length, names, where, even)


def read_rotary_by_layer(
    reader: ConfigReader, head_dim: int, max_length: int, bases: Mapping[str, tuple[str, float]]
) -> PositionConfig:
    """Returns rotary positions of which layers that see all positions have a base and a scaling of their own.

    Args:
        reader: The configuration: `rope_parameters` with an object for each kind of layer, or older keys.
        head_dim: Width of a head.
        max_length: Its longest sequence.
        bases: By "full_attention" and "sliding_attention", the key of the base in older files, and what a missing one
            means.

    Raises:
        ValueError: If the kind of scaling or one of its keys is unknown, or layers with a window have another scaling.
    """
    given, scaling = reader.take("rope_parameters", None) or {}, reader.take("rope_scaling", None)
    require_type(given, dict[str, dict[str, Any] | None], "rope_parameters")
    require(set(given) <= set(bases), "rope_parameters", given, f"an object with the keys {sorted(bases)}")
    positions = {}
    for kind, (key, base) in bases.items():
        places = {"": {key: reader.take(key, base)}, f"rope_parameters.{kind}": given.get(kind)}
        if kind == "full_attention":
            places["rope_scaling"] = scaling  # of older files
        parameters, names = merged(places)
        whole = {"rope_theta": parameters.pop(key), "partial_rotary_factor": 1.0}
        names.setdefault("rope_theta", key)
        turned = parameters.get("partial_rotary_factor", 1)
        require(turned in (None, 1), f"rope_parameters.{kind}.partial_rotary_factor", turned, "1 in this family")
        parameters = whole | {name: value for name, value in parameters.items() if value is not None}
        positions[kind] = rotary_position(parameters, head_dim, max_length, names, f"rope_parameters.{kind}")
    position, local = positions["full_attention"], positions["sliding_attention"]
    require(
        local.scaling in (None, position.scaling),
        "rope_parameters.sliding_attention",
        given.get("sliding_attention"),
        "without scaling, or with that of full_attention",
    )
    return dataclasses.replace(position, local_base=local.base, local_scaling=local.scaling == position.scaling)


def merged(parts: Mapping[str, dict[str, Any] | None]) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the parameters of rotary positions that stand in several places, and how errors name each.

    Args:
        parts: Parameters by the key that they stand at; the last that has one counts.

    Example:

    >>> merged({"": {"rope_theta": 1e6}, "rope_scaling": {"factor": 2.0}})
    ({'rope_theta': 1000000.0, 'factor': 2.0}, {'rope_theta': 'rope_theta', 'factor': 'rope_scaling.factor'})
    """
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for place, part in parts.items():
        for key, value in (part or {}).items():
            values[key] = value
            names[key] = f"{place}.{quote_key(key)}" if place else key
    return values, names


def rotary_position(
    parameters: dict[str, Any],
    head_dim: int,
    max_length: int,
    names: Mapping[str, str] | None = None,
    where: str = "rope_parameters",
    even: bool = False,
) -> PositionConfig:
    """Returns the rotary positions that a dictionary of the Transformers library describes.

    Args:
        parameters: `rope_theta`, `rope_type` (older: `type`) and the numbers of that type.
        head_dim: Width of a head.
        max_length: Longest sequence of the model, which some types take for the length of the first training.
        names: How errors name the parameters, see `merged`.
        where: The key that those stand at which are not in `names`, for errors.
        even: Whether the number of features that are turned must be even, whatever the type.

    Raises:
        ValueError: If the type or a number is unknown.

    Example:

    >>> rotary_position({"rope_theta": 1e6, "rope_type": "default"}, 64, 2048).base
    1000000.0
    """
    given = names or {}

    def name(key: str) -> str:
        return given.get(key, f"{where}.{quote_key(key)}")

    parameters = {key: value for key, value in parameters.items() if value is not None}
    for key, value in parameters.items():
        kind = str if key in ("rope_type", "type") else float | bool | list[float]
        require_type(value, kind, name(key))
    for key, allowed, holds in _NUMBERS:
        require_type(parameters.get(key, 1.0), float, name(key))
        require(holds(parameters.get(key, 1.0)), name(key), parameters.get(key), allowed)
    base, partial = float(parameters.pop("rope_theta", 10000.0)), parameters.pop("partial_rotary_factor", 1.0)
    rotary_dim = int(head_dim * partial)
    allowed = f"a number that gives one of the {head_dim} entries of a head"
    require(rotary_dim >= 1, name("partial_rotary_factor"), partial, allowed)
    if partial != 1 and rotary_dim % 2:
        kinds = {parameters.get("rope_type", "default"), parameters.get("type", "default")}
        allowed = f"a number that gives an even number of the {head_dim} entries of a head"
        allowed += "" if even else f" with {sorted(kinds)}"
        require(kinds <= {"default", "linear"} and not even, name("partial_rotary_factor"), partial, allowed)
        # the library turns one more, with the frequencies base ** (-2 i / rotary_dim) of the odd number
        base **= (rotary_dim + 1) / rotary_dim
        rotary_dim += 1
    scaling = _read_scaling(parameters, rotary_dim, max_length, name)
    return PositionConfig("rotary", base=base, scaling=scaling, rotary_dim=None if partial == 1.0 else rotary_dim)


def _read_scaling(
    parameters: dict[str, Any], rotary_dim: int, max_length: int, name: Callable[[str], str]
) -> dict[str, Any] | None:
    """The rotary scaling in our words; None for none."""
    types = {key: parameters.pop(key) for key in ("rope_type", "type") if key in parameters}
    kinds = set(types.values()) - {"default"} or {"default"}
    kind = kinds.pop()
    if kinds:
        both = " and ".join(name(key) for key in types)
        raise ValueError(f"{both} must be the same, got {quote(sorted({kind, *kinds}))}.")
    type_key = name(next((key for key, value in types.items() if value == kind), "rope_type"))
    require(kind in ("default", *KINDS), type_key, kind, f"one of {['default', *KINDS]}")
    if kind == "default":
        parameters.pop(LENGTH, None)  # of a scaling that is switched off
        for key, value in parameters.items():
            require(False, name(key), value, f"left out with {type_key}='default'")
        return None
    if KINDS[kind] == "dynamic_ntk":
        parameters.pop(LENGTH, None)  # the library takes the longest sequence, whatever stands here
    scaling, derived = {"kind": KINDS[kind], **parameters}, {}
    if LENGTH not in scaling and scaling["kind"] != "linear":
        scaling[LENGTH], derived[LENGTH] = max_length, "max_position_embeddings"
    original = scaling.get(LENGTH, max_length)
    is_count = isinstance(original, int) and not isinstance(original, bool) and original >= 1
    require(is_count, name(LENGTH), original, "an integer of at least 1")
    if scaling["kind"] == "longrope" and not {"attention_factor", "factor"} & scaling.keys():
        scaling["factor"], derived["factor"] = (
            max(1.0, max_length / original),
            f"max_position_embeddings / {name(LENGTH)}",
        )
    try:
        return check_rotary_scaling(scaling, rotary_dim)
    except ValueError as error:
        text = str(error).replace(f"the kind {scaling['kind']!r}", f"{type_key}={kind!r}")
        text = re.sub(r"scaling\['(.*?)'\]", lambda found: derived.get(found[1]) or name(found[1]), text)
        raise ValueError(text) from error


def without_dynamic(config: TransformerConfig) -> TransformerConfig:
    """Returns a configuration whose rotary positions mean the same in the Transformers library.

    "dynamic_ntk" has the frequencies of `max_length` here, for all texts. There they depend on the text, from
    `max_position_embeddings` on. Where this is not the trained length, the same frequencies are those of another base.

    Args:
        config: The configuration.

    Reference:
        Peng et al. 2023, "YaRN", appendix B.2.
    """
    position, scaling = config.position, config.position.scaling or {}
    if scaling.get("kind") != "dynamic_ntk" or scaling[LENGTH] == config.max_length:
        return config
    width, trained = position.rotary_dim or config.head_dim, scaling[LENGTH]
    stretch = scaling["factor"] * max(config.max_length, trained) / trained - (scaling["factor"] - 1)
    plain = dataclasses.replace(position, base=position.base * stretch ** (width / (width - 2)), scaling=None)
    return dataclasses.replace(config, position=plain)


def rotated_share(rotary_dim: int, head_dim: int) -> float:
    """Returns the `partial_rotary_factor` with which so many features of a head are rotated.

    Args:
        rotary_dim: Number of features that are rotated.
        head_dim: Width of a head.

    Example:

    >>> rotated_share(32, 80)
    0.4
    """
    share = rotary_dim / head_dim
    # the library rounds down what it gets of it
    return share if int(head_dim * share) == rotary_dim else share + 1e-9


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
        values["partial_rotary_factor"] = rotated_share(position.rotary_dim, head_dim)
    if position.scaling is not None:
        scaling = dict(position.scaling)
        kind = scaling.pop("kind")
        if kind == "dynamic_ntk":
            del scaling[LENGTH]  # the longest sequence, see `without_dynamic`
        if kind not in NAMES:
            raise ValueError(f"position.scaling must be of a kind out of {sorted(NAMES)}, got {kind!r}.")
        values["rope_scaling"] = {"rope_type": NAMES[kind], **scaling}
    return values
