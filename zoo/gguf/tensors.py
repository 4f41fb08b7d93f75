"""The tensors of a GGUF file under the names, and in the form, that the Transformers library has for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zoo.config import TransformerConfig
from zoo.gguf.architectures import Architecture, architecture_of
from zoo.gguf.fields import Fields
from zoo.gguf.header import GGUFHeader, read_gguf
from zoo.gguf.read_tensor import read_tensor
from zoo.gguf.types import library
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import Family, get_family
from zoo.huggingface.weights import Stored
from zoo.storage import TensorFiles, naming
from zoo.storage.checkpoint import CONFIG_FILE, read_config_file, register_weights

# A file of this name beside a config.json holds its weights: a link to the file that was named.
WEIGHTS = "model.gguf"
# what the configuration is made of, and what is twice in files of models whose output is the embedding
_NO_WEIGHTS = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}


class Place(NamedTuple):
    """Where a tensor of the Transformers library is.

    Args:
        stored: Name of the tensor in the file.
        expert: Which part along its first axis; None for all of it.
    """

    stored: str
    expert: int | None = None


@contextlib.contextmanager
def open_weights(path: Path) -> Iterator[TensorFiles]:
    """Opens the weights of a model, by the names that its family has in the Transformers library.

    Args:
        path: The file, beside a `config.json`.

    Raises:
        ValueError: If the file is damaged.
    """
    header = read_gguf(path.resolve())
    architecture = architecture_of(Fields(header))
    values = read_config_file(path.parent)
    with naming(path.parent / CONFIG_FILE):
        family = get_family(values.get("model_type"))
        config = family.read(ConfigReader(values, (), str(path)))
    places = places_of(header, family, config)
    heads = {
        "attn_q": config.attention.num_heads,
        "attn_k": config.attention.num_key_value_heads or config.attention.num_heads,
    }

    def get(name: str) -> np.ndarray:
        place = places[name]
        tensor = read_tensor(header.tensors[place.stored], place.expert)
        stem = place.stored.split(".")[2] if place.stored.startswith("blk.") else place.stored.split(".")[0]
        if architecture.permuted and stem in heads:
            return _rows_in_halves(tensor, heads[stem])
        if architecture.shifted_norms and stem.endswith("norm"):
            return np.asarray(tensor, "float32") - 1
        return tensor.T if _is_transposed(architecture, place) and tensor.ndim == 2 else tensor

    def shape(place: Place) -> tuple[int, ...]:
        whole = header.tensors[place.stored].shape
        whole = whole if place.expert is None else whole[1:]
        return tuple(reversed(whole)) if _is_transposed(architecture, place) else whole

    yield TensorFiles({name: shape(place) for name, place in places.items()}, get, path.name)


def places_of(header: GGUFHeader, family: Family, config: TransformerConfig) -> dict[str, Place]:
    """Returns where tensors are by their names in the Transformers library, by the table of llama.cpp.

    Args:
        header: The header of the file.
        family: The family.
        config: The configuration.

    Raises:
        ValueError: If the file has a tensor that no layer has.
    """
    gguf = library()
    name = header.metadata["general.architecture"]
    kind = next(each for each, known in gguf.MODEL_ARCH_NAMES.items() if known == name)
    known = gguf.get_tensor_name_map(kind, config.num_layers)
    places: dict[str, Place] = {}
    for each in family.table_of(config).values():
        layer = each if isinstance(each, Stored) else Stored(each)
        per_expert = layer.name.count("{}") == 2
        for index in range(config.num_layers) if "{}" in layer.name else (0,):
            merged = layer.name.replace(".{}.", ".0.", 1).replace(".{}", "").replace(".0.", f".{index}.", 1)
            found = known.get_name(family.prefix + merged) or known.get_name(merged)
            for leaf, ours in (("weight", layer.weight), ("bias", layer.bias)):
                stored = f"{found}.{leaf}"
                if found is None or stored not in header.tensors:
                    continue
                shape = header.tensors[stored].shape
                if per_expert:
                    for expert in range(shape[0]):
                        places[layer.name.format(index, expert) + ours] = Place(stored, expert)
                else:
                    places[layer.name.format(index) + ours] = Place(stored)
    is_copy = {"output.weight"} if config.embedding.tie_output else set()
    unused = sorted(set(header.tensors) - {place.stored for place in places.values()} - _NO_WEIGHTS - is_copy)
    if unused:
        raise ValueError(f"{header.path}: its tensor {unused[0]} belongs to no layer of a {config.architecture}.")
    return places


def _is_transposed(architecture: Architecture, place: Place) -> bool:
    return architecture.transposed and place.stored.startswith("blk.") and place.stored.endswith(".weight")


def _rows_in_halves(weights: np.ndarray, heads: int) -> np.ndarray:
    """Rows of heads whose features are turned in halves, from rows whose neighbouring features are."""
    pairs = weights.reshape(heads, -1, 2, *weights.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weights.shape)


register_weights(WEIGHTS, open_weights)
