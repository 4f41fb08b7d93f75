"""NomicBERT (model type "nomic_bert")."""

from typing import Any

from zoo.config import AttentionConfig, EmbeddingConfig, FeedForwardConfig, NormConfig, TransformerConfig
from zoo.huggingface import bert
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import Family, Head, register_family
from zoo.huggingface.labels import labels_and_problem
from zoo.huggingface.rotary import read_rotary, write_rotary

TABLE = {
    "token_embedding": "embeddings.word_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "encoder.embedding_norm": "emb_ln",
    (
        "encoder.{}.attention.query",
        "encoder.{}.attention.key",
        "encoder.{}.attention.value",
    ): "encoder.layers.{}.attn.Wqkv",
    "encoder.{}.attention.output": "encoder.layers.{}.attn.out_proj",
    "encoder.{}.attention_norm": "encoder.layers.{}.norm1",
    "encoder.{}.feed_forward.up": "encoder.layers.{}.mlp.fc11",
    "encoder.{}.feed_forward.gate": "encoder.layers.{}.mlp.fc12",
    "encoder.{}.feed_forward.down": "encoder.layers.{}.mlp.fc2",
    "encoder.{}.feed_forward_norm": "encoder.layers.{}.norm2",
    "pooler": "pooler.dense",
}
# version 5 of the library has other names in memory
MODULES = {
    "encoder.{}.attention.query": "layers.{}.self_attn.q_proj",
    "encoder.{}.attention.key": "layers.{}.self_attn.k_proj",
    "encoder.{}.attention.value": "layers.{}.self_attn.v_proj",
    "encoder.{}.attention.output": "layers.{}.self_attn.o_proj",
    "encoder.{}.feed_forward.up": "layers.{}.mlp.up_proj",
    "encoder.{}.feed_forward.gate": "layers.{}.mlp.gate_proj",
    "encoder.{}.feed_forward.down": "layers.{}.mlp.down_proj",
    "pooler": "pooler.dense",
}
# keys of the published files, which are those of GPT-2, and what the library calls them now
OLDER = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "attention_probs_dropout_prob": "attn_pdrop",
    "hidden_dropout_prob": "resid_pdrop",
    "layer_norm_eps": "layer_norm_epsilon",
}
# what the published files say besides, and the values that are supported
FIXED = {
    "activation_function": ("swiglu",),
    "causal": (False,),
    "mlp_fc1_bias": (False,),
    "mlp_fc2_bias": (False,),
    "parallel_block": (False,),
    "parallel_block_tied_norm": (False,),
    "prenorm": (False,),
    "qkv_proj_bias": (False,),
    "rotary_emb_fraction": (1.0,),
    "rotary_emb_interleaved": (False,),
    "rotary_emb_scale_base": (None,),
    "rotary_scaling_factor": (None,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "scale_attn_weights": (True,),
    "use_rms_norm": (False, None),
}
# ways to compute the same thing
WITHOUT_EFFECT = (
    *("auto_map", "dense_seq_output", "embd_pdrop", "fused_bias_fc", "fused_dropout_add_ln", "max_trained_positions"),
    *("pad_vocab_size_multiple", "reorder_and_upcast_attn", "use_flash_attn", "use_xentropy"),
)


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a NomicBERT."""

    def take(key: str, *default: Any) -> Any:
        return reader.take(OLDER[key] if OLDER[key] in reader.values else key, *default)

    heads, width = take("num_attention_heads"), take("hidden_size")
    head_dim = reader.take_number("head_dim", width // heads)
    max_length = take("max_position_embeddings", 2048)
    reader.take_tied()
    reader.skip("classifier_dropout", *WITHOUT_EFFECT)
    for key, allowed in FIXED.items():
        reader.take_only(key, *allowed)
    return TransformerConfig(
        "encoder",
        reader.take("vocab_size"),
        hidden_dim=width,
        num_layers=take("num_hidden_layers"),
        max_length=max_length,
        attention=AttentionConfig(
            heads, head_dim=head_dim, use_bias=False, dropout=take("attention_probs_dropout_prob", 0.0)
        ),
        position=read_rotary(reader, head_dim, max_length, base=reader.take("rotary_emb_base", 1000.0)),
        norm=NormConfig("layer", "post", epsilon=take("layer_norm_eps", 1e-12), embedding=True),
        feed_forward=FeedForwardConfig(
            take("intermediate_size"), reader.take_activation("hidden_act", "silu"), gated=True, use_bias=False
        ),
        embedding=EmbeddingConfig(num_segments=reader.take("type_vocab_size", 2)),
        dropout=take("hidden_dropout_prob", 0.0),
        pooler=reader.has_layer("pooler.dense.weight", "NomicBertForSequenceClassification"),
        initializer_range=reader.take("initializer_range", 0.02),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    rotary = write_rotary(config.position, config.head_dim)
    # the library has an integer for padding, which changes no output
    return {**bert.write(config), "head_dim": config.head_dim, "pad_token_id": 0, **rotary}


def _head_dropout(reader: ConfigReader) -> float:
    return reader.take_number("classifier_dropout", reader.take("hidden_dropout_prob", 0.0))


register_family(
    Family(
        "nomic_bert",
        read,
        write,
        TABLE,
        architecture="NomicBertModel",
        prefix="nomic_bert.",
        modules=MODULES,
        needs_segments=True,
        heads={
            "MaskedLM": Head(
                "NomicBertForMaskedLM",
                {
                    "dense": "cls.predictions.transform.dense",
                    "norm": "cls.predictions.transform.layer_norm",
                    "output_bias": "cls.predictions",
                },
                lambda reader: {
                    "head": "transform",
                    "head_activation": reader.take_activation("hidden_act", "silu"),
                    "head_bias": True,
                },
            ),
            "TextClassifier": Head(
                "NomicBertForSequenceClassification",
                {"projection": "classifier"},
                lambda reader: {
                    "pooling": "pooler",
                    "hidden_activation": None,
                    "head_dropout": _head_dropout(reader),
                    **labels_and_problem(reader),
                },
                bert.write_classifier,
            ),
            "TokenClassifier": bert.token_classifier("NomicBertForTokenClassification"),
        },
        renamed={"bert.": ""},  # of the class before it came into the library
        copies={
            "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
    )
)
