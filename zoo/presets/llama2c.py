"""Checkpoints of llama2.c, the Llama in one file of C: a header of seven integers, then all weights in float32."""

import dataclasses
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from zoo.backbones.backbone import Backbone
from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
    renamed_in_errors,
    replace_choices,
)
from zoo.storage import Reader, errors_of_file, means_own, register_reader
from zoo.storage.deferred import deferred
from zoo.tokenizers.llama2c import load_llama2c_tokenizer

HEADER = struct.Struct("<7i")
MAGIC = 0x616B3432  # of the versions after the first
MOST = 2**24  # greatest size that is believed
_OVERRIDES = ("max_length", "dropout")
# what its header calls our choices
NAMES = {
    "hidden_dim": "dim",
    "feed_forward.intermediate_dim": "hidden_dim",
    "num_layers": "n_layers",
    "attention.num_heads": "n_heads",
    "attention.num_key_value_heads": "n_kv_heads",
    "vocabulary_size": "vocab_size",
    "max_length": "max_seq_len",
}


def read_llama2c_config(header: bytes) -> TransformerConfig:
    """Returns the configuration in the header of a checkpoint.

    Args:
        header: The first 28 bytes: width, inner width, layers, heads, key-value heads, vocabulary (negative where the
            output is not tied) and longest sequence.

    Raises:
        ValueError: If it is of another format or version.
    """
    if len(header) < HEADER.size:
        raise ValueError(f"A checkpoint of llama2.c begins with {HEADER.size} bytes, got {len(header)}.")
    width, inner, layers, heads, key_value_heads, vocabulary, length = HEADER.unpack(header[: HEADER.size])
    if width == MAGIC:
        raise ValueError("This checkpoint is of a later version of llama2.c: export it with --version 0.")
    sizes = {
        "dim": width,
        "hidden_dim": inner,
        "n_layers": layers,
        "n_heads": heads,
        "n_kv_heads": key_value_heads,
        "vocab_size": abs(vocabulary),
        "max_seq_len": length,
    }
    for name, size in sizes.items():
        if not 1 <= size <= MOST:
            raise ValueError(f"{name} in the header of a checkpoint of llama2.c must be 1 to {MOST}, got {size}.")
    with renamed_in_errors(NAMES):
        return TransformerConfig(
            "decoder",
            abs(vocabulary),
            hidden_dim=width,
            num_layers=layers,
            max_length=length,
            attention=AttentionConfig(heads, num_key_value_heads=key_value_heads, use_bias=False),
            position=PositionConfig("rotary", layout="interleaved"),
            norm=NormConfig("rms", "pre", epsilon=1e-5),
            feed_forward=FeedForwardConfig(inner, "silu", gated=True, use_bias=False),
            embedding=EmbeddingConfig(tie_output=vocabulary > 0),
            dropout=0.0,
        )


def _count_weights(config: TransformerConfig) -> int:
    """How many numbers a file with this configuration holds."""
    width, attention = config.hidden_dim, config.attention
    projections = 2 * width * config.head_dim * (attention.num_heads + attention.num_key_value_heads)
    layer = 2 * width + projections + 3 * width * config.feed_forward.intermediate_dim
    tables = config.vocabulary_size * width * (1 if config.embedding.tie_output else 2)
    return tables + config.num_layers * layer + width + config.max_length * config.head_dim


