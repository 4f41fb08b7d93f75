"""EXAONE 4 (model type "exaone4")."""

import dataclasses
from typing import Any

from zoo.config import TransformerConfig
from zoo.config.checks import require
from zoo.huggingface import llama, olmo
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import sliding_but_every, types_of_layers, window_of_layers


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of an EXAONE 4: norms after the sublayers; beside windows, positions in these alone."""
    size = reader.take("sliding_window", 4096)

    def attention(reader: ConfigReader) -> dict[str, Any]:
        layers, period = reader.take("num_hidden_layers"), reader.take("sliding_window_pattern", 4)
        types = reader.take("layer_types", None)
        if types is None:
            types = ["full_attention"] * layers if size is None else sliding_but_every(layers, period)
        windows = window_of_layers(types, layers, llama.sliding(size))
        require(size is not None or not windows, "sliding_window", size, f"a number where layer_types={types}")
        return {"use_bias": False, "query_key_norm": "rms", **windows}

    config = llama.read(reader, attention, num_key_value_heads=32, rms_norm_eps=1e-5)
    norm, position, layers = dataclasses.replace(config.norm, placement="res_post"), config.position, None
    if size is not None:
        # layers that see all positions do not know them
        layers = (False,) if config.attention.window is None else config.attention.window_layers
    return dataclasses.replace(config, norm=norm, position=dataclasses.replace(position, layers=layers))


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    has_positions = any(config.position.acts_in_layer(index) for index in range(config.num_layers))
    return {
        **llama.write(config, has_head_dim=False),
        # a model without positions is one with a window that no layer has
        "sliding_window": llama.size_of_window(config) or (None if has_positions else 4096),
        "layer_types": types_of_layers(config),
    }


llama.register("exaone4", "Exaone4", read, write, olmo.TABLE, answerer_prefix="transformer.")
