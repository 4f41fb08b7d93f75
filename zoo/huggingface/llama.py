"""Llama, Mistral, Qwen 2 and Qwen 3 (model types "llama", "mistral", "qwen2", "qwen3")."""

from collections.abc import Callable
from typing import Any

from zoo.config import AttentionConfig, EmbeddingConfig, FeedForwardConfig, NormConfig, TransformerConfig
from zoo.huggingface.config_reader import ACTIVATION_NAMES, ConfigReader
from zoo.huggingface.family import Family, Head, register_family, types_of_layers, window_of_layers
from zoo.huggingface.rotary import read_rotary, write_rotary
from zoo.storage import quote

TABLE = {
    "token_embedding": "embed_tokens",
    "decoder.{}.attention_norm": "layers.{}.input_layernorm",
    "decoder.{}.attention.query": "layers.{}.self_attn.q_proj",
    "decoder.{}.attention.key": "layers.{}.self_attn.k_proj",
    "decoder.{}.attention.value": "layers.{}.self_attn.v_proj",
    "decoder.{}.attention.output": "layers.{}.self_attn.o_proj",
    "decoder.{}.attention.query_norm": "layers.{}.self_attn.q_norm",
    "decoder.{}.attention.key_norm": "layers.{}.self_attn.k_norm",
    "decoder.{}.feed_forward_norm": "layers.{}.post_attention_layernorm",
    "decoder.{}.feed_forward.gate": "layers.{}.mlp.gate_proj",
    "decoder.{}.feed_forward.up": "layers.{}.mlp.up_proj",
    "decoder.{}.feed_forward.down": "layers.{}.mlp.down_proj",
    "decoder.final_norm": "norm",
    "output_projection": "lm_head",
}
Choices = Callable[[ConfigReader], dict[str, Any]]


