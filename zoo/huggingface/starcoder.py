"""StarCoder 2 (model type "starcoder2")."""

import dataclasses
from typing import Any

from zoo.config import NormConfig, TransformerConfig
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader

TABLE = {
    **{ours: theirs for ours, theirs in llama.TABLE.items() if "feed_forward.gate" not in ours},
    "decoder.{}.feed_forward.up": "layers.{}.mlp.c_fc",
    "decoder.{}.feed_forward.down": "layers.{}.mlp.c_proj",
}


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a StarCoder 2."""
    use_bias = reader.take("use_bias", True)
    reader.take_only("mlp_type", "default")
    reader.take_only("norm_type", "layer_norm")
    reader.take_only("scale_attn_weights", True)
    # in published files, and never read
    reader.skip(
        "activation_function",
        "attention_softmax_in_fp32",
        "layer_norm_epsilon",
        "scale_attention_softmax_in_fp32",
    )
    config = llama.read(
        reader,
        lambda reader: {"use_bias": use_bias, **llama.read_window(reader, None)},
        hidden_act="gelu_pytorch_tanh",
        max_position_embeddings=4096,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    return dataclasses.replace(
        config,
        norm=NormConfig("layer", "pre", epsilon=reader.take("norm_epsilon", 1e-5)),
        feed_forward=dataclasses.replace(config.feed_forward, gated=False, use_bias=use_bias),
        embedding=dataclasses.replace(config.embedding, dropout=reader.take("embedding_dropout", 0.0)),
        dropout=reader.take("residual_dropout", 0.0),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    values = {
        **llama.write(config, has_head_dim=False),
        "norm_epsilon": config.norm.epsilon,
        "use_bias": bool(config.attention.use_bias),
        "sliding_window": llama.size_of_window(config),
        "embedding_dropout": config.dropout if config.embedding.dropout is None else config.embedding.dropout,
        "residual_dropout": config.dropout,
    }
    del values["rms_norm_eps"]
    return values


llama.register("starcoder2", "Starcoder2", read, write, TABLE)
