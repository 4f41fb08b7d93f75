"""Checks of the constructor arguments of `MultiHeadAttention`."""

import inspect
from typing import Any

import keras

from layers.attention.cache import CacheLayout
from layers.attention.kernels.banded import band
from layers.attention.kernels.dispatch import PATHS
from layers.attention.masks import AttentionMask
from layers.positions.base import PositionEncoding

PROJECTIONS = ("query", "key", "value", "output")
GLOBAL_PROJECTIONS = ("query_global", "key_global", "value_global")
NORM_SCOPES = ("head", "width")


def check_configuration(layer: Any) -> None:
    """Checks the constructor arguments of a `MultiHeadAttention`, which it holds as attributes.

    Args:
        layer: The layer.

    Raises:
        ValueError: If an argument is out of range, or two of them exclude each other.
    """
    for name in ("num_heads", "head_dim", "num_key_value_heads", "value_head_dim"):
        value = getattr(layer, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
    if layer.num_heads % layer.num_key_value_heads:
        raise ValueError(
            f"num_key_value_heads must divide num_heads={layer.num_heads}, got {layer.num_key_value_heads}: each "
            "key-value head serves the same number of query heads."
        )
    unknown = set(layer.use_bias) - set(PROJECTIONS)
    if unknown:
        raise ValueError(f"use_bias must be a bool or names out of {PROJECTIONS}, got {sorted(unknown)} too.")
    if layer.output_dim is not None and (not isinstance(layer.output_dim, int) or layer.output_dim < 1):
        raise ValueError(f"output_dim must be an integer of at least 1 or None, got {layer.output_dim!r}.")
    if not 0 <= layer.dropout_rate < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {layer.dropout_rate!r}.")
    if layer.logit_soft_cap is not None and not layer.logit_soft_cap > 0:
        raise ValueError(f"logit_soft_cap must be positive or None, got {layer.logit_soft_cap!r}.")
    if layer.projection_limit is not None and not layer.projection_limit > 0:
        raise ValueError(f"projection_limit must be positive or None, got {layer.projection_limit!r}.")
    if layer.norm_scope not in NORM_SCOPES:
        raise ValueError(f"norm_scope must be one of {NORM_SCOPES}, got {layer.norm_scope!r}.")
    for name in ("query_norm", "key_norm"):
        _check_norm(name, getattr(layer, name))
    if layer.weighting is not None and (layer.has_sinks or layer.logit_soft_cap is not None):
        raise ValueError(
            f"sinks and logit_soft_cap must be left out with weighting={layer.weighting!r}, as they belong to the "
            f"softmax, got sinks={layer.has_sinks} and logit_soft_cap={layer.logit_soft_cap!r}."
        )
    if not isinstance(layer.cache_layout, CacheLayout):
        raise ValueError(f"cache_layout must be a CacheLayout or None, got {layer.cache_layout!r}.")
    if layer.position is not None:
        _check_position(layer)
    if layer.latents is not None:
        _check_latents(layer)
    if layer.has_global_projections:
        _check_global(layer)
    _check_path(layer)


def _check_norm(name: str, norm: Any) -> None:
    if norm is None:
        return
    if not isinstance(norm, keras.layers.Layer):
        raise ValueError(f"{name} must be a Keras layer or None, got {norm!r}.")
    if "mask" in inspect.signature(norm.call).parameters:
        raise ValueError(
            f"{name} must be a norm of each position for itself, got {norm!r}: its statistics would count padding."
        )


def _check_position(layer: Any) -> None:
    position = layer.position
    if not isinstance(position, PositionEncoding):
        raise ValueError(f"position must be a PositionEncoding or None, got {position!r}.")
    if not position.acts_in_attention():
        raise ValueError(
            f"position must act on queries and keys, on scores or on the output of attention, got {position!r}, which "
            "acts on the embedded tokens: add it to the inputs of the model."
        )
    position.check_heads(layer.num_heads, layer.head_dim, layer.value_head_dim)


def _check_latents(layer: Any) -> None:
    shared = layer.latents.shared_key_dim
    if not shared < layer.head_dim:
        raise ValueError(f"latents must have a shared_key_dim below head_dim={layer.head_dim}, got {shared}.")
    usual_values = {"num_key_value_heads": layer.num_heads}
    usual_values |= dict.fromkeys(("query_norm", "key_norm", "projection_limit"))
    for name, usual in usual_values.items():
        if getattr(layer, name) != usual:
            raise ValueError(f"{name} must be {usual} with latents, got {getattr(layer, name)!r}.")
    for hook in ("on_pairs", "score_bias", "on_output"):
        if layer.position is not None and getattr(type(layer.position), hook) is not getattr(PositionEncoding, hook):
            raise ValueError(f"position must act on queries and keys alone with latents, got {layer.position!r}.")


def _check_global(layer: Any) -> None:
    if layer.causal or band(AttentionMask(window=layer.window)) is None:
        raise ValueError(
            "global_projections must be False without a window with limits on both sides, and with causal=True, got "
            f"True with window={layer.window} and causal={layer.causal}."
        )
    names = ("position", "block_size", "logit_soft_cap", "query_norm", "key_norm", "projection_limit", "weighting")
    for name in (*names, "latents", "has_sinks"):
        if getattr(layer, name):
            raise ValueError(
                f"{name.removeprefix('has_')} must be left out with global_projections, got {getattr(layer, name)!r}."
            )


def _check_path(layer: Any) -> None:
    """Raises if no call could take the path; otherwise a path is a preference."""
    path = layer.preferred_path
    if path not in ("auto", *PATHS):
        raise ValueError(f"path must be one of {('auto', *PATHS)}, got {path!r}.")
    if path in ("auto", "plain"):
        return
    if layer.position is not None and layer.position.needs_weights:
        raise ValueError(
            f"path must be 'auto' or 'plain' with position={layer.position!r}, which needs all weights at once; "
            f"got {path!r}."
        )
    if layer.weighting is not None and path not in layer.weighting.paths:
        raise ValueError(f"path must be 'auto' or one of {layer.weighting.paths} with weighting, got {path!r}.")
    if path == "banded" and band(AttentionMask(layer.causal, layer.window, layer.block_size)) is None:
        raise ValueError(
            "path must not be 'banded' without a block_size or a window with limits on both sides (one, if causal), "
            f"got 'banded' with window={layer.window} and block_size={layer.block_size}."
        )
