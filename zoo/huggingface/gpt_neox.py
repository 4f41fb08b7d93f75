"""GPT-NeoX and Pythia (model type "gpt_neox")."""

from typing import Any

from zoo.config import AttentionConfig, EmbeddingConfig, FeedForwardConfig, NormConfig, TransformerConfig
from zoo.config.checks import require
from zoo.huggingface.config_reader import ACTIVATION_NAMES, ConfigReader
from zoo.huggingface.decoder_heads import decoder_heads
from zoo.huggingface.family import Family, register_family
from zoo.huggingface.rotary import read_rotary, write_rotary
from zoo.huggingface.weights import Stored, Table


def table(config: TransformerConfig) -> Table:
    """Returns the names of the weights: query, key and value of a head are side by side."""
    return {
        "token_embedding": "embed_in",
        "decoder.{}.attention_norm": "layers.{}.input_layernorm",
        (
            "decoder.{}.attention.query",
            "decoder.{}.attention.key",
            "decoder.{}.attention.value",
        ): Stored("layers.{}.attention.query_key_value", groups=config.attention.num_heads),
        "decoder.{}.attention.output": "layers.{}.attention.dense",
        "decoder.{}.feed_forward_norm": "layers.{}.post_attention_layernorm",
        "decoder.{}.feed_forward.up": "layers.{}.mlp.dense_h_to_4h",
        "decoder.{}.feed_forward.down": "layers.{}.mlp.dense_4h_to_h",
        "decoder.final_norm": "final_layer_norm",
        "output_projection": "embed_out",
    }


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a GPT-NeoX."""
    heads, width = reader.take("num_attention_heads"), reader.take("hidden_size")
    max_length = reader.take("max_position_embeddings", 2048)
    is_parallel = reader.take("use_parallel_residual", True)
    reader.skip("attention_probs_dropout_prob", "hidden_dropout_prob", "is_decoder")  # in files, and never read
    reader.skip("classifier_dropout")  # of heads
    base, turned = reader.take("rotary_emb_base", 10000.0), reader.take("rotary_pct", 0.25)
    for key, name, value in (("rope_theta", "rotary_emb_base", base), ("partial_rotary_factor", "rotary_pct", turned)):
        again = reader.take(key, value)
        require(again == value, key, again, f"{name}={value}, which the library reads")
    return TransformerConfig(
        "decoder",
        reader.take("vocab_size"),
        hidden_dim=width,
        num_layers=reader.take("num_hidden_layers"),
        max_length=max_length,
        attention=AttentionConfig(
            heads,
            use_bias=reader.take("attention_bias", True),
            dropout=reader.take_number("attention_dropout", 0.0),
        ),
        position=read_rotary(reader, width // heads, max_length, base=base, partial=turned),
        norm=NormConfig(
            "layer",
            "parallel" if is_parallel else "pre",
            epsilon=reader.take("layer_norm_eps", 1e-5),
            shared=not is_parallel,
        ),
        feed_forward=FeedForwardConfig(reader.take("intermediate_size"), reader.take_activation("hidden_act", "gelu")),
        embedding=EmbeddingConfig(tie_output=reader.take("tie_word_embeddings", False)),
        dropout=reader.take("hidden_dropout", 0.0),
        initializer_range=reader.take("initializer_range", 0.02),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    rotary = write_rotary(config.position, config.head_dim)
    rotary["rotary_emb_base"] = rotary.pop("rope_theta")
    rotary["rotary_pct"] = rotary.pop("partial_rotary_factor", 1.0)
    return {
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.hidden_dim,
        "intermediate_size": config.feed_forward.intermediate_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.attention.num_heads,
        "hidden_act": ACTIVATION_NAMES[config.feed_forward.activation],
        "max_position_embeddings": config.max_length,
        "layer_norm_eps": config.norm.epsilon,
        "use_parallel_residual": config.norm.placement == "parallel",
        "attention_bias": bool(config.attention.use_bias),
        "attention_dropout": config.attention.dropout,
        "hidden_dropout": config.dropout,
        "tie_word_embeddings": config.embedding.tie_output,
        "initializer_range": config.initializer_range or 0.02,
        **rotary,
    }


register_family(
    Family(
        "gpt_neox",
        read,
        write,
        table,
        architecture="GPTNeoXModel",
        prefix="gpt_neox.",
        outside=("embed_out.",),
        heads=decoder_heads(
            "GPTNeoXForCausalLM",
            "GPTNeoXForSequenceClassification",
            "GPTNeoXForTokenClassification",
            "GPTNeoXForQuestionAnswering",
            tokens="classifier",
        ),
        ignored=(r"layers\.\d+\.attention\.((masked_)?bias|rotary_emb\.inv_freq)",),
        copies={"embed_out.weight": "embed_in.weight"},
        renamed={"lm_head.": "embed_out."},
    )
)
