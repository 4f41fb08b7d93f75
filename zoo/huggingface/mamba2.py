"""Mamba 2 and Bamba (model types "mamba2", "bamba")."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    MixerConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)
from zoo.config.checks import require
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.decoder_heads import decoder_heads
from zoo.huggingface.family import Family, register_family, shortest_pattern
from zoo.huggingface.weights import Stored, Table

MAX_LENGTH = 2048  # of the training of the first models; nothing in the model is bound to it
# the keys of our choices, and what missing ones mean
Keys = Mapping[str, tuple[str, Any]]
_KEYS: Keys = {
    "num_heads": ("num_heads", 128),
    "num_key_heads": ("n_groups", 8),
    "key_dim": ("state_size", 128),
    "value_dim": ("head_dim", 64),
    "kernel_size": ("conv_kernel", 4),
    "use_bias": ("use_bias", False),
    "convolution_bias": ("use_conv_bias", True),
}
_BAMBA_KEYS: Keys = {
    "num_heads": ("mamba_n_heads", 128),
    "num_key_heads": ("mamba_n_groups", 1),
    "key_dim": ("mamba_d_state", 256),
    "value_dim": ("mamba_d_head", "auto"),
    "kernel_size": ("mamba_d_conv", 4),
    "use_bias": ("mamba_proj_bias", False),
    "convolution_bias": ("mamba_conv_bias", True),
}
# how new models are drawn
_OF_TRAINING = """
    rescale_prenorm_residual time_step_floor time_step_init_scheme time_step_max time_step_min time_step_rank
    time_step_scale
