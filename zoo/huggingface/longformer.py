"""Longformer (model type "longformer"): RoBERTa with windows and global tokens."""

import dataclasses
from typing import Any

from zoo.config import TransformerConfig
from zoo.config.checks import require
from zoo.huggingface import bert
from zoo.huggingface.config_keys import is_integer
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import Head, get_family, register_family
from zoo.huggingface.labels import write_labels

TABLE = bert.TABLE | {
    f"encoder.{{}}.attention.{part}_global": f"encoder.layer.{{}}.attention.self.{part}_global"
    for part in ("query", "key", "value")
}


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a Longformer."""
    reader.take_only("attention_mode", "longformer")
    reader.take_only("ignore_attention_mask", False)
    reader.take_only("onnx_export", False, True)  # how it is computed
    config = bert.read_roberta(reader)
    window = read_window(reader, config.num_layers)
    attention = dataclasses.replace(config.attention, window=window, global_tokens="given")
    pooler = reader.has_layer("pooler.dense.weight", "LongformerModel")
    return dataclasses.replace(config, attention=attention, pooler=pooler)


def read_window(reader: ConfigReader, layers: int) -> tuple[int, int]:
    """Returns the window of all layers: half of `attention_window` on each side.

    Args:
        reader: The configuration.
        layers: Number of layers of the encoder.

    Raises:
        ValueError: If it is not even, or not the same for all layers.
    """
    given = reader.take("attention_window", 512)
    widths = given if isinstance(given, list) else [given]
    first = widths[0] if widths else None
    is_even = is_integer(first) and first > 0 and first % 2 == 0
    is_right = is_even and widths == [first] * len(widths) and (widths is not given or len(widths) == layers)
    require(
        is_right, "attention_window", given, f"an even number above 0, or a list of the same one for {layers} layers"
    )
    return first // 2, first // 2


def write_window(config: TransformerConfig) -> dict[str, Any]:
    """Returns the key of the window."""
    left, right = config.attention.window
    require(left == right and left > 0, "attention.window", config.attention.window, "a pair of equal numbers above 0")
    return {"attention_window": [left + right] * config.num_layers}


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    return {**bert.write_roberta(config), **write_window(config)}


def _heads() -> dict[str, Head]:
    """RoBERTa's, whose dropout is that of the hidden states."""
    heads = {
        name: dataclasses.replace(head, architecture=head.architecture.replace("Roberta", "Longformer"))
        for name, head in get_family("roberta").heads.items()
    }
    for name in ("TextClassifier", "TokenClassifier"):
        heads[name] = dataclasses.replace(heads[name], write=write_labels)
    fixed = heads["QuestionAnswerer"].options
    heads["QuestionAnswerer"] = dataclasses.replace(
        heads["QuestionAnswerer"],
        options=lambda reader: {**fixed(reader), "separator_id": reader.take("sep_token_id", 2)},
        write=lambda options: {"sep_token_id": options["separator_id"]},
    )
    return heads


register_family(
    dataclasses.replace(
        get_family("roberta"),
        model_type="longformer",
        read=read,
        write=write,
        table=TABLE,
        architecture="LongformerModel",
        prefix="longformer.",
        heads=_heads(),
    )
)
