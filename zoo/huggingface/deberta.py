"""DeBERTa of versions 2 and 3 (model type "deberta-v2")."""

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
from zoo.huggingface.config_reader import ACTIVATION_NAMES, ConfigReader
from zoo.huggingface.family import Family, Head, register_family
from zoo.huggingface.labels import label_names, labels_and_problem, write_labels
from zoo.huggingface.span_heads import question_answerer

TERMS = {"c2p": "content_to_position", "p2c": "position_to_content"}
BLOCK = {
    "encoder.{}.attention.query": "encoder.layer.{}.attention.self.query_proj",
    "encoder.{}.attention.key": "encoder.layer.{}.attention.self.key_proj",
    "encoder.{}.attention.value": "encoder.layer.{}.attention.self.value_proj",
}
TABLE = {name: stored for name, stored in bert.TABLE.items() if name != "pooler"} | BLOCK


def table(config: TransformerConfig) -> dict[str, str]:
    """Returns the names of the weights: those of the relative positions depend on what else there is."""
    name = "position" if config.attention_position is None else "attention_position"
    if getattr(config, name).kind != "disentangled":
        return TABLE
    return TABLE | {f"encoder.{name}": "encoder.rel_embeddings", f"encoder.{name}_norm": "encoder.LayerNorm"}


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a DeBERTa."""
    heads, width = reader.take("num_attention_heads"), reader.take("hidden_size")
    for key in ("embedding_size", "pooler_hidden_size"):
        size = reader.take_number(key, width)
        require(size == width, key, size, f"that of hidden_size, {width}")
    head_dim = reader.take_number("attention_head_size", width // heads)
    require(head_dim * heads == width, "attention_head_size", head_dim, "hidden_size / num_attention_heads")
    reader.take_only("conv_kernel_size", 0)
    reader.take_tied()
    # of heads, and of the convolution
    reader.skip(
        "cls_dropout", "conv_act", "conv_groups", "legacy", "pooler_dropout", "pooler_hidden_act", "pooler_size"
    )
    max_length, epsilon = reader.take("max_position_embeddings", 512), reader.take("layer_norm_eps", 1e-7)
    terms = _terms(reader)
    relative = _relative_position(reader, terms, max_length, epsilon)
    absolute = PositionConfig("learned") if reader.take("position_biased_input", True) else None
    first = absolute or relative or PositionConfig("none")
    return TransformerConfig(
        "encoder",
        reader.take("vocab_size"),
        hidden_dim=width,
        num_layers=reader.take("num_hidden_layers"),
        max_length=max_length,
        attention=AttentionConfig(
            heads,
            scale=(head_dim * (1 + len(terms))) ** -0.5,
            dropout=reader.take("attention_probs_dropout_prob", 0.1),
        ),
        position=first,
        attention_position=None if relative is first else relative,
        norm=NormConfig("layer", "post", epsilon=epsilon, embedding=True),
        feed_forward=FeedForwardConfig(reader.take("intermediate_size"), reader.take_activation("hidden_act", "gelu")),
        embedding=EmbeddingConfig(num_segments=reader.take("type_vocab_size", 0)),
        dropout=reader.take("hidden_dropout_prob", 0.1),
        initializer_range=reader.take("initializer_range", 0.02),
    )


def _terms(reader: ConfigReader) -> list[str]:
    """Which scores are added to that of contents with contents, "c2p" and "p2c"."""
    given = reader.take("pos_att_type", None) or []
    names = [name.strip() for name in given.lower().split("|")] if isinstance(given, str) else given
    require(isinstance(names, list) and set(names) <= set(TERMS), "pos_att_type", given, f"some of {sorted(TERMS)}")
    return sorted(set(names))


def _relative_position(
    reader: ConfigReader, terms: list[str], max_length: int, epsilon: float
) -> PositionConfig | None:
    buckets, distance = reader.take("position_buckets", -1), reader.take("max_relative_positions", -1)
    norm = reader.take_only("norm_rel_ebd", "none", "layer_norm")
    if not reader.take("relative_attention", False):
        require(norm == "none", "norm_rel_ebd", norm, "'none' with relative_attention=False")
        reader.skip("share_att_key")
        return None
    require(bool(terms), "pos_att_type", terms, "'c2p', 'p2c' or both with relative_attention=True")
    shared = reader.take("share_att_key", False)
    require(shared, "share_att_key", shared, "true with relative_attention=True: nothing else is supported")
    options: dict[str, Any] = {ours: theirs in terms for theirs, ours in TERMS.items() if theirs not in terms}
    if norm == "layer_norm":
        options["norm_epsilon"] = epsilon
    sizes = {"max_distance": max_length if distance < 1 else distance}
    if buckets > 0:
        sizes["num_buckets"] = buckets
    else:
        options["buckets"] = False
    return PositionConfig("disentangled", **sizes, options=options or None)


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    positions = (config.position, config.attention_position)
    relative = next((position for position in positions if position and position.kind == "disentangled"), None)
    values = {
        **bert.write(config),
        "type_vocab_size": config.embedding.num_segments,
        "position_biased_input": config.position.kind == "learned",
        "relative_attention": relative is not None,
        "hidden_act": ACTIVATION_NAMES[config.feed_forward.activation],
    }
    if relative is None:
        count = round(1 / (config.head_dim * (config.attention.scale or config.head_dim**-0.5) ** 2)) - 1
        return {**values, "pos_att_type": list(TERMS)[:count]}
    options = relative.options or {}
    return {
        **values,
        "share_att_key": True,
        "pos_att_type": [theirs for theirs, ours in TERMS.items() if options.get(ours, True)],
        "position_buckets": relative.num_buckets if options.get("buckets", True) else -1,
        "max_relative_positions": relative.max_distance,
        "norm_rel_ebd": "layer_norm" if options.get("norm_epsilon") else "none",
    }


def _masked_lm(reader: ConfigReader) -> dict[str, Any]:
    return {"head": "transform", "head_activation": reader.take_activation("hidden_act", "gelu"), "head_bias": True}


def _text_classifier(reader: ConfigReader) -> dict[str, Any]:
    return {
        "pooling": "first",
        "hidden_activation": reader.take_activation("pooler_hidden_act", "gelu"),
        "inner_bias": True,
        "inner_norm": False,
        "head_dropout": reader.take_number("cls_dropout", reader.take("hidden_dropout_prob", 0.1)),
        "head_dropout_before": reader.take("pooler_dropout", 0.0),
        **labels_and_problem(reader),
    }


def _write_text_classifier(options: dict[str, Any]) -> dict[str, Any]:
    before = options["head_dropout_before"]
    return {
        **write_labels(options),
        "pooler_hidden_act": ACTIVATION_NAMES[options["hidden_activation"]],
        "cls_dropout": options["head_dropout"],
        "pooler_dropout": options["head_dropout"] if before is None else before,
    }


register_family(
    Family(
        "deberta-v2",
        read,
        write,
        table,
        architecture="DebertaV2Model",
        prefix="deberta.",
        heads={
            "MaskedLM": Head(
                "DebertaV2ForMaskedLM",
                {
                    "dense": "cls.predictions.transform.dense",
                    "norm": "cls.predictions.transform.LayerNorm",
                    "output_bias": "cls.predictions",
                },
                _masked_lm,
            ),
            "TextClassifier": Head(
                "DebertaV2ForSequenceClassification",
                {"dense": "pooler.dense", "projection": "classifier"},
                _text_classifier,
                _write_text_classifier,
            ),
            "TokenClassifier": Head(
                "DebertaV2ForTokenClassification",
                {"projection": "classifier"},
                lambda reader: {
                    "hidden_activation": None,
                    "head_dropout": reader.take("hidden_dropout_prob", 0.1),
                    "labels": label_names(reader),
                },
                write_labels,
            ),
            "QuestionAnswerer": question_answerer("DebertaV2ForQuestionAnswering"),
        },
        ignored=(r"embeddings\.position_ids", r"mask_predictions\..*"),  # a head of pretraining
        # the same head where `legacy` is false; it is written as the other
        renamed={
            "lm_predictions.lm_head.bias": "cls.predictions.bias",
            "lm_predictions.lm_head.": "cls.predictions.transform.",
        },
        copies={
            "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
    )
)