def load_llama2c(path: str | os.PathLike[str], *, load_weights: bool = True, **overrides: Any) -> Backbone:
    """Returns the backbone of a checkpoint of llama2.c.

    Args:
        path: The `.bin` file, of the first version of the format ("legacy").
        load_weights: Whether to load the weights.
        **overrides: Replaced choices that change no weights: `max_length` and `dropout`; any where none are loaded.

    Raises:
        ValueError: If the file is of another format, or longer or shorter than its header says.

    Example:

    >>> backbone = load_llama2c("stories260K.bin")

    Reference:
        Karpathy 2023, llama2.c, `export.py` (`legacy_export`) and `run.c`.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    with open(path, "rb") as file, errors_of_file(path):
        config = read_llama2c_config(file.read(HEADER.size))
        size = path.stat().st_size - HEADER.size
        if size % 4:
            raise ValueError(f"{path} is cut off: {size} bytes of weights are no whole number of float32.")
        expected = _count_weights(config)
        if expected != size // 4:
            raise ValueError(f"{path} must hold {expected} weights, as its header says, got {size // 4}.")
        chosen = replace_choices(config, overrides, load_weights=load_weights)
        with deferred(path.name), renamed_in_errors({**NAMES, "attention.head_dim": "dim / n_heads"}):
            backbone = Backbone.from_config(chosen)
            if load_weights:
                start, places = 0, []
                for part in _parts(backbone, config):
                    count = part if isinstance(part, int) else int(np.prod(part.shape))
                    places += [] if isinstance(part, int) else [(part, start, count)]
                    start += count
                # the largest first, while little else is there
                for part, start, count in sorted(places, key=lambda place: -place[2]):
                    values = np.memmap(file, "<f4", "r", HEADER.size + 4 * start, (count,))
                    is_table = part is backbone.token_embedding.table.embeddings or len(part.shape) == 1
                    values = values.reshape(part.shape) if is_table else values.reshape(part.shape[::-1]).T
                    part.assign(np.array(values, order="C"))
    return backbone


def _parts(backbone: Backbone, config: TransformerConfig) -> Iterator[Any]:
    """The variables in the order of the file, and how many numbers are passed over.

    All layers of a kind follow each other, each kernel as `(outputs, inputs)`.
    """
    blocks = backbone.decoder.blocks
    yield backbone.token_embedding.table.embeddings
    yield from (block.norms["attention"].scale for block in blocks)
    for name in ("query", "key", "value", "output"):
        yield from (getattr(block.attention, f"{name}_projection").kernel for block in blocks)
    yield from (block.norms["feed_forward"].scale for block in blocks)
    for name in ("gate", "down", "up"):
        yield from (getattr(block.feed_forward, name).kernel for block in blocks)
    yield backbone.decoder.final_norm.scale
    yield config.max_length * config.head_dim  # cosines and sines, which are computed here
    if backbone.output_projection is not None:
        yield backbone.output_projection.kernel


class Llama2cReader(Reader):
    """A `.bin` file of llama2.c, with the file of its tokenizer beside it."""

    looks_for = "a checkpoint of llama2.c (a file .bin)"

    def accepts(self, source: Path) -> bool:
        return source.suffix == ".bin" and source.is_file()

    def task_of(self, source: Path) -> str:
        return "CausalLM"

    def load_task(self, kind: type, source: Path, load_weights: bool, tokenizer: Any, choices: dict[str, Any]) -> Any:
        names = _OVERRIDES if load_weights else [field.name for field in dataclasses.fields(TransformerConfig)]
        overrides = {key: choices[key] for key in names if key in choices}
        given = {key: value for key, value in choices.items() if key not in overrides}
        if "decoder" not in kind.architectures:
            raise ValueError(f"{source} holds a decoder, which has no {kind.__name__}.")
        tokenizer = self.load_tokenizer(source) if means_own(tokenizer) else tokenizer
        return kind(self.load_backbone(source, load_weights, overrides), tokenizer, **given)

    def load_backbone(self, source: Path, load_weights: bool, choices: dict[str, Any]) -> Any:
        return load_llama2c(source, load_weights=load_weights, **choices)

    def load_tokenizer(self, source: Path) -> Any:
        with open(source, "rb") as file, errors_of_file(source):
            size = read_llama2c_config(file.read(HEADER.size)).vocabulary_size
        own = source.with_name("tokenizer.model"), source.with_name("tokenizer.bin")
        named = sorted((*source.parent.glob("tok*.model"), *source.parent.glob("tok*.bin")), reverse=True)
        found = dict.fromkeys(path for path in (*own, *named) if path.is_file() and path != source)
        for path in found:
            tokenizer = load_llama2c_tokenizer(path)
            if tokenizer.vocabulary_size == size:
                return tokenizer
        there = ", ".join(path.name for path in found) or "none"
        raise FileNotFoundError(
            f"{source} needs a tokenizer of {size} tokens beside it, tokenizer.model or tokenizer.bin of llama2.c; "
            f"there is {there}: pass tokenizer=."
        )


register_reader(Llama2cReader())
