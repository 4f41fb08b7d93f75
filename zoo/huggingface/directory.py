"""Reading directories of the Transformers library."""

import dataclasses
import math
import os
import re
import types
from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from zoo.backbones.backbone import Backbone
from zoo.backbones.origin import Origin
from zoo.config import TransformerConfig, renamed_in_errors, replace_choices, require_weights
from zoo.config.checks import ChoiceError
from zoo.huggingface.config_keys import is_integer
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.cross_encoder import read_pair_activation
from zoo.huggingface.family import Constant, Family, Head, get_family
from zoo.huggingface.quantized import dequantized
from zoo.huggingface.weights import Row, check_rows, named_layers, table_rows
from zoo.storage import TensorFiles, errors_of_file, open_checkpoint, quote
from zoo.storage.checkpoint import CONFIG_FILE, read_config_file
from zoo.storage.deferred import deferred
from zoo.storage.user_warnings import warn_user

# the files that the library has for a model and its tokenizer, without pickled weights; "?" stands for a character
OWN_FILES = (
    *(CONFIG_FILE, "generation_config.json", "model.safetensors", "model-?????-of-?????.safetensors"),
    *("model.safetensors.index.json", "adapter_config.json", "adapter_model.safetensors"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("chat_template.jinja", "vocab.txt", "vocab.json", "merges.txt", "source.spm", "target.spm", "spm.model"),
    *("tokenizer.model", "spiece.model", "sentencepiece.model", "sentencepiece.bpe.model"),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling/config.json"),
    *("2_Normalize", "?_Normalize/config.json", "?_Dense/config.json", "?_Dense/model.safetensors"),
)
# keys of the ids of special tokens
SPECIAL_IDS = tuple(f"{role}_token_id" for role in ("pad", "bos", "eos", "decoder_start", "cls", "sep"))


def is_huggingface(directory: str | os.PathLike[str]) -> bool:
    """Returns whether a directory holds a model of the Transformers library: a `config.json` with a `model_type`.

    Args:
        directory: The directory.
    """
    path = Path(directory) / CONFIG_FILE
    if not path.is_file():
        return False
    try:
        return "model_type" in read_config_file(Path(directory))
    except ValueError:
        return False


def read_config(directory: str | os.PathLike[str]) -> TransformerConfig:
    """Returns our configuration of a model of the Transformers library, without reading its weights.

    Args:
        directory: The directory.

    Raises:
        ValueError: If its `model_type`, or a key or value of its configuration, is not supported.
    """
    directory = Path(directory)
    values = read_config_file(directory)
    with errors_of_file(directory / CONFIG_FILE):
        family = get_family(values.get("model_type"))
    with open_checkpoint(directory, required=False) as tensors, errors_of_file(directory / CONFIG_FILE):
        tensors, values = dequantized(_plain_names(family, tensors), values)
        return _read_config(family, values, tensors)[0]


def load_backbone(directory: str | os.PathLike[str], *, load_weights: bool = True, **overrides: Any) -> Backbone:
    """Returns the backbone of a model of the Transformers library, with its weights.

    Args:
        directory: The directory, with `config.json` and safetensors files.
        load_weights: Whether to load the weights. Without them the safetensors files need not be there.
        **overrides: Replaced choices that do not change the weights, for example `max_length=4096` or `dropout=0.0`;
            any choices where no weights are loaded.

    Raises:
        ValueError: If something in the directory is not supported, damaged or does not fit.

    Example:

    >>> backbone = load_backbone("path/to/bert-base-uncased")
    >>> backbone.config.num_layers
    12
    """
    return _load(Path(directory), None, load_weights, overrides).backbone


def load_task_parts(
    directory: str | os.PathLike[str], task: str, load_weights: bool = True, **overrides: Any
) -> "TaskParts":
    """Returns the parts of a task.

    Args:
        directory: The directory.
        task: Name of our task.
        load_weights: Whether to load the weights.
        **overrides: Replaced choices of the configuration that change no weights, if any are loaded.

    Returns:
        The parts. The weights of the head are to be given to the task by `assign`.

    Raises:
        ValueError: If something in the directory is not supported, damaged or does not fit, or if this family has no
            such task.
    """
    return _load(Path(directory), task, load_weights, overrides)


@dataclasses.dataclass(frozen=True)
class HeadWeights:
    """Weights of the head of a task.

    Args:
        source: Where they are from.
        table: Names of the tensors by names of layers.
        tensors: The tensors.
    """

    source: str
    table: dict[str, str]
    tensors: dict[str, np.ndarray]

    def assign(self, layers: dict[str, Any], fresh: bool = False) -> None:
        """Gives layers their weights; where the file has none they keep those they have, with a warning.

        Args:
            layers: Layers of the head by name, see `head_layers`.
            fresh: Whether they shall keep those they have in any case.

        Raises:
            ValueError: If they do not fit.
        """
        rows = table_rows(layers, self.table) if self.tensors else []
        if layers and (fresh or not rows):
            found = f"has no weights for this head ({', '.join(layers)})"
            if rows:
                found = f"has this head ({', '.join(layers)}) for other labels than those given"
            warn_user(f"{self.source} {found}: it starts untrained.")
            return
        shapes = {name: tensor.shape for name, tensor in self.tensors.items()}
        files = TensorFiles(shapes, self.tensors.__getitem__, self.source)
        check_rows(rows, files, ())
        for row in rows:
            row.read(files.get(row.name))


@dataclasses.dataclass(frozen=True)
class TaskParts:
    """What a task is made of.

    Args:
        backbone: The backbone.
        options: Arguments for the constructor of the task besides backbone and tokenizer.
        head: The weights of its head.
        names: The keys of `config.json` that choices were read from, see `zoo.config.renamed_in_errors`.
    """

    backbone: Backbone
    options: dict[str, Any]
    head: HeadWeights
    names: dict[str, str]


def head_layers(task: Any) -> dict[str, Any]:
    """Returns the layers of the head of a task that have weights, by name.

    Args:
        task: A task; its `head` holds the layers as attributes.
    """
    head = getattr(task, "head", None)
    layers = {name: getattr(head, name, None) for name in ("dense", "norm", "projection")}
    bias = getattr(head, "output_bias", None)
    if bias is not None:
        layers["output_bias"] = types.SimpleNamespace(bias=bias, weights=[bias])
    return {name: layer for name, layer in layers.items() if layer is not None}


def _load(directory: Path, task: str | None, load_weights: bool, overrides: dict[str, Any]) -> TaskParts:
    values = read_config_file(directory)
    with errors_of_file(directory / CONFIG_FILE):
        family = get_family(values.get("model_type"))
    activation = read_pair_activation(directory) if task == "TextClassifier" else None
    if activation is not None:
        values["sentence_transformers"] = {"activation_fn": activation}
    with open_checkpoint(directory, required=load_weights) as files, errors_of_file(directory / CONFIG_FILE):
        tensors, values = dequantized(_plain_names(family, files), values)
        config, reader = _read_config(family, values, tensors)
        head = head_of(family, task)
        _refuse_choices(task, values)
        if not _is_language_model(family, task, values):
            config = _without_projection(config, family, tensors)
        options = head.options(reader)
        chosen = replace_choices(config, overrides, load_weights=load_weights)
        with deferred(directory.name):
            with renamed_in_errors(reader.names):
                # shapes are compared before anything is allocated; experts may be thousands of tensors
                if tensors.shapes and (not load_weights or config.feed_forward.num_experts):
                    require_weights(config, int(reader.elements), tensors.source)
                    _check_labels(options, head, tensors, config.hidden_dim, reader.elements)
                backbone = Backbone.from_config(chosen)
            stored, left_out = {}, ()
            sizes: Counter[str] = Counter()
            if load_weights:
                rows = table_rows(named_layers(backbone), family.table_of(config))
                check_count(rows, backbone)
                check_rows(rows, tensors, _other_tensors(family, tensors, rows, config), values)
                _check_labels(options, head, tensors, config.hidden_dim, reader.elements)
                stored = _head_tensors(family, head, tensors, rows)
                left_out = _left_out(family, head, tensors, rows) if stored else ()
                # the largest first, while little else is there
                for row in sorted(rows, key=lambda row: -math.prod(row.shape)):
                    with errors_of_file(directory / tensors.file_of(row.name)):
                        tensor = tensors.get(row.name)
                        sizes[tensor.dtype.name] += math.prod(row.shape)
                        row.read(tensor)
            backbone.origin = Origin(
                family.model_type,
                max(sizes, key=sizes.get, default="float32"),
                _special_ids(values, chosen.vocabulary_size),
                is_base_model=task is None and values.get("architectures") == [family.architecture],
                task=task,
                left_out=left_out,
            )
    weights = HeadWeights(str(directory / files.source), dict(head.table), stored)
    return TaskParts(backbone, options, weights, reader.names)


def _special_ids(values: dict[str, Any], vocabulary_size: int) -> dict[str, int | list[int]]:
    """The ids of special tokens in a configuration."""

    def is_id(value: Any) -> bool:
        return is_integer(value) and 0 <= value < vocabulary_size

    def are_ids(value: Any) -> bool:
        return is_id(value) or (isinstance(value, list) and bool(value) and all(map(is_id, value)))

    return {key: values[key] for key in SPECIAL_IDS if are_ids(values.get(key))}


def _left_out(family: Family, head: Head, tensors: TensorFiles, rows: list[Row]) -> tuple[str, ...]:
    """The layers of other heads in a file."""
    known = {row.name for row in rows} | set(family.copies) | set(_head_names(head))
    prefixes = family.head_prefixes()
    names = [name for name in tensors.shapes if name not in known and name.startswith(prefixes)]
    return tuple(sorted({name.rpartition(".")[0] for name in names if not family.is_ignored(name)}))


def _refuse_choices(task: str | None, values: dict[str, Any]) -> None:
    """Classes for multiple choice have a head of the name and size of a classifier's."""
    given = values.get("architectures")
    if task == "TextClassifier" and isinstance(given, list) and any(str(n).endswith("MultipleChoice") for n in given):
        raise ValueError(
            f"architectures must not name {quote(given)} for a {task}: a choice is scored among others, which no task "
            "does. MaskedLM, TextEmbedder and load_backbone() take the model without its head."
        )


def _check_labels(options: dict[str, Any], head: Head, tensors: TensorFiles, width: int, elements: float) -> None:
    """Checks that the head of a file has as many outputs as its configuration has labels."""
    labels = options.get("labels", 0)
    count = labels if isinstance(labels, int) else len(labels)
    shape = tensors.shapes.get(f"{head.table.get('projection')}.weight")
    if shape is not None and "labels" in options and shape[0] != count:
        name = f"{head.table['projection']}.weight in {tensors.file_of(head.table['projection'] + '.weight')}"
        raise ValueError(f"id2label must name the {shape[0]} outputs of {name}, got {count}.")
    if count * width > elements:
        raise ValueError(
            f"id2label must name fewer labels, got {count} where {tensors.source} holds {elements:.0f} weights."
        )


def _plain_names(family: Family, files: TensorFiles) -> TensorFiles:
    """The same tensors without prefixes."""
    names: dict[str, str] = {}
    for name in files.shapes:
        plain = family.plain_name(name)
        if plain in names:
            both = f"{quote(name)} and {quote(names[plain])}"
            raise ValueError(f"{files.file_of(name)}: {both} must not both be there: they mean the same.")
        names[plain] = name
    return files.renamed(names)


def _read_config(
    family: Family, values: dict[str, Any], tensors: TensorFiles
) -> tuple[TransformerConfig, ConfigReader]:
    # without files nothing bounds the counts
    reader = ConfigReader(values, tensors.shapes or (), tensors.source, tensors.get)
    with renamed_in_errors(reader.names, ChoiceError):
        config = family.read(reader)
    reader.finish()
    return config, reader


def _is_language_model(family: Family, task: str | None, values: dict[str, Any]) -> bool:
    """Whether a model is used as a language model, or was saved as one where nothing is said of its use."""
    if task is not None:
        return task == "CausalLM"
    others = {
        family.architecture,
        family.encoder_architecture,
        *(head.architecture for name, head in family.heads.items() if name != "CausalLM"),
    }
    architectures = values.get("architectures")
    return not (isinstance(architectures, list) and architectures and others.issuperset(map(str, architectures)))


def _without_projection(config: TransformerConfig, family: Family, tensors: TensorFiles) -> TransformerConfig:
    """The configuration of a decoder without the projection to the vocabulary, where its file has none.

    Files of classifiers and of base models have none, whether it is tied to the embedding or not.
    """
    name, embedding = family.table_of(config).get("output_projection"), config.embedding
    if config.architecture != "decoder":
        return config
    is_tied = embedding.tie_output or f"{name}.weight" not in tensors.shapes
    has_bias = embedding.output_bias and f"{name}.bias" in tensors.shapes
    embedding = dataclasses.replace(embedding, tie_output=is_tied, output_bias=has_bias)
    return dataclasses.replace(config, embedding=embedding)


def head_of(family: Family, task: str | None, is_encoder: bool = False) -> Head:
    """Returns the head of a task; that of the base model without a task.

    Args:
        family: The family.
        task: Name of our task.
        is_encoder: Whether the model is an encoder.

    Raises:
        ValueError: If the family has no such task.
    """
    base = Head((family.encoder_architecture if is_encoder else None) or family.architecture)
    if task is None:
        return base
    if task in family.heads:
        return family.heads[task]
    if task == "TextEmbedder":
        return base  # it has no weights of its own
    raise ValueError(f"The task of a {family.model_type!r} model must be one of {sorted(family.heads)}, got {task!r}.")


def check_count(rows: list[Row], backbone: Backbone) -> None:
    """Checks that no weight of a backbone is without a name.

    Raises:
        ValueError: If one is.
    """
    counted = sum(int(np.prod(row.shape)) for row in rows)
    if counted != backbone.parameter_count():
        raise ValueError(f"{counted} weights have names, the backbone has {backbone.parameter_count()}.")


def _head_names(head: Head) -> list[str]:
    return [f"{name}.{leaf}" for name in head.table.values() for leaf in ("weight", "bias")]


def _head_tensors(family: Family, head: Head, tensors: TensorFiles, rows: list[Row]) -> dict[str, np.ndarray]:
    names = set(_head_names(head))
    names -= {row.name for row in rows} | set(family.copies)
    return {name: np.array(tensors.get(name)) for name in sorted(names) if name in tensors.shapes}


def _other_tensors(family: Family, tensors: TensorFiles, rows: list[Row], config: TransformerConfig) -> set[str]:
    """Tensors that the model has no place for and need not have, each of them checked."""
    needed, others, of_heads = {row.name for row in rows}, set(), family.head_prefixes()
    constants = family.constants(config)
    for name in set(tensors.shapes) - needed:
        constant = next((constant for constant in constants if re.fullmatch(constant.pattern, name)), None)
        if constant is not None:
            _check_constant(constant, name, tensors)
        elif name in family.copies:
            original = family.copies[name]
            if original not in tensors.shapes or not np.array_equal(tensors.get(name), tensors.get(original)):
                raise ValueError(
                    f"{name} in {tensors.file_of(name)} must be the same as {original}, because the configuration says "
                    "that they are tied."
                )
        elif not family.is_ignored(name) and not name.startswith(of_heads) and not _adds_nothing(name, tensors, needed):
            continue
        others.add(name)
    return others


def _check_constant(constant: Constant, name: str, tensors: TensorFiles) -> None:
    shape, found = constant.value.shape, tensors.get(name)
    is_float = found.dtype.kind == "f" or found.dtype == ml_dtypes.bfloat16
    # in the precision of the file
    near = max(1e-5, float(ml_dtypes.finfo(found.dtype).eps)) if is_float else 0.0
    if found.shape != shape or not np.allclose(found.astype("float32"), constant.value, rtol=near, atol=near):
        raise ValueError(
            f"{name} in {tensors.file_of(name)} must be the constant of shape {shape} that the configuration says: "
            "trained or other values are not supported."
        )


def _adds_nothing(name: str, tensors: TensorFiles, needed: set[str]) -> bool:
    """Whether a tensor is a bias of zeros: packages for GPTQ write one for each layer that has none."""
    weight = f"{name.removesuffix('.bias')}.weight"
    return name.endswith(".bias") and weight in needed and not np.any(tensors.get(name))
