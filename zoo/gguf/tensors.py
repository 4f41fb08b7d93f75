"""The tensors of a GGUF file under the names, and in the form, that the Transformers library has for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zoo.config import TransformerConfig
from zoo.gguf.architectures import ARCHITECTURES, Merged, architecture_of
from zoo.gguf.fields import Fields
from zoo.gguf.header import GGUFHeader, read_gguf
from zoo.gguf.read_tensor import read_tensor
from zoo.gguf.types import library
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import Family, get_family
from zoo.huggingface.weights import Stored
from zoo.storage import TensorFiles, errors_of_file, quote
from zoo.storage.checkpoint import CONFIG_FILE, read_config_file, register_weights

# A file of this name beside a config.json holds its weights: a link to the file that was named.
WEIGHTS = "model.gguf"
# what the configuration is made of
_NO_WEIGHTS = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}


class Place(NamedTuple):
    """Where a tensor of the Transformers library is.

    Args:
        stored: Name of the tensor in the file.
        expert: Which part along its first axis; None for all of it.
        merged: How it is made of this tensor and of others; None where it is this one.
        others: The names of these.
        whole: Its name in older files, which have it as the library does; None if none have.
        middle_axis: Whether the family has an axis of size 1 before the last one, and files have none.
    """

    stored: str
    expert: int | None = None
    merged: Merged | None = None
    others: tuple[str, ...] = ()
    whole: str | None = None
    middle_axis: bool = False

    @property
    def stem(self) -> str:
        """The name without the number of the layer and `weight` or `bias`."""
        return self.stored.split(".")[2 if self.stored.startswith("blk.") else 0]

    @property
    def is_factor_of_norm(self) -> bool:
        """Whether it is the factor of a norm."""
        return self.stem.endswith("norm") and self.stored.endswith(".weight")

    @property
    def is_kernel(self) -> bool:
        """Whether it is the kernel of a linear map in a layer."""
        return self.stored.startswith("blk.") and self.stored.endswith(".weight")


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
    with errors_of_file(path.parent / CONFIG_FILE):
        family = get_family(values.get("model_type"))
        config = family.read(ConfigReader(values, (), str(path)))
    places = places_of(header, family, config)
    heads = heads_of(config)

    def get(name: str) -> np.ndarray:
        place = places[name]
        tensor = read_tensor(header.tensors[place.stored], place.expert)
        if place.merged is not None:
            return place.merged.join(tensor, *(read_tensor(header.tensors[other]) for other in place.others))
        if place.middle_axis:
            return tensor[:, None]
        if architecture.permuted and place.stem in heads:
            return halves_from_neighbours(tensor, heads[place.stem])
        if architecture.by_head and place.stem == "attn_qkv":
            return groups_from_parts(tensor, config)
        if architecture.shifted_norms and place.is_factor_of_norm:
            return np.asarray(tensor, "float32") - 1
        return tensor.T if architecture.transposed and place.is_kernel else tensor

    def shape(place: Place) -> tuple[int, ...]:
        whole = header.tensors[place.stored].shape
        if place.merged is not None:
            return place.merged.shape(whole, *(header.tensors[other].shape for other in place.others)) or ()
        whole = whole if place.expert is None else whole[1:]
        whole = (whole[0], 1, *whole[1:]) if place.middle_axis else whole
        return tuple(reversed(whole)) if architecture.transposed and place.is_kernel else whole

    yield TensorFiles({name: shape(place) for name, place in places.items()}, get, path.name)


def places_of(header: GGUFHeader, family: Family, config: TransformerConfig) -> dict[str, Place]:
    """Returns where the tensors of a file are, by their names in the Transformers library.

    Args:
        header: The header of the file.
        family: The family.
        config: The configuration.

    Raises:
        ValueError: If the file has a tensor that no layer has.
    """
    names = hub_names(header.metadata["general.architecture"], family, config)
    names = {name: Place(place.whole) if place.whole in header.tensors else place for name, place in names.items()}
    places = {name: place for name, place in names.items() if place.stored in header.tensors}
    for place in places.values():
        if place.merged is None:
            continue
        parts = (place.stored, *place.others)
        shapes = [header.tensors[name].shape for name in parts if name in header.tensors]
        if len(shapes) != len(parts) or place.merged.shape(*shapes) is None:
            raise ValueError(
                f"{header.path}: it must have {', '.join(parts)} in shapes that fit each other, got "
                f"{', '.join(map(str, shapes))}."
            )
    experts = config.feed_forward.num_experts
    for place in places.values():
        shape = header.tensors[place.stored].shape
        if place.expert is not None and (len(shape) != 3 or shape[0] != experts):
            raise ValueError(f"{header.path}: {place.stored} must have {experts} matrices, got the shape {shape}.")
    # files of GPT-2 have the embedding twice
    is_copy = {"output.weight"} if config.embedding.tie_output else set()
    used = {name for place in places.values() for name in (place.stored, *place.others)}
    unused = sorted(set(header.tensors) - used - _NO_WEIGHTS - is_copy)
    if unused:
        raise ValueError(
            f"{header.path}: its tensor {quote(unused[0])} belongs to no layer of a {config.architecture}."
        )
    return places


def hub_names(architecture: str, family: Family, config: TransformerConfig) -> dict[str, Place]:
    """Returns the places of all tensors that a family may have, by their names there, by the table of llama.cpp.

    Args:
        architecture: llama.cpp's name of the architecture.
        family: The family.
        config: The configuration.
    """
    gguf = library()
    kind = next(each for each, known in gguf.MODEL_ARCH_NAMES.items() if known == architecture)
    layers = max(config.num_layers, config.num_decoder_layers or 0)
    known = gguf.get_tensor_name_map(kind, layers)
    places: dict[str, Place] = {}
    for each in family.table_of(config).values():
        layer = each if isinstance(each, Stored) else Stored(each)
        experts = range(config.feed_forward.num_experts or 0) if layer.name.count("{}") == 2 else [None]
        for index in range(layers) if "{}" in layer.name else [0]:
            # llama.cpp has the experts of a layer in one tensor, whose name has no number
            plain = layer.name.replace("{}", str(index), 1).replace(".{}", "")
            found = known.get_name(family.prefix + plain) or known.get_name(plain)
            if found is None:
                continue
            for leaf, ours in (("weight", layer.weight), ("bias", layer.bias)):
                for expert in experts:
                    middle_axis = layer.middle_axis and leaf == "weight"
                    name = layer.name.format(index, expert) + ours
                    places[name] = Place(f"{found}.{leaf}", expert, middle_axis=middle_axis)
    merged_places: dict[str, Place] = {}
    for name, merged in ARCHITECTURES[architecture].merged.items():
        for index in range(layers):
            first, *others = (each.format(index) for each in merged.stored)
            whole = merged.whole and merged.whole.format(index)
            merged_places[name.format(index)] = Place(first, None, merged, tuple(others), whole)
    taken = {place.stored for place in merged_places.values()}
    places = {name: place for name, place in places.items() if place.stored not in taken} | merged_places
    return places


def heads_of(config: TransformerConfig) -> dict[str, int]:
    """Returns the number of heads of the linear maps whose features are turned, by their names in files.

    Args:
        config: The configuration.
    """
    attention = config.attention
    return {"attn_q": attention.num_heads, "attn_k": attention.num_key_value_heads or attention.num_heads}


def halves_from_neighbours(weights: np.ndarray, heads: int) -> np.ndarray:
    """Returns rows of heads whose features are turned in halves, from rows whose neighbouring features are.

    Args:
        weights: `(outputs, inputs)` or a bias `(outputs,)`.
        heads: Number of heads.
    """
    pairs = weights.reshape(heads, -1, 2, *weights.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weights.shape)


def neighbours_from_halves(weights: np.ndarray, heads: int) -> np.ndarray:
    """Undoes `halves_from_neighbours`.

    Args:
        weights, heads: As there.
    """
    halves = weights.reshape(heads, 2, -1, *weights.shape[1:])
    return halves.swapaxes(1, 2).reshape(weights.shape)


def groups_from_parts(weights: np.ndarray, config: TransformerConfig) -> np.ndarray:
    """Returns rows of all queries, all keys and all values in groups: the queries that share a key, the key, its value.

    Args:
        weights: `(outputs, inputs)` or a bias `(outputs,)`.
        config: The configuration.
    """
    heads = heads_of(config)
    groups, size = heads["attn_k"], config.head_dim
    parts = np.split(weights, np.cumsum([heads["attn_q"] * size, groups * size]))
    by_group = [part.reshape(groups, -1, *weights.shape[1:]) for part in parts]
    return np.concatenate(by_group, axis=1).reshape(weights.shape)


def parts_from_groups(weights: np.ndarray, config: TransformerConfig) -> np.ndarray:
    """Undoes `groups_from_parts`.

    Args:
        weights, config: As there.
    """
    groups, size = heads_of(config)["attn_k"], config.head_dim
    parts = np.split(weights.reshape(groups, -1, *weights.shape[1:]), (-2 * size, -size), axis=1)
    return np.concatenate([part.reshape(-1, *weights.shape[1:]) for part in parts])


register_weights(WEIGHTS, open_weights)
