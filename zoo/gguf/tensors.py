"""The tensors of a GGUF file as numbers, under the names that the Transformers library has for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from zoo.config import TransformerConfig
from zoo.gguf.header import GGUFHeader, GGUFTensor, read_gguf
from zoo.gguf.types import library
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import get_family
from zoo.storage import TensorFiles, naming
from zoo.storage.checkpoint import CONFIG_FILE, read_config_file, register_weights

# A file of this name beside a config.json holds its weights: a link to the file that was named.
WEIGHTS = "model.gguf"
# names in files, by the names of our layers; those of encoders are alike
_STEMS = {
    "token_embedding": "token_embd",
    "{}.attention_norm": "attn_norm",
    "{}.attention.query": "attn_q",
    "{}.attention.key": "attn_k",
    "{}.attention.value": "attn_v",
    "{}.attention.output": "attn_output",
    "{}.attention.query_norm": "attn_q_norm",
    "{}.attention.key_norm": "attn_k_norm",
    "{}.feed_forward_norm": "ffn_norm",
    "{}.feed_forward.gate": "ffn_gate",
    "{}.feed_forward.up": "ffn_up",
    "{}.feed_forward.down": "ffn_down",
    "{}.attention_norm_after": "post_attention_norm",
    "{}.feed_forward_norm_after": "post_ffw_norm",
    "final_norm": "output_norm",
    "output_projection": "output",
}
# llama.cpp turns neighbouring features in these, so their rows are in another order
PERMUTED = ("llama", "granite", "smollm3")
_FLOATS = {0: np.dtype("float32"), 1: np.dtype("float16"), 30: np.dtype(ml_dtypes.bfloat16)}


def read_tensor(tensor: GGUFTensor) -> np.ndarray:
    """Returns a tensor as numbers: views of float types, and float32 for all others.

    Args:
        tensor: Where it is.
    """
    if tensor.kind in _FLOATS:
        return np.memmap(tensor.file, _FLOATS[tensor.kind], "r", tensor.offset, tensor.shape)
    gguf = library()
    kind = gguf.GGMLQuantizationType(tensor.kind)
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rows = (*tensor.shape[:-1], tensor.shape[-1] // block * block_bytes)
    stored = np.memmap(tensor.file, np.uint8, "r", tensor.offset, rows)
    return gguf.quants.dequantize(stored, kind).reshape(tensor.shape)


@contextlib.contextmanager
def open_weights(path: Path) -> Iterator[TensorFiles]:
    """Opens the weights of a model, by the names that its family has in the Transformers library.

    Args:
        path: The file, beside a `config.json`.

    Raises:
        ValueError: If the file is damaged.
    """
    header = read_gguf(path.resolve())
    values = read_config_file(path.parent)
    with naming(path.parent / CONFIG_FILE):
        family = get_family(values.get("model_type"))
        config = family.read(ConfigReader(values, (), str(path)))
    names = names_of(header, family.table_of(config), config)
    heads = {
        "attn_q": config.attention.num_heads,
        "attn_k": config.attention.num_key_value_heads or config.attention.num_heads,
    }
    is_permuted = header.metadata["general.architecture"] in PERMUTED

    def get(name: str) -> np.ndarray:
        stored = names[name]
        tensor = read_tensor(header.tensors[stored])
        stem = stored.split(".")[2] if stored.startswith("blk.") else ""
        return _rows_in_halves(tensor, heads[stem]) if is_permuted and stem in heads else tensor

    shapes = {name: header.tensors[stored].shape for name, stored in names.items()}
    yield TensorFiles(shapes, get, path.name)


def names_of(header: GGUFHeader, table: Mapping[str, Any], config: TransformerConfig) -> dict[str, str]:
    """Returns the names of tensors in a file by those of the Transformers library.

    Args:
        header: The header of the file.
        table: Names of the Transformers library by those of our layers, see `Family.table`.
        config: The configuration.

    Raises:
        ValueError: If the file has a tensor that no layer has.
    """
    names: dict[str, str] = {}
    for ours, theirs in table.items():
        _, _, inner = ours.partition(".")
        stem = _STEMS.get(inner if ours.startswith(("decoder.", "encoder.")) else ours)
        if stem is None:
            continue
        for index in range(config.num_layers) if "{}" in ours else (None,):
            place = stem if index is None else f"blk.{index}.{stem}"
            for leaf in ("weight", "bias"):
                if f"{place}.{leaf}" in header.tensors:
                    names[f"{theirs.format(index)}.{leaf}"] = f"{place}.{leaf}"
    unused = sorted(set(header.tensors) - set(names.values()) - {"rope_freqs.weight"})
    if unused:
        raise ValueError(f"{header.path}: its tensor {unused[0]} belongs to no layer of a {config.architecture}.")
    return names


def _rows_in_halves(weights: np.ndarray, heads: int) -> np.ndarray:
    """Rows of heads whose features are turned in halves, from rows whose neighbouring features are."""
    pairs = weights.reshape(heads, -1, 2, *weights.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weights.shape)


register_weights(WEIGHTS, open_weights)
