"""Mixtral (model type "mixtral")."""

import dataclasses
from typing import Any

from zoo.config import TransformerConfig
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.weights import Stored

TABLE = {
    **{ours: theirs for ours, theirs in llama.TABLE.items() if ".feed_forward." not in ours},
    "decoder.{}.feed_forward.router": "layers.{}.block_sparse_moe.gate",
    "decoder.{}.feed_forward.experts.gate": Stored("layers.{}.block_sparse_moe.experts.{}.w1"),
    "decoder.{}.feed_forward.experts.up": Stored("layers.{}.block_sparse_moe.experts.{}.w3"),
    "decoder.{}.feed_forward.experts.down": Stored("layers.{}.block_sparse_moe.experts.{}.w2"),
}


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a Mixtral."""
    config = llama.read(
        reader,
        lambda reader: {"use_bias": False, **llama.read_window(reader, None)},
        max_position_embeddings=4096 * 32,
        num_key_value_heads=8,
        rms_norm_eps=1e-5,
        rope_theta=1e6,
    )
    reader.skip("output_router_logits", "router_jitter_noise")  # training alone
    return dataclasses.replace(
        config,
        feed_forward=dataclasses.replace(
            config.feed_forward,
            num_experts=reader.take("num_local_experts", 8),
            experts_per_token=reader.take("num_experts_per_tok", 2),
            normalize_weights=True,
            load_balance_weight=reader.take("router_aux_loss_coef", 0.001),
        ),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    network = config.feed_forward
    return {
        **llama.write(config),
        "sliding_window": llama.size_of_window(config),
        "num_local_experts": network.num_experts,
        "num_experts_per_tok": network.experts_per_token,
        "router_aux_loss_coef": network.load_balance_weight,
    }


llama.register("mixtral", "Mixtral", read, write, TABLE, answerer_prefix="model.")
