"""The configuration of a GGUF file, as the `config.json` of the Transformers library would say it."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.gguf.header import GGUFHeader
from zoo.storage import quote

# the `model_type` of an architecture, and the keys of its configuration that all files of it have
ARCHITECTURES: dict[str, tuple[str, str]] = {
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "smollm3": ("smollm3", "SmolLM3ForCausalLM"),
    "granite": ("granite", "GraniteForCausalLM"),
}
_SCALES = {
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def config_of(header: GGUFHeader, rope_factors: np.ndarray | None) -> dict[str, Any]:
    """Returns the configuration of a model.

    Args:
        header: The header of the file.
        rope_factors: Its tensor `rope_freqs.weight`, by which Llama 3 stretches long waves; None without one.

    Raises:
        ValueError: If the architecture is not supported, or a key is missing or has another type.
    """
    architecture = header.require("general.architecture", str)
    if architecture not in ARCHITECTURES:
        raise ValueError(
            f"{header.path}: general.architecture must be one of {sorted(ARCHITECTURES)}, got {quote(architecture)}."
        )
    model_type, class_name = ARCHITECTURES[architecture]

    def count(name: str, default: int | None = None) -> int:
        key = f"{architecture}.{name}"
        value = header.require(key, int) if default is None else header.get(key, int, default)
        if not 1 <= value < 2**31:
            raise ValueError(f"{header.path}: {key} must be from 1 up to {2**31 - 1}, got {value}.")
        return value

    def number(name: str, default: float) -> float:
        return shortest(header.get(f"{architecture}.{name}", (int, float), default))

    layers, heads, width = count("block_count"), count("attention.head_count"), count("embedding_length")
    if layers > len(header.tensors):
        raise ValueError(f"{header.path}: {architecture}.block_count must fit its {len(header.tensors)} tensors.")
    head_dim = count("attention.key_length", width // heads)
    values: dict[str, Any] = {
        "model_type": model_type,
        "architectures": [class_name],
        "vocab_size": _rows(header, "token_embd.weight"),
        "hidden_size": width,
        "intermediate_size": count("feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": count("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": count("context_length"),
        "rms_norm_eps": number("attention.layer_norm_rms_epsilon", 1e-6),
        "rope_theta": number("rope.freq_base", 10000.0),
        "tie_word_embeddings": "output.weight" not in header.tensors,
    }
    if count("rope.dimension_count", head_dim) != head_dim:
        raise ValueError(
            f"{header.path}: {architecture}.rope.dimension_count must be {head_dim}, the width of a head, got "
            f"{count('rope.dimension_count', head_dim)}."
        )
    if architecture != "qwen2":
        values["attention_bias"] = "blk.0.attn_q.bias" in header.tensors
    if architecture == "granite":
        for ours, theirs in _SCALES.items():
            if f"granite.{theirs}" in header.metadata:
                values[ours] = number(theirs, 1.0)
    scaling = _scaling(header, architecture, values, rope_factors)
    if scaling:
        values["rope_scaling"] = scaling
    for role, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        index = header.get(f"tokenizer.ggml.{key}_token_id", int)
        if index is not None:
            values[f"{role}_token_id"] = index
    return values


def shortest(value: float) -> float:
    """Returns the shortest decimal that is the same number in float32, which files store: 1e-05, not 9.99...e-06.

    Args:
        value: The number.

    Example:

    >>> shortest(9.999999747378752e-06)
    1e-05
    """
    return float(np.format_float_scientific(np.float32(value), unique=True))


def _rows(header: GGUFHeader, name: str) -> int:
    if name not in header.tensors or len(header.tensors[name].shape) != 2:
        raise ValueError(f"{header.path}: it must have a matrix {name}.")
    return header.tensors[name].shape[0]


def _scaling(
    header: GGUFHeader, architecture: str, values: dict[str, Any], factors: np.ndarray | None
) -> dict[str, Any] | None:
    """How rotary positions are stretched for texts that are longer than those of the first training."""
    prefix = f"{architecture}.rope.scaling"
    kind = header.get(f"{prefix}.type", str, "none")
    if factors is not None:
        for factor in (8.0, 32.0):
            found = {"rope_type": "llama3", "factor": factor, **_LLAMA3}
            if np.allclose(factors, _llama3_factors(values["head_dim"], values["rope_theta"], factor), rtol=1e-3):
                return found
        raise ValueError(
            f"{header.path}: rope_freqs.weight must be the factors of Llama 3 for 8 or 32 times its length."
        )
    if kind == "none":
        return None
    factor = shortest(header.require(f"{prefix}.factor", float))
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        length = header.require(f"{prefix}.original_context_length", int)
        return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": length}
    raise ValueError(f"{header.path}: {prefix}.type must be 'none', 'linear' or 'yarn', got {quote(kind)}.")


def _llama3_factors(dim: int, base: float, factor: float) -> np.ndarray:
    """By what the waves of a head are stretched (Llama 3.1)."""
    lengths = 2 * np.pi * base ** (np.arange(0, dim, 2) / dim)
    low, high, original = _LLAMA3.values()
    smooth = np.clip((original / lengths - low) / (high - low), 0, 1)
    return 1 / ((1 - smooth) / factor + smooth)
