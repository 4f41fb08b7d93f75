"""EuroBERT (model type "eurobert"): Llama's structure as an encoder."""

import dataclasses
from typing import Any

from zoo.config import EmbeddingConfig, TransformerConfig
from zoo.config.checks import require
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import Family, Head, register_family
from zoo.huggingface.labels import label_names, labels_and_problem, write_labels

TABLE = {
    ours.replace("decoder.", "encoder."): theirs
    for ours, theirs in llama.TABLE.items()
    if not ours.endswith((".query_norm", ".key_norm"))
} | {"output_bias": "lm_head"}
# the values of `classifier_pooling`
POOLINGS = {"bos": "first", "mean": "mean", "late": "late"}
# what the published files say besides, for code of their own
WITHOUT_EFFECT = ("auto_map", "bos_token", "eos_token", "mask_token", "pad_token")


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a EuroBERT."""
    reader.skip("classifier_pooling", "clf_pooling", *WITHOUT_EFFECT)
    config = llama.read(
        reader,
        lambda reader: {"use_bias": reader.take("attention_bias", False)},
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
    )
    tied = config.embedding.tie_output
    if reader.tensors:  # only language models have a projection
        tied = tied or "lm_head.weight" not in reader.tensors
    embedding = EmbeddingConfig(tie_output=tied, output_bias="lm_head.bias" in reader.tensors)
    return dataclasses.replace(config, architecture="encoder", embedding=embedding)


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    return {
        **llama.write(config),
        "attention_bias": bool(config.attention.use_bias),
        "mlp_bias": config.feed_forward.use_bias,
    }


def _masked_lm(reader: ConfigReader) -> dict[str, Any]:
    if reader.tensors:
        bias = reader.take("mlp_bias", False)
        allowed = f"the same as whether {reader.source} has lm_head.bias"
        require(bias == ("lm_head.bias" in reader.tensors), "mlp_bias", bias, allowed)
    return {"head": "projection"}


def _text_classifier(reader: ConfigReader) -> dict[str, Any]:
    # older: of the code that came with the files
    key = "clf_pooling" if "clf_pooling" in reader.values else "classifier_pooling"
    return {
        "pooling": POOLINGS[reader.take_only(key, "late", *POOLINGS)],
        "hidden_activation": "gelu",
        "inner_bias": True,
        "inner_norm": False,
        "head_dropout": 0.0,
        **labels_and_problem(reader),
    }


def _write_text_classifier(options: dict[str, Any]) -> dict[str, Any]:
    names = {ours: theirs for theirs, ours in POOLINGS.items()}
    return {**write_labels(options), "classifier_pooling": names[options["pooling"]]}


register_family(
    Family(
        "eurobert",
        read,
        write,
        TABLE,
        architecture="EuroBertModel",
        prefix="model.",
        outside=("lm_head",),
        heads={
            "MaskedLM": Head("EuroBertForMaskedLM", {}, _masked_lm),
            "TextClassifier": Head(
                "EuroBertForSequenceClassification",
                {"dense": "dense", "projection": "classifier"},
                _text_classifier,
                _write_text_classifier,
            ),
            "TokenClassifier": Head(
                "EuroBertForTokenClassification",
                {"projection": "classifier"},
                lambda reader: {"hidden_activation": None, "head_dropout": 0.0, "labels": label_names(reader)},
                write_labels,
            ),
        },
        copies={"lm_head.weight": "embed_tokens.weight"},
    )
)
