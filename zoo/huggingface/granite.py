"""Granite (model type "granite")."""

import dataclasses
from typing import Any

from zoo.config import TransformerConfig
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a Granite: a Llama with a number on embeddings, scores, branches and logits."""

    def attention(reader: ConfigReader) -> dict[str, Any]:
        return {
            "use_bias": reader.take("attention_bias", False),
            "scale": reader.take("attention_multiplier", 1.0),
        }

    config = llama.read(reader, attention)
    embeddings, logits = reader.take("embedding_multiplier", 1.0), reader.take("logits_scaling", 1.0)
    return dataclasses.replace(
        config,
        embedding=dataclasses.replace(
            config.embedding,
            scale=False if embeddings == 1 else float(embeddings),
            output_scale=None if logits == 1 else 1 / logits,
        ),
        branch_scale=reader.take("residual_multiplier", 1.0),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    attention, embedding = config.attention, config.embedding
    return {
        **llama.write(config),
        "attention_bias": bool(attention.use_bias),
        "mlp_bias": config.feed_forward.use_bias,
        "attention_multiplier": config.head_dim**-0.5 if attention.scale is None else attention.scale,
        "embedding_multiplier": config.embedding_factor,
        "logits_scaling": 1.0 if embedding.output_scale is None else 1 / embedding.output_scale,
        "residual_multiplier": config.branch_scale,
    }


llama.register("granite", "Granite", read, write, classifiers={})
