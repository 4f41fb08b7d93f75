"""Llama, Mistral, Qwen 2 and Qwen 3 (model types "llama", "mistral", "qwen2", "qwen3")."""

from collections.abc import Callable, Mapping
from typing import Any

from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)
from zoo.config.checks import require
from zoo.huggingface.config_reader import ACTIVATION_NAMES, REQUIRED, ConfigReader
from zoo.huggingface.decoder_heads import decoder_heads, take_head_keys
from zoo.huggingface.family import Family, register_family, types_of_layers, window_of_layers
from zoo.huggingface.rotary import read_rotary, write_rotary
from zoo.huggingface.weights import Table
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
# what a missing key means, where a family says nothing else
DEFAULTS = {
    "head_dim": None,
    "hidden_act": "silu",
    "intermediate_size": REQUIRED,
    "max_position_embeddings": 2048,
    "num_key_value_heads": None,
    "original_max_position_embeddings": None,
    "partial_rotary_factor": None,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}


def read(
    reader: ConfigReader,
    attention: Choices,
    rotary: Callable[..., PositionConfig] = read_rotary,
    *,
    even_rotation: bool = False,
    **defaults: Any,
) -> TransformerConfig:
    """Returns the configuration of a model of this kind.

    Args:
        reader: The configuration.
        attention: Returns the arguments of `AttentionConfig` in which the families differ.
        rotary: Returns the positions, with the arguments of `read_rotary`.
        even_rotation: Whether the library turns even numbers of features of a head only.
        **defaults: What missing keys mean in this family, in place of `DEFAULTS`. None means as many key-value heads as
            heads, heads of the width `hidden_size / num_attention_heads`, no partial rotation.
    """
    defaults = DEFAULTS | defaults
    heads, width = reader.take("num_attention_heads"), reader.take("hidden_size")
    if defaults["head_dim"] is None and reader.values.get("head_dim") is None:
        reader.names["attention.head_dim"] = "hidden_size / num_attention_heads"
    # null is what a missing key means in most families
    head_dim = reader.take_number("head_dim", defaults["head_dim"] or width // heads)
    key_value_heads = reader.take("num_key_value_heads", defaults["num_key_value_heads"])
    max_length = reader.take("max_position_embeddings", defaults["max_position_embeddings"])
    take_head_keys(reader)
    return TransformerConfig(
        "decoder",
        reader.take("vocab_size"),
        hidden_dim=width,
        num_layers=reader.take("num_hidden_layers"),
        max_length=max_length,
        attention=AttentionConfig(
            heads,
            num_key_value_heads=heads if key_value_heads is None else key_value_heads,
            head_dim=head_dim,
            dropout=reader.take_number("attention_dropout", 0.0),
            **attention(reader),
        ),
        position=rotary(
            reader,
            head_dim,
            max_length,
            base=defaults["rope_theta"],
            partial=defaults["partial_rotary_factor"],
            original=defaults["original_max_position_embeddings"],
            even=even_rotation,
        ),
        norm=NormConfig("rms", "pre", epsilon=reader.take("rms_norm_eps", defaults["rms_norm_eps"])),
        feed_forward=FeedForwardConfig(
            reader.take("intermediate_size", defaults["intermediate_size"]),
            reader.take_activation("hidden_act", defaults["hidden_act"]),
            gated=True,
            use_bias=reader.take("mlp_bias", False),
        ),
        embedding=EmbeddingConfig(tie_output=reader.take("tie_word_embeddings", defaults["tie_word_embeddings"])),
        dropout=0.0,
        initializer_range=reader.take("initializer_range", 0.02),
    )


def write(config: TransformerConfig, has_head_dim: bool = True) -> dict[str, Any]:
    """Returns what the configurations of all these families have.

    Args:
        config: Our configuration.
        has_head_dim: Whether files of the family usually have `head_dim`; others get it only where it is needed.
    """
    attention = config.attention
    is_usual = config.head_dim * attention.num_heads == config.hidden_dim
    head_dim = {} if is_usual and not has_head_dim else {"head_dim": config.head_dim}
    return {
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.hidden_dim,
        "intermediate_size": config.feed_forward.intermediate_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": attention.num_heads,
        "num_key_value_heads": attention.num_key_value_heads or attention.num_heads,
        **head_dim,
        "hidden_act": ACTIVATION_NAMES[config.feed_forward.activation],
        "max_position_embeddings": config.max_length,
        "rms_norm_eps": config.norm.epsilon,
        "attention_dropout": attention.dropout,
        "tie_word_embeddings": config.embedding.tie_output,
        "initializer_range": config.initializer_range or 0.02,
        **write_rotary(config.position, config.head_dim),
    }


def register(
    model_type: str,
    name: str,
    reads: Callable[[ConfigReader], TransformerConfig],
    writes: Callable[[TransformerConfig], dict[str, Any]],
    table: Table | Callable[[TransformerConfig], Table] = TABLE,
    base: str | None = None,
    classifiers: Mapping[str, str] | None = None,
    answerer_prefix: str | None = None,
    ignored: tuple[str, ...] = (),
) -> None:
    """Adds a family of this kind.

    Args:
        model_type: Its name.
        name: What the names of its classes in the Transformers library begin with.
        reads, writes: See `Family`.
        table: Names of the weights.
        base: What the name of the class of its base model begins with; None for `name`.
        classifiers: Names of its classes for the classification of a "Sequence" and of a "Token"; None for those that
            begin with `name`.
        answerer_prefix: What its class for question answering puts before the names of the base model; None where
            there is no such class.
        ignored: Regular expressions for further tensors to ignore.
    """
    kinds = ("Sequence", "Token")
    classifiers = {kind: f"{name}For{kind}Classification" for kind in kinds} if classifiers is None else classifiers
    register_family(
        Family(
            model_type,
            reads,
            writes,
            table,
            architecture=f"{base or name}Model",
            prefix="model.",
            outside=("lm_head.",),
            heads=decoder_heads(
                f"{name}ForCausalLM",
                *(classifiers.get(kind) for kind in kinds),
                answerer_prefix and f"{name}ForQuestionAnswering",
                answerer_prefix=answerer_prefix,
            ),
            ignored=(r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq", *ignored),
            copies={"lm_head.weight": "embed_tokens.weight"},
        )
    )


def _read_llama(reader: ConfigReader) -> TransformerConfig:
    reader.take_only("rope_interleaved", False)
    reader.skip("is_llama_config")
    return read(reader, lambda reader: {"use_bias": reader.take("attention_bias", False)})


def _write_llama(config: TransformerConfig) -> dict[str, Any]:
    return {
        **write(config),
        "attention_bias": bool(config.attention.use_bias),
        "mlp_bias": config.feed_forward.use_bias,
    }


def sliding(size: int | None) -> tuple[int, int]:
    """The window of `size` positions, the last of which is that of the query, for layers that have one.

    Raises:
        ValueError: If it is 0, which some files have where no layer has a window.
    """
    require(size != 0, "sliding_window", size, "an integer of at least 1 or null")
    return ((size or 1) - 1, 0)


def size_of_window(config: TransformerConfig) -> int | None:
    """The number of positions that a window has with that of the query; None for no window."""
    return None if config.attention.window is None else config.attention.window[0] + 1


def read_window(reader: ConfigReader, default: int | None) -> dict[str, Any]:
    """The window of all layers: `sliding_window`, null for none."""
    size = reader.take("sliding_window", default)
    return {"window": None if size is None else sliding(size)}


def _read_mistral(reader: ConfigReader) -> TransformerConfig:
    def attention(reader: ConfigReader) -> dict[str, Any]:
        return {"use_bias": False, **read_window(reader, 4096)}

    return read(reader, attention, num_key_value_heads=8, max_position_embeddings=4096 * 32)


def _write_mistral(config: TransformerConfig) -> dict[str, Any]:
    return {**write(config), "sliding_window": size_of_window(config)}


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
    return window_of_layers(types, layers, sliding(size))


def _write_layers(config: TransformerConfig) -> dict[str, Any]:
    size, types = size_of_window(config), types_of_layers(config)
    windows = types.count("sliding_attention")
    return {
        "use_sliding_window": size is not None,
        "sliding_window": size,
        # for versions that do not know layer_types
        "max_window_layers": config.num_layers - windows,
        "layer_types": types,
    }


def _read_qwen2(reader: ConfigReader) -> TransformerConfig:
    def attention(reader: ConfigReader) -> dict[str, Any]:
        return {"use_bias": ("query", "key", "value"), **_read_layers(reader)}

    reader.take_only("use_mrope", False)
    return read(reader, attention, num_key_value_heads=32, max_position_embeddings=32768)


def _write_qwen2(config: TransformerConfig) -> dict[str, Any]:
    return {**write(config, has_head_dim=False), **_write_layers(config)}


def _read_qwen3(reader: ConfigReader) -> TransformerConfig:
    def attention(reader: ConfigReader) -> dict[str, Any]:
        return {
            "use_bias": reader.take("attention_bias", False),
            "query_key_norm": "rms",
            **_read_layers(reader),
        }

    return read(reader, attention, head_dim=128, num_key_value_heads=32, max_position_embeddings=32768)


def _write_qwen3(config: TransformerConfig) -> dict[str, Any]:
    return {**write(config), **_write_layers(config), "attention_bias": bool(config.attention.use_bias)}


register("llama", "Llama", _read_llama, _write_llama, answerer_prefix="transformer.")
register("mistral", "Mistral", _read_mistral, _write_mistral, answerer_prefix="model.")
register("qwen2", "Qwen2", _read_qwen2, _write_qwen2, answerer_prefix="transformer.")
register("qwen3", "Qwen3", _read_qwen3, _write_qwen3, answerer_prefix="transformer.")
