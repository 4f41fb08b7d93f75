"""Phi-1 to Phi-4 (model types "phi", which is Phi-1, 1.5 and 2, and "phi3")."""

import dataclasses
from typing import Any

from zoo.config import NormConfig, TransformerConfig
from zoo.config.checks import require
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.decoder_heads import has_output_bias
from zoo.huggingface.rotary import LENGTH, write_rotary

TABLE = {
    "token_embedding": "embed_tokens",
    "decoder.{}.attention_norm": "layers.{}.input_layernorm",
    "decoder.{}.attention.query": "layers.{}.self_attn.q_proj",
    "decoder.{}.attention.key": "layers.{}.self_attn.k_proj",
    "decoder.{}.attention.value": "layers.{}.self_attn.v_proj",
    "decoder.{}.attention.output": "layers.{}.self_attn.dense",
    "decoder.{}.attention.query_norm": "layers.{}.self_attn.q_layernorm",
    "decoder.{}.attention.key_norm": "layers.{}.self_attn.k_layernorm",
    "decoder.{}.feed_forward.up": "layers.{}.mlp.fc1",
    "decoder.{}.feed_forward.down": "layers.{}.mlp.fc2",
    "decoder.final_norm": "final_layernorm",
    "output_projection": "lm_head",
    "output_bias": "lm_head",
}
_SEPARATE = {
    f"decoder.{{}}.{name}"
    for name in ("attention.query", "attention.key", "attention.value", "feed_forward.gate", "feed_forward.up")
}
PHI3_TABLE = {
    **{ours: theirs for ours, theirs in llama.TABLE.items() if ours not in _SEPARATE},
    (
        "decoder.{}.attention.query",
        "decoder.{}.attention.key",
        "decoder.{}.attention.value",
    ): "layers.{}.self_attn.qkv_proj",
    ("decoder.{}.feed_forward.gate", "decoder.{}.feed_forward.up"): "layers.{}.mlp.gate_up_proj",
}


def _dropout(config: TransformerConfig) -> dict[str, Any]:
    """The rates of both: of the embedding, and of the outputs of sublayers."""
    return {
        "embd_pdrop": config.dropout if config.embedding.dropout is None else config.embedding.dropout,
        "resid_pdrop": config.dropout,
    }


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a Phi-1, 1.5 or 2: parallel sublayers, biases of all linear maps."""
    norm = "layer" if reader.take("qk_layernorm", False) else None
    reader.skip("auto_map")  # code of the time when the library did not have it
    config = llama.read(
        reader,
        lambda reader: {"use_bias": True, "query_key_norm": norm},
        even_rotation=True,
        hidden_act="gelu_new",
        partial_rotary_factor=0.5,
    )
    usual = config.hidden_dim // config.attention.num_heads
    allowed = f"hidden_size / num_attention_heads = {usual} with qk_layernorm"
    require(norm is None or config.head_dim == usual, "head_dim", config.head_dim, allowed)
    return dataclasses.replace(
        config,
        norm=NormConfig("layer", "parallel", epsilon=reader.take("layer_norm_eps", 1e-5)),
        feed_forward=dataclasses.replace(config.feed_forward, gated=False, use_bias=True),
        embedding=dataclasses.replace(
            config.embedding,
            dropout=reader.take("embd_pdrop", 0.0),
            output_bias=has_output_bias(reader, "PhiForCausalLM"),
        ),
        dropout=reader.take("resid_pdrop", 0.0),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    values = {
        **llama.write(config, has_head_dim=False),
        **_dropout(config),
        "layer_norm_eps": config.norm.epsilon,
        "partial_rotary_factor": 1.0,
        **write_rotary(config.position, config.head_dim),
        "qk_layernorm": config.attention.query_key_norm is not None,
    }
    del values["rms_norm_eps"]
    return values


def _read_phi3(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a Phi-3.

    Its "longrope" takes `short_factor` for texts of up to `original_max_position_embeddings` tokens. Here each text of
    a batch counts for itself; there the longest one, padding included, decides for all.
    """

    def attention(reader: ConfigReader) -> dict[str, Any]:
        return {"use_bias": reader.take_only("attention_bias", False), **llama.read_window(reader, None)}

    for key in ("lm_head_bias", "mlp_bias"):
        reader.take_only(key, False)
    for key in ("full_attn_mod", "interpolate_factor"):
        reader.take_only(key, 1)
    reader.skip("auto_map")  # code of the time when the library did not have it
    config = llama.read(
        reader,
        attention,
        max_position_embeddings=4096,
        original_max_position_embeddings=4096,
        partial_rotary_factor=1.0,
        rms_norm_eps=1e-5,
    )
    return dataclasses.replace(
        config,
        embedding=dataclasses.replace(config.embedding, dropout=reader.take("embd_pdrop", 0.0)),
        dropout=reader.take("resid_pdrop", 0.0),
    )


def _write_phi3(config: TransformerConfig) -> dict[str, Any]:
    values = {
        **llama.write(config, has_head_dim=False),
        "sliding_window": llama.size_of_window(config),
        **_dropout(config),
        LENGTH: config.max_length,
    }
    scaling = values.get("rope_scaling")
    if scaling and LENGTH in scaling:
        # older versions take no other keys than these, and put the length outside
        values[LENGTH] = scaling.pop(LENGTH)
        scaling["type"] = scaling.pop("rope_type")
        if scaling.get("factor") == max(1.0, config.max_length / values[LENGTH]):
            del scaling["factor"]
    return values


llama.register("phi", "Phi", read, write, TABLE)
llama.register("phi3", "Phi3", _read_phi3, _write_phi3, PHI3_TABLE)
