"""ESM-1b and ESM-2, encoders of proteins (model type "esm")."""

import re
from typing import Any

import numpy as np

from layers.positions.rotary_scaling import inverse_frequencies
from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)
from zoo.config.checks import require
from zoo.huggingface import bert
from zoo.huggingface.config_keys import is_integer
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import Constant, Family, Head, register_family
from zoo.huggingface.labels import label_names, labels_and_problem, write_labels

TABLE = {
    name: stored
    for name, stored in bert.TABLE.items()
    if name not in ("segment_embedding", "encoder.embedding_norm") and not name.endswith("_norm")
} | {
    "encoder.embedding_norm": "embeddings.layer_norm",
    "encoder.{}.attention_norm": "encoder.layer.{}.attention.LayerNorm",
    "encoder.{}.feed_forward_norm": "encoder.layer.{}.LayerNorm",
    "encoder.final_norm": "encoder.emb_layer_norm_after",
}
# some versions of the library name each layer, others none
FREQUENCIES = "rotary_embeddings.inv_freq"
OF_LAYER = f"encoder.layer.{{}}.attention.self.{FREQUENCIES}"


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of an ESM."""
    for key in ("is_decoder", "add_cross_attention", "is_folding_model"):
        reader.take_only(key, False, None)
    for key in ("esmfold_config", "vocab_list"):
        reader.take_only(key, None)
    reader.take_tied()
    # never read there: activations are GELU in any case, heads have the dropout of hidden states
    reader.skip("hidden_act", "classifier_dropout")
    width, heads = reader.take("hidden_size"), reader.take("num_attention_heads")
    position, offset = _position(reader, width // heads)
    return TransformerConfig(
        "encoder",
        reader.take("vocab_size"),
        hidden_dim=width,
        num_layers=reader.take("num_hidden_layers"),
        max_length=reader.take("max_position_embeddings", 1026) - offset,
        attention=AttentionConfig(heads, dropout=reader.take("attention_probs_dropout_prob", 0.1)),
        position=position,
        norm=NormConfig(
            "layer",
            "pre",
            epsilon=reader.take("layer_norm_eps", 1e-12),
            embedding=bool(reader.take_only("emb_layer_norm_before", None, False, True)),
        ),
        feed_forward=FeedForwardConfig(reader.take("intermediate_size"), "gelu"),
        embedding=EmbeddingConfig(dropout=0.0, token_dropout=_mask_id(reader)),
        dropout=reader.take("hidden_dropout_prob", 0.1),
        pooler=reader.has_layer("pooler.dense.weight", "EsmModel"),
        initializer_range=reader.take("initializer_range", 0.02),
    )


def _position(reader: ConfigReader, head_dim: int) -> tuple[PositionConfig, int]:
    """The positions, and how much further they are looked up."""
    base = reader.take("rope_theta", 10000.0)
    if reader.take_only("position_embedding_type", "absolute", "rotary") == "absolute":
        padding = reader.take("pad_token_id")
        require(is_integer(padding), "pad_token_id", padding, "an id, after which positions are numbered")
        return PositionConfig("learned", offset=padding + 1, skips_padding=True), padding + 1
    exact = _frequencies(base, head_dim)
    name = next((name for name in sorted(reader.tensors) if name.endswith(FREQUENCIES)), None)
    found = exact if name is None or reader.values_of is None else reader.values_of(name).astype("float32")
    # ESM-2 was trained with rounded frequencies, which its files hold
    is_rounded = not np.array_equal(found, exact) and np.array_equal(found, exact.astype("float16").astype("float32"))
    return PositionConfig("rotary", base, options={"frequency_dtype": "float16"} if is_rounded else None), 0


def _mask_id(reader: ConfigReader) -> int | None:
    mask_id = reader.take("mask_token_id", None)
    if not reader.take_only("token_dropout", False, True, None):
        return None
    require(is_integer(mask_id) and mask_id >= 0, "mask_token_id", mask_id, "the id of a token with token_dropout")
    return mask_id


def _frequencies(base: float, head_dim: int) -> np.ndarray:
    return inverse_frequencies(base, head_dim).astype("float32")


def constants(config: TransformerConfig) -> tuple[Constant, ...]:
    """Returns the frequencies of rotary positions; rounded ones are written, exact ones the library has by itself."""
    if config.position.kind != "rotary":
        return ()
    frequencies, names = _frequencies(config.position.base, config.head_dim), ()
    if config.position.options:
        frequencies = frequencies.astype("float16").astype("float32")
        names = tuple(OF_LAYER.format(index) for index in range(config.num_layers))
    return (Constant(rf"(encoder\.layer\.[\d*]+\.attention\.self\.)?{re.escape(FREQUENCIES)}", frequencies, names),)


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    values = bert.write(config)
    mask_id, is_rotary = config.embedding.token_dropout, config.position.kind == "rotary"
    for key in ("hidden_act", "type_vocab_size"):
        del values[key]
    return {
        **values,
        "position_embedding_type": "rotary" if is_rotary else "absolute",
        # the library has an integer for padding in any case
        "pad_token_id": 1 if is_rotary else config.position.offset - 1,
        "emb_layer_norm_before": config.norm.embedding,
        "token_dropout": mask_id is not None,
        **({} if mask_id is None else {"mask_token_id": mask_id}),
        **({"rope_theta": config.position.base} if is_rotary else {}),
    }


def _head_dropout(reader: ConfigReader) -> float:
    return reader.take("hidden_dropout_prob", 0.1)


register_family(
    Family(
        "esm",
        read,
        write,
        TABLE,
        architecture="EsmModel",
        prefix="esm.",
        heads={
            "MaskedLM": Head(
                "EsmForMaskedLM",
                {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "output_bias": "lm_head"},
                lambda reader: {"head": "transform", "head_activation": "gelu", "head_bias": True},
            ),
            "TextClassifier": Head(
                "EsmForSequenceClassification",
                {"dense": "classifier.dense", "projection": "classifier.out_proj"},
                lambda reader: {
                    "pooling": "first",
                    "hidden_activation": "tanh",
                    "inner_bias": True,
                    "inner_norm": False,
                    "head_dropout": _head_dropout(reader),
                    **labels_and_problem(reader),
                },
                write_labels,
            ),
            "TokenClassifier": Head(
                "EsmForTokenClassification",
                {"projection": "classifier"},
                lambda reader: {
                    "hidden_activation": None,
                    "labels": label_names(reader),
                    "head_dropout": _head_dropout(reader),
                },
                write_labels,
            ),
        },
        ignored=(r"embeddings\.position_(ids|embeddings\.weight)",),
        constants=constants,
        copies={"lm_head.decoder.weight": "embeddings.word_embeddings.weight"},
    )
)
