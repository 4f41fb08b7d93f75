"""SmolLM 3 (model type "smollm3")."""

import dataclasses
from typing import Any

from zoo.config import TransformerConfig
from zoo.config.checks import require
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import shortest_pattern, types_of_layers, window_of_layers


def _rotated(reader: ConfigReader) -> list[bool]:
    """Which layers have rotary positions."""
    layers, interval = reader.take("num_hidden_layers"), reader.take("no_rope_layer_interval", 4)
    flags = reader.take("no_rope_layers", None)
    if flags is None:
        return [(index + 1) % interval != 0 for index in range(layers)]
    require(len(flags) >= layers, "no_rope_layers", flags, f"a list with an entry for each of {layers} layers")
    return [bool(flag) for flag in flags[:layers]]


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a SmolLM 3: a Llama, some layers of which have no positions."""
    rotated = _rotated(reader)

    def attention(reader: ConfigReader) -> dict[str, Any]:
        size, is_used = reader.take("sliding_window", None), reader.take("use_sliding_window", False)
        types = reader.take("layer_types", None) or [
            "sliding_attention" if is_used and size is not None and not flag else "full_attention" for flag in rotated
        ]
        windows = window_of_layers(types, len(rotated), llama.sliding(size))
        require(size is not None or not windows, "sliding_window", size, f"a number where layer_types={types}")
        return {"use_bias": reader.take("attention_bias", False), **windows}

    reader.skip("max_window_layers")  # in published files, and never read
    config = llama.read(
        reader,
        attention,
        max_position_embeddings=32768,
        num_key_value_heads=4,
        rope_theta=2e6,
        tie_word_embeddings=True,
    )
    layers = None if all(rotated) else shortest_pattern(rotated)
    return dataclasses.replace(config, position=dataclasses.replace(config.position, layers=layers))


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    size = llama.size_of_window(config)
    return {
        **llama.write(config, has_head_dim=False),
        "attention_bias": bool(config.attention.use_bias),
        "mlp_bias": config.feed_forward.use_bias,
        "layer_types": types_of_layers(config),
        "no_rope_layers": [int(config.position.acts_in_layer(index)) for index in range(config.num_layers)],
        "sliding_window": size,
        "use_sliding_window": size is not None,
    }


llama.register("smollm3", "SmolLM3", read, write, answerer_prefix="transformer.")
