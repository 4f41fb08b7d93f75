"""Frequencies of rotary positions for texts longer than those of training.

`ROTARY_SCALINGS` maps the name of a method to a pure function
`(base, rotary_dim, scaling, sequence_length) -> (inverse_frequencies, attention_scaling)`. `scaling` is the dict of the
method's parameters, with the names of published configurations. `inverse_frequencies`, in radians per position, has the
shape `(..., rotary_dim / 2)`. `attention_scaling` is a factor on sines and cosines, so its square is a factor on the
scores. The functions compute in NumPy float64, unless `sequence_length` is a tensor.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

LENGTH = "original_max_position_embeddings"  # number of positions in the original training

# for each method its required and its optional keys
_KEYS = {
    "linear": ({"factor"}, set()),
    "dynamic_ntk": ({"factor", LENGTH}, set()),
    "yarn": (
        {"factor", LENGTH},
        {"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"},
    ),
    "llama3": ({"factor", "low_freq_factor", "high_freq_factor", LENGTH}, set()),
    "longrope": ({"short_factor", "long_factor", LENGTH}, {"factor", "attention_factor"}),
    "proportional": ({"proportion"}, {"factor"}),
}

LENGTH_DEPENDENT = frozenset({"dynamic_ntk", "longrope"})


def inverse_frequencies(base: float, rotary_dim: int) -> np.ndarray:
    """Returns `base ** (-2 i / rotary_dim)` for `i = 0 ... rotary_dim / 2 - 1`, in radians per position."""
    return float(base) ** (-np.arange(0, rotary_dim, 2, dtype="float64") / rotary_dim)


def linear(base: float, rotary_dim: int, scaling: dict[str, Any], sequence_length: Any = None) -> Any:
    """Divides all positions by `factor` (Chen et al. 2023, "Position Interpolation", equation 4)."""
    return inverse_frequencies(base, rotary_dim) / scaling["factor"], 1.0


def dynamic_ntk(base: float, rotary_dim: int, scaling: dict[str, Any], sequence_length: Any = None) -> Any:
    """Increases the base with the length of the text, once it is longer than the trained length `L`.

    For a text of `n > L` tokens the base is multiplied by `(factor n / L - (factor - 1)) ** (d / (d - 2))`, where `d`
    is `rotary_dim`. This keeps the highest frequency and divides the lowest by the term in parentheses.

    Reference:
        Peng et al. 2023, "YaRN", appendix B.2 ("Dynamic NTK") with section 3.1.
    """
    frequencies = inverse_frequencies(base, rotary_dim)
    if sequence_length is None:
        return frequencies, 1.0
    if rotary_dim == 2:
        raise ValueError(
            "rotary_dim must be above 2 with scaling of kind 'dynamic_ntk', got 2: a single pair has no slowest "
            "frequency."
        )
    trained = scaling[LENGTH]
    numpy_or_ops, sequence_length, frequencies = _matching(sequence_length, frequencies)
    stretch = scaling["factor"] * numpy_or_ops.maximum(sequence_length, trained) / trained - (scaling["factor"] - 1)
    exponents = -np.arange(0, rotary_dim, 2) / (rotary_dim - 2)
    if numpy_or_ops is ops:
        exponents = ops.cast(exponents, sequence_length.dtype)
    return frequencies * stretch**exponents, 1.0


def yarn(base: float, rotary_dim: int, scaling: dict[str, Any], sequence_length: Any = None) -> Any:
    """Keeps high frequencies, divides low ones by `factor`, and interpolates between them with a linear ramp.

    The ramp covers the pairs that rotate between `beta_fast` (32) and `beta_slow` (1) times within the trained length.
    Its ends are rounded outwards to whole pairs unless `truncate` is false. The attention scaling is `attention_factor`
    if given, else `g(mscale) / g(mscale_all_dim)` if both are given, else `g(1)`, with
    `g(m) = 0.1 m ln(factor) + 1`.

    Reference:
        Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", sections 3.2 to 3.4.
    """
    factor, trained = scaling["factor"], scaling[LENGTH]

    def pair_that_turns(times: float) -> float:
        return rotary_dim * math.log(trained / (times * 2 * math.pi)) / (2 * math.log(base))

    low = pair_that_turns(scaling.get("beta_fast", 32.0))
    high = pair_that_turns(scaling.get("beta_slow", 1.0))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary_dim - 1)
    if low == high:
        high += 0.001  # a step instead of a ramp, without a division by zero
    interpolated = np.clip((np.arange(rotary_dim // 2) - low) / (high - low), 0.0, 1.0)
    frequencies = inverse_frequencies(base, rotary_dim)
    frequencies = frequencies / factor * interpolated + frequencies * (1.0 - interpolated)

    def magnitude(multiplier: float) -> float:
        return 0.1 * multiplier * math.log(factor) + 1.0

    if "attention_factor" in scaling:
        attention_scaling = scaling["attention_factor"]
    elif scaling.get("mscale") and scaling.get("mscale_all_dim"):
        attention_scaling = magnitude(scaling["mscale"]) / magnitude(scaling["mscale_all_dim"])
    else:
        attention_scaling = magnitude(1.0)
    return frequencies, float(attention_scaling)


def llama3(base: float, rotary_dim: int, scaling: dict[str, Any], sequence_length: Any = None) -> Any:
    """Multiplies wavelengths above `L / low_freq_factor` by `factor`, and keeps those below `L / high_freq_factor`.

    Between them the frequency is interpolated, linear in `L / wavelength`. `L` is the trained length.

    Reference:
        Grattafiori et al. 2024, "The Llama 3 Herd of Models", section 3.4.2, and the code published with Llama 3.1.
    """
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    frequencies = inverse_frequencies(base, rotary_dim)
    turns = scaling[LENGTH] * frequencies / (2 * math.pi)  # within the trained length
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1.0 - kept) * frequencies / scaling["factor"] + kept * frequencies, 1.0


def longrope(base: float, rotary_dim: int, scaling: dict[str, Any], sequence_length: Any = None) -> Any:
    """Divides the frequency of each pair by a factor of its own.

    The factors are `short_factor` for texts up to the trained length `L`, and `long_factor` for longer texts.

    The attention scaling is `attention_factor` if given, else `sqrt(1 + ln(factor) / ln(L))`, where `factor` is the
    ratio of the longest length to the trained one.

    Reference:
        Ding et al. 2024, "LongRoPE", section 3.2; Abdin et al. 2024, "Phi-3 Technical Report".
    """
    trained = scaling[LENGTH]
    if "attention_factor" in scaling:
        attention_scaling = float(scaling["attention_factor"])
    else:
        attention_scaling = math.sqrt(1.0 + math.log(scaling["factor"]) / math.log(trained))
    frequencies = inverse_frequencies(base, rotary_dim)
    short = frequencies / np.asarray(scaling["short_factor"], "float64")
    if sequence_length is None:
        return short, attention_scaling
    long = frequencies / np.asarray(scaling["long_factor"], "float64")
    numpy_or_ops, sequence_length, short, long = _matching(sequence_length, short, long)
    return numpy_or_ops.where(sequence_length > trained, long, short), attention_scaling


def proportional(base: float, rotary_dim: int, scaling: dict[str, Any], sequence_length: Any = None) -> Any:
    """Rotates only the `proportion` of pairs with the highest frequencies, which are divided by `factor`.

    The other pairs are not rotated. In contrast to a `rotary_dim` smaller than the head, frequencies are those of the
    whole width, and in the half-split layout the features of a pair stay `rotary_dim / 2` apart.

    Reference:
        The configuration of Gemma 4 in the Transformers library.
    """
    frequencies = inverse_frequencies(base, rotary_dim) / scaling.get("factor", 1.0)
    frequencies[int(scaling["proportion"] * rotary_dim // 2) :] = 0.0
    return frequencies, 1.0


ROTARY_SCALINGS: dict[str, Callable[..., Any]] = {
    "linear": linear,
    "dynamic_ntk": dynamic_ntk,
    "yarn": yarn,
    "llama3": llama3,
    "longrope": longrope,
    "proportional": proportional,
}


def check_rotary_scaling(scaling: dict[str, Any], rotary_dim: int) -> dict[str, Any]:
    """Checks `scaling`, and returns a copy without keys whose value is None.

    Args:
        scaling: `{"kind": name of the method, ...}` with the method's parameters.
        rotary_dim: Number of rotated features.

    Raises:
        ValueError: If the kind is unknown, or a key is unknown, missing or out of range. The message names the key.
    """
    if not isinstance(scaling, dict) or scaling.get("kind") not in ROTARY_SCALINGS:
        kinds = ", ".join(map(repr, ROTARY_SCALINGS))
        raise ValueError(f"scaling must be a dict whose 'kind' is one of {kinds}, got {scaling!r}.")
    scaling = {key: value for key, value in scaling.items() if value is not None}
    kind = scaling["kind"]
    required, optional = _KEYS[kind]
    for key in sorted(required - scaling.keys()):
        raise ValueError(f"scaling[{key!r}] must be given with the kind {kind!r}, got None.")
    for key in sorted(scaling.keys() - required - optional - {"kind"}):
        known = f"which has {sorted(required | optional)}"
        raise ValueError(f"scaling[{key!r}] must be left out with the kind {kind!r}, {known}, got {scaling[key]!r}.")
    if kind == "longrope" and not {"factor", "attention_factor"} & scaling.keys():
        raise ValueError(
            "scaling['factor'] or scaling['attention_factor'] must be given with the kind 'longrope', got neither."
        )
    for key, value in scaling.items():
        if key != "kind":
            _check_value(kind, key, value, rotary_dim)
    if kind == "llama3" and not scaling["high_freq_factor"] > scaling["low_freq_factor"]:
        raise ValueError(
            "scaling['high_freq_factor'] must be above scaling['low_freq_factor'] with the kind 'llama3', got "
            f"{scaling['high_freq_factor']} and {scaling['low_freq_factor']}."
        )
    if kind == "yarn" and scaling.get("beta_fast", 32.0) < scaling.get("beta_slow", 1.0):
        raise ValueError(
            "scaling['beta_fast'] (default 32) must be at least scaling['beta_slow'] (default 1) with the kind 'yarn', "
            f"got {scaling.get('beta_fast', 32.0)} and {scaling.get('beta_slow', 1.0)}."
        )
    return scaling


def _check_value(kind: str, key: str, value: Any, rotary_dim: int) -> None:
    def is_number(candidate: Any) -> bool:
        return isinstance(candidate, int | float) and not isinstance(candidate, bool) and math.isfinite(candidate)

    if key == "truncate":
        fine, allowed = isinstance(value, bool), "true or false"
    elif key in ("short_factor", "long_factor"):
        fine = isinstance(value, list | tuple) and len(value) == rotary_dim // 2
        fine = fine and all(is_number(number) and number > 0 for number in value)
        allowed = f"a list of rotary_dim / 2 = {rotary_dim // 2} numbers above zero"
    elif key == "factor":
        fine, allowed = is_number(value) and value >= 1, "a number of at least 1"
    elif key == "proportion":
        fine, allowed = is_number(value) and 0 < value <= 1, "a number above 0 and up to 1"
    elif key == LENGTH:
        fine, allowed = is_number(value) and value >= 2, "a number of positions, at least 2"
    elif key in ("mscale", "mscale_all_dim"):
        fine, allowed = is_number(value) and value >= 0, "a number of at least 0"
    else:
        fine, allowed = is_number(value) and value > 0, "a number above zero"
    if not fine:
        raise ValueError(f"scaling[{key!r}] must be {allowed}, with the kind {kind!r}, got {value!r}.")


def _matching(sequence_length: Any, *arrays: Any) -> Any:
    """NumPy for a number or array, `keras.ops` for a tensor, and all arguments in shapes and types that fit."""
    if isinstance(sequence_length, int | float | np.ndarray | np.generic):
        return np, np.asarray(sequence_length, "float64")[..., None], *arrays
    return ops, ops.expand_dims(sequence_length, -1), *(ops.cast(array, sequence_length.dtype) for array in arrays)