""".split()


def mixer_table(prefix: str) -> dict[Any, Any]:
    """Returns the names of the weights of state spaces.

    Args:
        prefix: What their names begin with, `{}` standing for the number of the layer.
    """
    mixer = "decoder.{}.mixer"
    return {
        tuple(f"{mixer}.{part}" for part in ("gate", "value", "key", "query", "step")): f"{prefix}.in_proj",
        f"{mixer}.convolution": Stored(f"{prefix}.conv1d", middle_axis=True),
        f"{mixer}.log_rate": Stored(f"{prefix}.A_log", bias=""),
        f"{mixer}.step_bias": Stored(f"{prefix}.dt_bias", bias=""),
        f"{mixer}.skip": Stored(f"{prefix}.D", bias=""),
        f"{mixer}.norm_scale": Stored(f"{prefix}.norm", bias=".weight"),
        f"{mixer}.output": f"{prefix}.out_proj",
    }


TABLE: Table = {
    "token_embedding": "embeddings",
    "decoder.{}.attention_norm": "layers.{}.norm",
    **mixer_table("layers.{}.mixer"),
    "decoder.final_norm": "norm_f",
    "output_projection": "lm_head",
}
BAMBA_TABLE: Table = {
    **llama.TABLE,
    **mixer_table("layers.{}.mamba"),
    **{f"decoder.{{}}.feed_forward.{part}": f"layers.{{}}.feed_forward.{part}_proj" for part in ("gate", "up", "down")},
    "decoder.{}.feed_forward_norm": "layers.{}.pre_ff_layernorm",
    "decoder.final_norm": "final_layernorm",
}


def read_mixer(
    reader: ConfigReader, keys: Keys, inner: int, epsilon: float, layers: tuple[bool, ...] | None = None
) -> MixerConfig:
    """Returns state spaces.

    Args:
        reader: The configuration.
        keys: The keys of our choices, and what missing ones mean.
        inner: Width of all heads together.
        epsilon: Of the norm of what heads read.
        layers: The layers that have them, see `MixerConfig`.

    Raises:
        ValueError: If the heads do not have this width.
    """
    values = {choice: reader.take_number(key, default) for choice, (key, default) in keys.items()}
    reader.names.update({f"mixer.{choice}": key for choice, (key, _) in keys.items()})
    heads, key = values["num_heads"], keys["value_dim"][0]
    if values["value_dim"] == "auto":
        values["value_dim"] = inner // heads
    allowed = f"{inner} / {heads}, the expanded width by {keys['num_heads'][0]}"
    require(heads * values["value_dim"] == inner, key, values["value_dim"], allowed)
    limit = reader.take("time_step_limit", None) or [0.0, math.inf]
    # the library writes an infinite number as an object
    least, greatest = (float(end["__float__"]) if isinstance(end, dict) else end for end in limit)
    return MixerConfig(
        "state_space",
        layers,
        **values,
        epsilon=epsilon,
        step_limit=(least, None if greatest == math.inf else greatest),
    )


def write_mixer(config: TransformerConfig, keys: Keys, expand: str) -> dict[str, Any]:
    """Returns the keys of state spaces.

    Args:
        config: Our configuration.
        keys: The keys of our choices.
        expand: The key of how often as wide as the model all heads are.

    Raises:
        ValueError: If no layer has them.
    """
    mixer = config.mixer
    if mixer is None or mixer.kind != "state_space":
        raise ValueError("its layers have state spaces in the place of attention, those of this model have not")
    chosen = dataclasses.asdict(mixer)
    chosen |= {"num_key_heads": mixer.num_key_heads or mixer.num_heads}
    chosen |= {"value_dim": mixer.value_dim or mixer.key_dim}
    values = {key: chosen[choice] for choice, (key, _) in keys.items()}
    values[expand] = chosen["num_heads"] * chosen["value_dim"] // config.hidden_dim
    least, greatest = mixer.step_limit
    if (least, greatest) != (0.0, None):
        values["time_step_limit"] = [least, {"__float__": "Infinity"} if greatest is None else greatest]
    return values


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration: state spaces alone, without feed-forward networks."""
    width, epsilon = reader.take("hidden_size"), reader.take("layer_norm_epsilon", 1e-5)
    reader.take_only("hidden_act", "silu")  # of the convolutions
    # in published files: the library reads neither, and has a norm behind the gate
    reader.take_only("rms_norm", True)
    reader.skip("norm_before_gate")
    # sums of layers are of the precision of the model here; chunks change no numbers
    reader.skip("residual_in_fp32", "chunk_size", *_OF_TRAINING)
    inner = int(reader.take_number("expand", 2) * width)
    reader.take_only("intermediate_size", inner)  # in published files, never read
    return TransformerConfig(
        "decoder",
        reader.take("vocab_size"),
        hidden_dim=width,
        num_layers=reader.take("num_hidden_layers"),
        max_length=MAX_LENGTH,
        attention=AttentionConfig(1),
        position=PositionConfig("none"),
        norm=NormConfig("rms", "pre", epsilon=epsilon),
        feed_forward=FeedForwardConfig(layers=(False,)),
        embedding=EmbeddingConfig(tie_output=reader.take("tie_word_embeddings", False)),
        mixer=read_mixer(reader, _KEYS, inner, epsilon),
        dropout=0.0,
        initializer_range=reader.take("initializer_range", 0.1),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    return {
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.hidden_dim,
        "num_hidden_layers": config.num_layers,
        "layer_norm_epsilon": config.norm.epsilon,
        "tie_word_embeddings": config.embedding.tie_output,
        "initializer_range": config.initializer_range or 0.1,
        **write_mixer(config, _KEYS, "expand"),
    }


def read_bamba(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration: a Llama, most layers of which have state spaces."""
    # others would also be behind the convolutions
    reader.take_only("hidden_act", "silu")
    # the library turns half of each head, unless `rope_parameters` say something else
    reader.take_only("partial_rotary_factor", None, 0.5)
    config = llama.read(
        reader,
        lambda reader: {"use_bias": reader.take("attention_bias", False)},
        intermediate_size=14336,
        max_position_embeddings=262144,
        num_key_value_heads=8,
        partial_rotary_factor=0.5,
        rms_norm_eps=1e-5,
    )
    turned = reader.take("attn_rotary_emb", None)  # in published files, never read
    allowed = f"{config.position.rotary_dim}, half of the width of a head"
    require(turned in (None, config.position.rotary_dim), "attn_rotary_emb", turned, allowed)
    # of training, and how long prompts are computed
    reader.skip("z_loss_coefficient", "num_logits_to_keep", "mamba_chunk_size")
    chosen, layers = reader.take("attn_layer_indices", None) or (), range(config.num_layers)
    require(set(chosen) <= set(layers), "attn_layer_indices", chosen, f"null or numbers from 0 to {layers[-1]}")
    pattern = shortest_pattern([index not in chosen for index in layers])
    inner = int(reader.take_number("mamba_expand", 2) * config.hidden_dim)
    several = pattern if len(pattern) > 1 else None
    mixer = read_mixer(reader, _BAMBA_KEYS, inner, config.norm.epsilon, several)
    return dataclasses.replace(config, mixer=mixer if True in pattern else None)


def write_bamba(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    values = llama.write(config, has_head_dim=False)
    # outside of this object the library reads no share
    positions = values.pop("rope_scaling", {"rope_type": "default"})
    positions |= {"rope_theta": values.pop("rope_theta")}
    positions |= {"partial_rotary_factor": values.pop("partial_rotary_factor", 1.0)}
    return {
        **values,
        "rope_parameters": positions,
        "attention_bias": bool(config.attention.use_bias),
        "mlp_bias": config.feed_forward.use_bias,
        "attn_layer_indices": [index for index in range(config.num_layers) if not config.has_mixer(index)],
        **write_mixer(config, _BAMBA_KEYS, "mamba_expand"),
    }


register_family(
    Family(
        "mamba2",
        read,
        write,
        TABLE,
        architecture="Mamba2Model",
        prefix="backbone.",
        outside=("lm_head.",),
        heads=decoder_heads("Mamba2ForCausalLM"),
        copies={"lm_head.weight": "embeddings.weight"},
        renamed={"embedding.": "embeddings."},
    )
)
llama.register("bamba", "Bamba", read_bamba, write_bamba, BAMBA_TABLE, classifiers={})
