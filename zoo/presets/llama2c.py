"""Checkpoints of llama2.c, the Llama in one file of C: a header of seven integers, then all weights in float32."""

import os
import struct
from pathlib import Path

import numpy as np

from zoo.backbones.backbone import Backbone
from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
    in_names,
)
from zoo.storage import naming

HEADER = struct.Struct("<7i")
MAGIC = 0x616B3432  # of the versions after the first
MOST = 2**24  # greatest size that is believed
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
    with in_names(NAMES):
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


def load_llama2c(path: str | os.PathLike) -> Backbone:
    """Returns the backbone of a checkpoint of llama2.c.

    Args:
        path: The `.bin` file, of the first version of the format ("legacy").

    Raises:
        ValueError: If the file is of another format, or longer or shorter than its header says.

    Example:

    >>> backbone = load_llama2c("stories260K.bin")
    >>> tokenizer = SentencePieceTokenizer(proto, start_token="<s>", end_token="</s>")
    >>> CausalLM(backbone, tokenizer).generate("Once upon a time", max_new_tokens=20)

    Reference:
        Karpathy 2023, llama2.c, `export.py` (`legacy_export`) and `run.c`.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    with open(path, "rb") as file, naming(path):
        config = read_llama2c_config(file.read(HEADER.size))
        size = path.stat().st_size - HEADER.size
        if size % 4:
            raise ValueError(f"{path} is cut off: {size} bytes of weights are no whole number of float32.")
        expected = _count_weights(config)
        if expected != size // 4:
            raise ValueError(f"{path} must hold {expected} weights, as its header says, got {size // 4}.")
        numbers = np.frombuffer(file.read(), "<f4")
    with naming(path), in_names({**NAMES, "attention.head_dim": "dim / n_heads"}):
        backbone = Backbone.from_config(config)
    decoder, attention = backbone.decoder, config.attention
    blocks = decoder.blocks
    # in the file all layers of a kind follow each other, each kernel (outputs, inputs)
    parts = [[backbone.token_embedding.table.embeddings]]
    parts.append([block.norms["attention"].scale for block in blocks])
    for name in ("query", "key", "value", "output"):
        parts.append([getattr(block.attention, f"{name}_projection").kernel for block in blocks])
    parts.append([block.norms["feed_forward"].scale for block in blocks])
    for name in ("gate", "down", "up"):
        parts.append([getattr(block.feed_forward, name).kernel for block in blocks])
    parts.append([decoder.final_norm.scale])
    rotary = config.max_length * config.hidden_dim // attention.num_heads  # cosines and sines, which are computed here
    output = [] if backbone.output_projection is None else [backbone.output_projection.kernel]
    start = 0
    for variables in (*parts, None, output):
        if variables is None:
            start += rotary
            continue
        for variable in variables:
            count = int(np.prod(variable.shape))
            values = numbers[start : start + count]
            is_table = variable is backbone.token_embedding.table.embeddings or len(variable.shape) == 1
            variable.assign(values.reshape(variable.shape) if is_table else values.reshape(variable.shape[::-1]).T)
            start += count
    return backbone