def read(reader: ConfigReader, attention: Choices, head_dim: int | None = None) -> TransformerConfig:
    """Returns the configuration of a model of this kind.

    Args:
        reader: The configuration.
        attention: Returns the arguments of `AttentionConfig` in which the families differ.
        head_dim: Width of a head where the configuration says nothing; None for `hidden_size / num_attention_heads`.
    """
    heads, width = reader.take("num_attention_heads"), reader.take("hidden_size")
    if head_dim is None and reader.values.get("head_dim") is None:
        reader.names["attention.head_dim"] = "hidden_size / num_attention_heads"
    head_dim = reader.take_number("head_dim", head_dim or width // heads)
    max_length = reader.take("max_position_embeddings", 2048)
    reader.take_only("rope_interleaved", False)
    reader.take_only("use_mrope", False)
    reader.skip("is_llama_config")
    return TransformerConfig(
        "decoder",
        reader.take("vocab_size"),
        hidden_dim=width,
        num_layers=reader.take("num_hidden_layers"),
        max_length=max_length,
        attention=AttentionConfig(
            heads,
            num_key_value_heads=reader.take_number("num_key_value_heads", heads),
            head_dim=head_dim,
            dropout=reader.take_number("attention_dropout", 0.0),
            **attention(reader),
        ),
        position=read_rotary(reader, head_dim, max_length),
        norm=NormConfig("rms", "pre", epsilon=reader.take("rms_norm_eps", 1e-6)),
        feed_forward=FeedForwardConfig(
            reader.take("intermediate_size"),
            reader.take_activation("hidden_act", "silu"),
            gated=True,
            use_bias=reader.take("mlp_bias", False),
        ),
        embedding=EmbeddingConfig(tie_output=reader.take("tie_word_embeddings", False)),
        dropout=0.0,
        initializer_range=reader.take("initializer_range", 0.02),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns what the configurations of all these families have."""
    attention = config.attention
    return {
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.hidden_dim,
        "intermediate_size": config.feed_forward.intermediate_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": attention.num_heads,
        "num_key_value_heads": attention.num_key_value_heads or attention.num_heads,
        "head_dim": config.head_dim,
        "hidden_act": ACTIVATION_NAMES[config.feed_forward.activation],
        "max_position_embeddings": config.max_length,
        "rms_norm_eps": config.norm.epsilon,
        "attention_dropout": attention.dropout,
        "tie_word_embeddings": config.embedding.tie_output,
        "initializer_range": config.initializer_range or 0.02,
        **write_rotary(config.position, config.head_dim),
    }


def register(model_type: str, name: str, reads: Callable, writes: Callable) -> None:
    """Adds one of these families; classes of the Transformers library begin with `name`."""
    register_family(
        Family(
            model_type,
            reads,
            writes,
            TABLE,
            architecture=f"{name}Model",
            prefix="model.",
            outside=("lm_head.",),
            heads={"CausalLM": Head(f"{name}ForCausalLM")},
            ignored=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
            copies={"lm_head.weight": "embed_tokens.weight"},
        )
    )


def _read_llama(reader: ConfigReader) -> TransformerConfig:
    return read(reader, lambda reader: {"use_bias": reader.take("attention_bias", False)})


def _write_llama(config: TransformerConfig) -> dict[str, Any]:
    return {
        **write(config),
        "attention_bias": bool(config.attention.use_bias),
        "mlp_bias": config.feed_forward.use_bias,
    }


def _sliding(size: int | None) -> tuple[int, int]:
    """The window of `size` positions, the last of which is that of the query."""
    return ((size or 1) - 1, 0)


def _size_of_window(config: TransformerConfig) -> int | None:
    return None if config.attention.window is None else config.attention.window[0] + 1


def _read_mistral(reader: ConfigReader) -> TransformerConfig:
    def attention(reader: ConfigReader) -> dict[str, Any]:
        size = reader.take("sliding_window", 4096)
        return {"use_bias": False, "window": None if size is None else _sliding(size)}

    return read(reader, attention)


def _write_mistral(config: TransformerConfig) -> dict[str, Any]:
    return {**write(config), "sliding_window": _size_of_window(config)}


def _read_layers(reader: ConfigReader) -> dict[str, Any]:
    """Which layers of a Qwen see a window only."""
    size = reader.take("sliding_window", 4096)
    if not reader.take("use_sliding_window", False):
        size = None
    first, types = reader.take("max_window_layers", 28), reader.take("layer_types", None)
    layers = reader.take("num_hidden_layers")
    if types is None:
        types = ["full_attention" if size is None or index < first else "sliding_attention" for index in range(layers)]
    if size is None and "sliding_attention" in types:
        raise ValueError(f"sliding_window must be a number where layer_types={quote(types)}, got None.")
    return window_of_layers(types, layers, _sliding(size))


def _write_layers(config: TransformerConfig) -> dict[str, Any]:
    size, types = _size_of_window(config), types_of_layers(config)
    windows = types.count("sliding_attention")
    return {
        "use_sliding_window": size is not None,
        "sliding_window": size,
        # for versions that do not know layer_types
        "max_window_layers": config.num_layers - windows,
        "layer_types": types,
    }


def _read_qwen2(reader: ConfigReader) -> TransformerConfig:
    return read(reader, lambda reader: {"use_bias": ("query", "key", "value"), **_read_layers(reader)})


def _write_qwen2(config: TransformerConfig) -> dict[str, Any]:
    values = {**write(config), **_write_layers(config)}
    if config.head_dim * config.attention.num_heads == config.hidden_dim:
        del values["head_dim"]  # usually not in its configuration
    return values


def _read_qwen3(reader: ConfigReader) -> TransformerConfig:
    def attention(reader: ConfigReader) -> dict[str, Any]:
        return {
            "use_bias": reader.take("attention_bias", False),
            "query_key_norm": "rms",
            **_read_layers(reader),
        }

    return read(reader, attention, head_dim=128)


def _write_qwen3(config: TransformerConfig) -> dict[str, Any]:
    return {**write(config), **_write_layers(config), "attention_bias": bool(config.attention.use_bias)}


register("llama", "Llama", _read_llama, _write_llama)
register("mistral", "Mistral", _read_mistral, _write_mistral)
register("qwen2", "Qwen2", _read_qwen2, _write_qwen2)
register("qwen3", "Qwen3", _read_qwen3, _write_qwen3)
