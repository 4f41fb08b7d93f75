"""MPNet (model type "mpnet")."""

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
from zoo.huggingface import bert
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import Family, Head, register_family
from zoo.huggingface.labels import label_names, labels_and_problem, write_labels
from zoo.huggingface.span_heads import question_answerer

TABLE = {
    "token_embedding": "embeddings.word_embeddings",
    "encoder.position": "embeddings.position_embeddings",
    "encoder.embedding_norm": "embeddings.LayerNorm",
    "encoder.attention_position": "encoder.relative_attention_bias",
    "encoder.{}.attention.query": "encoder.layer.{}.attention.attn.q",
    "encoder.{}.attention.key": "encoder.layer.{}.attention.attn.k",
    "encoder.{}.attention.value": "encoder.layer.{}.attention.attn.v",
    "encoder.{}.attention.output": "encoder.layer.{}.attention.attn.o",
    "encoder.{}.attention_norm": "encoder.layer.{}.attention.LayerNorm",
    "encoder.{}.feed_forward.up": "encoder.layer.{}.intermediate.dense",
    "encoder.{}.feed_forward.down": "encoder.layer.{}.output.dense",
    "encoder.{}.feed_forward_norm": "encoder.layer.{}.output.LayerNorm",
    "pooler": "pooler.dense",
}
# fixed in the library
PADDING_ID, BUCKETS, MAX_DISTANCE = 1, 32, 128


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of an MPNet."""
    reader.take_tied()
    reader.take_only("pad_token_id", PADDING_ID)
    reader.take_only("relative_attention_num_buckets", BUCKETS)
    positions = reader.take("max_position_embeddings", 512)
    offset = PADDING_ID + 1
    allowed = f"above {offset}, the number of the first position"
    require(positions > offset, "max_position_embeddings", positions, allowed)
    return TransformerConfig(
        "encoder",
        reader.take("vocab_size"),
        hidden_dim=reader.take("hidden_size"),
        num_layers=reader.take("num_hidden_layers"),
        max_length=positions - offset,
        attention=AttentionConfig(
            reader.take("num_attention_heads"), dropout=reader.take("attention_probs_dropout_prob", 0.1)
        ),
        position=PositionConfig("learned", offset=offset, skips_padding=True),
        attention_position=PositionConfig("relative_bias", num_buckets=BUCKETS, max_distance=MAX_DISTANCE),
        norm=NormConfig("layer", "post", epsilon=reader.take("layer_norm_eps", 1e-12), embedding=True),
        feed_forward=FeedForwardConfig(reader.take("intermediate_size"), reader.take_activation("hidden_act", "gelu")),
        embedding=EmbeddingConfig(),
        dropout=reader.take("hidden_dropout_prob", 0.1),
        # only classes that need it have one
        pooler=reader.has_layer("pooler.dense.weight", "MPNetModel"),
        initializer_range=reader.take("initializer_range", 0.02),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    values = {**bert.write(config), "pad_token_id": PADDING_ID, "relative_attention_num_buckets": BUCKETS}
    del values["type_vocab_size"]
    return values


def _head_dropout(reader: ConfigReader) -> dict[str, Any]:
    return {"head_dropout": reader.take("hidden_dropout_prob", 0.1)}


register_family(
    Family(
        "mpnet",
        read,
        write,
        TABLE,
        architecture="MPNetModel",
        prefix="mpnet.",
        heads={
            "MaskedLM": Head(
                "MPNetForMaskedLM",
                {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "output_bias": "lm_head"},
                lambda reader: {"head": "transform", "head_activation": "gelu", "head_bias": True},
            ),
            "TextClassifier": Head(
                "MPNetForSequenceClassification",
                {"dense": "classifier.dense", "projection": "classifier.out_proj"},
                lambda reader: {
                    "pooling": "first",
                    "hidden_activation": "tanh",
                    "pair_separators": 2,
                    "inner_bias": True,
                    "inner_norm": False,
                    **_head_dropout(reader),
                    **labels_and_problem(reader),
                },
                write_labels,
            ),
            "TokenClassifier": Head(
                "MPNetForTokenClassification",
                {"projection": "classifier"},
                lambda reader: {"hidden_activation": None, "labels": label_names(reader), **_head_dropout(reader)},
                write_labels,
            ),
            "QuestionAnswerer": question_answerer("MPNetForQuestionAnswering", pair_separators=2),
        },
        ignored=(r"embeddings\.position_ids",),
        copies={"lm_head.decoder.weight": "embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"},
    )
)
