"""Writing language models as GGUF files, which llama.cpp, Ollama and LM Studio open."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import zoo.gguf.tokenizer as tokenizers
from zoo.config import TransformerConfig
from zoo.gguf.architectures import WRITTEN_AS, Architecture
from zoo.gguf.config import config_of, llama3_factors
from zoo.gguf.generation import metadata_of
from zoo.gguf.header import read_gguf
from zoo.gguf.tensors import heads_of, hub_names, neighbours_from_halves, parts_from_groups
from zoo.gguf.types import library
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import Family, get_family
from zoo.huggingface.generation import GENERATION_FILE
from zoo.huggingface.writing import differences
from zoo.storage import atomic_write, open_checkpoint, quote
from zoo.storage.checkpoint import read_config_file
from zoo.storage.user_warnings import warn_user
from zoo.tokenizers.huggingface.writing import MODEL_FILE
from zoo.tokenizers.sentencepiece_check import parse_model

# what `weights` may be, and the type of llama.cpp
WEIGHTS = {
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "q8_0": "Q8_0",
    "q5_1": "Q5_1",
    "q5_0": "Q5_0",
    "q4_1": "Q4_1",
    "q4_0": "Q4_0",
}
# fields of all architectures by their keys in `config.json`
_NAMES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
}


# how the package adds a value
_ADD = {bool: "add_bool", int: "add_uint32", float: "add_float32", str: "add_string", list: "add_array"}


def write_gguf(task: Any, path: str | os.PathLike[str], weights: str = "float16", name: str | None = None) -> None:
    """Writes a causal language model and its tokenizer as one file.

    Vectors stay in float32. Of weights in 4 or 5 bits, embeddings and output have 8, as those lose most. Low-rank
    updates are merged. What is read back from the header must be the same model.

    Args:
        task: A `CausalLM` with a byte-level BPE tokenizer or a SentencePiece model.
        path: The file; an earlier one is replaced.
        weights: "float32", "float16", "bfloat16", "q8_0", "q5_1", "q5_0", "q4_1" or "q4_0".
        name: Name of the model in the file. Default: that of the file.

    Raises:
        ValueError: If an argument is out of range, or if llama.cpp has no architecture, key or tokenizer that says what
            the model is; the message names it.

    Example:

    >>> write_gguf(model, "model.gguf", "q8_0")
    """
    if weights not in WEIGHTS:
        raise ValueError(f"weights must be one of {', '.join(map(repr, WEIGHTS))}, got {weights!r}.")
    if type(task).__name__ != "CausalLM":
        raise ValueError(f"A GGUF file holds a CausalLM, this is a {type(task).__name__}.")
    path = Path(path)
    with tempfile.TemporaryDirectory() as folder:
        task.save_to_huggingface(Path(folder) / "model", dtype="float32")
        with atomic_write(path) as file:
            _write_folder(Path(folder) / "model", file, WEIGHTS[weights], name or path.stem)


def _write_folder(folder: Path, path: Path, kind: str, name: str) -> None:
    gguf = library()
    values = read_config_file(folder)
    if values["model_type"] not in WRITTEN_AS:
        raise ValueError(
            f"A GGUF file holds models of the families {', '.join(sorted(WRITTEN_AS))}, this one is "
            f"{quote(values['model_type'])}."
        )
    written_as, architecture = WRITTEN_AS[values["model_type"]]
    family = get_family(values["model_type"])
    config = family.read(ConfigReader(values, (), str(folder)))
    writer = gguf.GGUFWriter(str(path), written_as, use_temp_file=True)
    writer.add_name(name)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(gguf.LlamaFileType["ALL_F32" if kind == "F32" else f"MOSTLY_{kind}"])
    for key, value in _fields(values, architecture, config):
        getattr(writer, _ADD[type(value)])(f"{written_as}.{key}", value)
    _add_tokenizer(writer, folder)
    _add_generation(writer, folder)
    for stored, tensor in _tensors(folder, written_as, architecture, family, config):
        _add_tensor(writer, stored, tensor, kind)
    for stored, factors in _position_factors(values, config):
        writer.add_tensor(stored, factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    back = family.read(ConfigReader(config_of(read_gguf(path)), (), str(path)))
    lost = differences(back, config)
    if lost:
        raise ValueError(f"A GGUF file of the architecture {written_as!r} cannot express {lost}.")


def _fields(values: dict[str, Any], architecture: Architecture, config: TransformerConfig) -> Iterator[tuple[str, Any]]:
    """The fields of an architecture, without its name."""
    found = dict(architecture.constants)
    for ours, theirs in {**_NAMES, **architecture.names}.items():
        *outer, key = ours.split(".")
        place = values[outer[0]] if outer else values
        if place.get(key) is not None:
            found[theirs] = place[key]
    found |= architecture.derived(values)
    if architecture.by_layer:
        heads = "attention.head_count_kv"
        found[heads] = [0 if config.has_mixer(index) else found[heads] for index in range(config.num_layers)]
    yield from found.items()
    # families with one width say none
    if "feed_forward_length" not in found:
        yield "feed_forward_length", config.feed_forward.intermediate_dim
    head_dim = config.head_dim
    for key in ("attention.value_length", "attention.key_length"):
        if key not in found:
            yield key, head_dim
    yield "vocab_size", values["vocab_size"]
    if "rope.dimension_count" not in found and ("rope_theta" in values or "rotary_emb_base" in values):
        turned = values.get("partial_rotary_factor", values.get("rotary_pct", 1.0))
        yield "rope.dimension_count", round(head_dim * turned)
    scaling = values.get("rope_scaling") or {}
    if scaling.get("rope_type") in ("linear", "yarn"):
        yield "rope.scaling.type", scaling["rope_type"]
        yield "rope.scaling.factor", float(scaling["factor"])
    if scaling.get("rope_type") == "yarn":
        yield "rope.scaling.original_context_length", scaling["original_max_position_embeddings"]
        for end in ("beta_fast", "beta_slow"):
            if end in scaling:
                yield f"rope.scaling.yarn_{end}", float(scaling[end])


def _position_factors(values: dict[str, Any], config: TransformerConfig) -> Iterator[tuple[str, np.ndarray]]:
    """Tensors by which rotary positions are stretched."""
    scaling = values.get("rope_scaling") or {}
    if scaling.get("rope_type") == "llama3":
        factors = llama3_factors(config.head_dim, values["rope_theta"], scaling["factor"])
        yield "rope_freqs.weight", factors.astype("float32")
    for name in ("long", "short"):
        if f"{name}_factor" in scaling:
            yield f"rope_factors_{name}.weight", np.array(scaling[f"{name}_factor"], "float32")


def _add_tokenizer(writer: Any, folder: Path) -> None:
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    if (folder / MODEL_FILE).is_file():
        tokens = _add_sentencepiece(writer, parse_model((folder / MODEL_FILE).read_bytes()))
    else:
        pre, tokens, types, merges = tokenizers.from_files(json.loads((folder / "tokenizer.json").read_text("utf-8")))
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list(tokens)
        writer.add_token_types(types)
        writer.add_token_merges(merges)
    for role, name in tokenizers.ROLES.items():
        token = settings.get(f"{role}_token")
        if token is not None:
            writer.add_uint32(f"tokenizer.ggml.{name}_token_id", tokens.index(token))
    for flag in ("add_bos_token", "add_eos_token"):
        if settings.get(flag) is not None:
            writer.add_bool(f"tokenizer.ggml.{flag}", settings[flag])
    if settings.get("chat_template"):
        writer.add_chat_template(settings["chat_template"])


def _add_sentencepiece(writer: Any, model: Any) -> list[str]:
    """Adds a SentencePiece model, and returns its tokens."""
    normalizer, trainer = model.normalizer_spec, model.trainer_spec
    names = {trainer.BPE: "llama", trainer.UNIGRAM: "t5"}
    if trainer.model_type not in names:
        raise ValueError("A GGUF file is written with a SentencePiece model of type BPE or unigram, this is another.")
    if trainer.model_type == trainer.BPE and normalizer.precompiled_charsmap:
        raise ValueError("llama.cpp does not normalize texts for SentencePiece models of type BPE, as this one wants.")
    writer.add_tokenizer_model(names[trainer.model_type])
    writer.add_tokenizer_pre("default")
    tokens = [piece.piece for piece in model.pieces]
    writer.add_token_list(tokens)
    writer.add_token_scores([piece.score for piece in model.pieces])
    writer.add_token_types([piece.type for piece in model.pieces])
    writer.add_add_space_prefix(normalizer.add_dummy_prefix)
    writer.add_remove_extra_whitespaces(normalizer.remove_extra_whitespaces)
    if normalizer.precompiled_charsmap:
        writer.add_precompiled_charsmap(normalizer.precompiled_charsmap)
    return tokens


def _add_generation(writer: Any, folder: Path) -> None:
    """Adds how the model writes texts; what the metadata have no key for is named in a warning."""
    settings = json.loads((folder / GENERATION_FILE).read_text("utf-8"))
    end = writer.kv_data[0].get("tokenizer.ggml.eos_token_id")
    metadata, lost = metadata_of(settings, None if end is None else end.value)
    for key, value in metadata.items():
        add = "add_int32" if type(value) is int and key.startswith("general.") else _ADD[type(value)]
        getattr(writer, add)(key, value)
    if lost:
        warn_user(f"generation: a GGUF file has no keys for {', '.join(lost)}: other programs will not do it.")


def _tensors(
    folder: Path, written_as: str, architecture: Architecture, family: Family, config: TransformerConfig
) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors by their names in the file, in float32 and the form of llama.cpp."""
    names = hub_names(written_as, family, config)
    heads = heads_of(config)
    experts: dict[str, dict[int, np.ndarray]] = {}
    with open_checkpoint(folder) as tensors:
        for name in tensors.shapes:
            place = names.get(family.plain_name(name))
            if place is None:
                raise ValueError(f"A GGUF file of the architecture {written_as!r} has no place for {name}.")
            tensor = np.asarray(tensors.get(name), "float32")
            if place.expert is not None:
                found = experts.setdefault(place.stored, {})
                found[place.expert] = tensor
                if len(found) == config.feed_forward.num_experts:
                    yield place.stored, np.stack([found[index] for index in range(len(found))])
                    experts[place.stored] = {}
                continue
            if place.merged is not None and place.merged.split is not None:
                parts = place.merged.split(tensor, config)
                yield from zip((place.stored, *place.others), map(np.ascontiguousarray, parts), strict=True)
                continue
            stem = place.stem
            if place.middle_axis:
                tensor = tensor[:, 0]
            elif architecture.permuted and stem in heads:
                tensor = neighbours_from_halves(tensor, heads[stem])
            elif architecture.by_head and stem == "attn_qkv":
                tensor = parts_from_groups(tensor, config)
            elif architecture.shifted_norms and place.is_factor_of_norm:
                tensor = tensor + 1
            elif architecture.transposed and place.is_kernel and tensor.ndim == 2:
                tensor = tensor.T
            yield place.stored, np.ascontiguousarray(tensor)


def _add_tensor(writer: Any, name: str, tensor: np.ndarray, kind: str) -> None:
    gguf = library()
    if tensor.ndim < 2 or kind == "F32":
        writer.add_tensor(name, tensor)
        return
    if name in ("token_embd.weight", "output.weight") and kind.startswith(("Q4", "Q5")):
        kind = "Q8_0"
    chosen = gguf.GGMLQuantizationType[kind]
    if tensor.shape[-1] % gguf.GGML_QUANT_SIZES[chosen][0]:
        chosen = gguf.GGMLQuantizationType.F16  # as llama.cpp does with rows that are no whole blocks
    writer.add_tensor(name, gguf.quants.quantize(tensor, chosen), raw_dtype=chosen)
