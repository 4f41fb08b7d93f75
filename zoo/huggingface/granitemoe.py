"""Granite with experts (model type "granitemoe")."""

import dataclasses
from typing import Any

from zoo.config import TransformerConfig
from zoo.huggingface import granite, llama
from zoo.huggingface.config_reader import ConfigReader

TABLE = {
    **{ours: theirs for ours, theirs in llama.TABLE.items() if ".feed_forward." not in ours},
    "decoder.{}.feed_forward.router": "layers.{}.block_sparse_moe.router.layer",
    (
        "decoder.{}.feed_forward.experts.gate",
        "decoder.{}.feed_forward.experts.up",
    ): "layers.{}.block_sparse_moe.input_linear",
    "decoder.{}.feed_forward.experts.down": "layers.{}.block_sparse_moe.output_linear",
}


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a Granite with experts in all layers."""
    reader.skip("output_router_logits")
    reader.take_only("mlp_bias", False)
    config = granite.read(reader)
    network = dataclasses.replace(
        config.feed_forward,
        num_experts=reader.take("num_local_experts", 8),
        experts_per_token=reader.take("num_experts_per_tok", 2),
        normalize_weights=True,
        load_balance_weight=reader.take("router_aux_loss_coef", 0.001),
    )
    return dataclasses.replace(config, feed_forward=network)


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    network = config.feed_forward
    values = {
        **granite.write(config),
        "num_local_experts": network.num_experts,
        "num_experts_per_tok": network.experts_per_token,
        "router_aux_loss_coef": network.load_balance_weight,
    }
    for key in ("head_dim", "mlp_bias"):  # that of heads follows from the others
        del values[key]
    return values


llama.register("granitemoe", "GraniteMoe", read, write, TABLE, classifiers={})
