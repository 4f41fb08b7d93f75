"""The configuration of a GGUF file, as the `config.json` of the Transformers library would say it."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.gguf.architectures import Architecture, architecture_of
from zoo.gguf.fields import Fields, shortest
from zoo.gguf.header import GGUFHeader
from zoo.storage import quote

# architectures that rotate a part of a head
_WITH_ROTATED_PARTS = ("chatglm", "deepseek2", "glm4", "gptneox", "nemotron", "phi2", "phi3", "stablelm")
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def config_of(header: GGUFHeader) -> dict[str, Any]:
    """Returns the configuration of a model.

    Args:
        header: The header of the file.

    Raises:
        ValueError: If the architecture is not supported, or a key is missing or has another type.
    """
    fields = Fields(header)
    architecture = architecture_of(fields)
    layers, heads, width = (fields.count(name) for name in ("block_count", "attention.head_count", "embedding_length"))
    _check_counts(fields)
    head_dim = fields.count("attention.key_length", max(width // heads, 1))
    values: dict[str, Any] = {
        "model_type": architecture.model_type,
        "architectures": [architecture.class_name],
        "vocab_size": fields.rows("token_embd.weight"),
        "tie_word_embeddings": "output.weight" not in header.tensors,
    }
    if not architecture.is_complete:
        values |= {
            "hidden_size": width,
            "intermediate_size": fields.count("feed_forward_length"),
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": _key_value_heads(fields, architecture, layers, heads),
            "head_dim": head_dim,
            "max_position_embeddings": fields.count("context_length"),
            "rms_norm_eps": fields.number("attention.layer_norm_rms_epsilon", 1e-6),
            "rope_theta": fields.number("rope.freq_base", 10000.0),
        }
    rotated = fields.count("rope.dimension_count", head_dim)
    if rotated != head_dim and fields.architecture not in _WITH_ROTATED_PARTS:
        raise ValueError(
            f"{header.path}: {fields.architecture}.rope.dimension_count must be {head_dim}, the width of a head, got "
            f"{rotated}."
        )
    values |= architecture.keys(fields)
    base = values.get("rope_theta", values.get("rotary_emb_base"))
    scaling = None if base is None else _scaling(fields, head_dim, base)
    if scaling is not None:
        values.setdefault("rope_scaling", scaling)
    for role, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        index = header.get(f"tokenizer.ggml.{key}_token_id", int)
        if index is not None:
            values[f"{role}_token_id"] = index
    return values


def _check_counts(fields: Fields) -> None:
    """Raises a `ValueError` where there are more layers or experts than the tensors have room for."""
    tensors, name = fields.header.tensors, fields.architecture
    for key in ("block_count", "decoder_block_count"):
        if fields.has(key) and fields.count(key) > len(tensors):
            raise ValueError(f"{fields.header.path}: {name}.{key} must fit its {len(tensors)} tensors.")
    most = max((tensor.shape[0] for key, tensor in tensors.items() if key.endswith("_exps.weight")), default=1)
    experts = fields.index("expert_count", 0)  # 0: that of converters for models without
    if experts > most:
        raise ValueError(
            f"{fields.header.path}: {name}.expert_count must be at most {most}, for which it has weights, "
            f"got {experts}."
        )


def _key_value_heads(fields: Fields, architecture: Architecture, layers: int, heads: int) -> int:
    name = "attention.head_count_kv"
    if not architecture.by_layer:
        return fields.count(name, heads)
    return max(fields.counts(name, layers, heads)) or heads  # layers without attention have none


def _scaling(fields: Fields, head_dim: int, base: float) -> dict[str, Any] | None:
    """How rotary positions are stretched for texts that are longer than those of the first training."""
    header, name = fields.header, f"{fields.architecture}.rope.scaling"
    factors = fields.factors("rope_freqs.weight")
    if factors is not None:
        for factor in (8.0, 32.0):
            expected = llama3_factors(head_dim, base, factor)
            if len(factors) == len(expected) and np.allclose(factors, expected, rtol=1e-3):
                return {"rope_type": "llama3", "factor": factor, **_LLAMA3}
        raise ValueError(
            f"{header.path}: rope_freqs.weight must be the factors of Llama 3 for 8 or 32 times its length."
        )
    kind = header.get(f"{name}.type", str, "none")
    if kind == "none":
        return None
    factor = shortest(header.require(f"{name}.factor", float))
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        length = header.require(f"{name}.original_context_length", int)
        scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": length}
        for end in ("beta_fast", "beta_slow"):
            if fields.has(f"rope.scaling.yarn_{end}"):
                scaling[end] = fields.number(f"rope.scaling.yarn_{end}", 0.0)
        stretch = fields.number("rope.scaling.yarn_log_multiplier", 0.0)
        if stretch and fields.architecture == "deepseek2":
            # a tenth of what multiplies the scores; llama.cpp takes the other multiplier for the same
            scaling |= dict.fromkeys(("mscale", "mscale_all_dim"), shortest(10 * stretch))
        return scaling
    raise ValueError(f"{header.path}: {name}.type must be 'none', 'linear' or 'yarn', got {quote(kind)}.")


def llama3_factors(dim: int, base: float, factor: float) -> np.ndarray:
    """Returns by what the waves of a head are stretched (Llama 3.1), `(dim / 2,)`.

    Args:
        dim: Width of a head.
        base: Base of the frequencies.
        factor: By what the longest waves are stretched.
    """
    lengths = 2 * np.pi * base ** (np.arange(0, dim, 2) / dim)
    low, high, original = _LLAMA3.values()
    smooth = np.clip((original / lengths - low) / (high - low), 0, 1)
    return 1 / ((1 - smooth) / factor + smooth)


def pooling_files(header: GGUFHeader) -> dict[str, Any]:
    """Returns the files of the Sentence Transformers library by which an embedder pools; none for other models.

    Args:
        header: The header of the file.

    Raises:
        ValueError: If it pools in a way that is not supported.
    """
    fields = Fields(header)
    if architecture_of(fields).task != "TextEmbedder":
        return {}
    key = f"{fields.architecture}.pooling_type"
    kind = header.get(key, int, 1)
    if kind not in _POOLINGS:
        raise ValueError(f"{header.path}: {key} must be one of {sorted(_POOLINGS)}, got {kind}.")
    width = fields.count("embedding_length")
    kinds = ("Transformer", "Pooling", "Normalize")  # llama.cpp, too, returns vectors of length 1 by default
    modules = [
        {"idx": index, "name": str(index), "path": f"{index}_{kind}" if index else "", "type": f"{_LIBRARY}.{kind}"}
        for index, kind in enumerate(kinds)
    ]
    pooling = {"word_embedding_dimension": width, f"pooling_mode_{_POOLINGS[kind]}": True}
    return {"modules.json": modules, "1_Pooling/config.json": pooling}


_LIBRARY = "sentence_transformers.models"
# llama.cpp's numbers of ways to pool
_POOLINGS = {1: "mean_tokens", 2: "cls_token", 3: "lasttoken"}
