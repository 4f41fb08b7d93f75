"""Directories of the Transformers library: read into a backbone or a task, and written from one."""

import dataclasses
import difflib
import json
import os
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from zoo.backbones.backbone import Backbone
from zoo.config import TransformerConfig
from zoo.files import written_whole
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import Family, Head, all_families, get_family
from zoo.huggingface.files import CONFIG_FILE, WEIGHTS_FILE, TensorFiles, open_directory, read_json
from zoo.huggingface.weights import Row, check_rows, named_layers, table_rows
from zoo.training.tensor_files import write_tensors


def is_huggingface(directory: str | os.PathLike) -> bool:
    """Whether a directory holds a model of the Transformers library: a `config.json` with a `model_type`.

    Args:
        directory: The directory.
    """
    path = Path(directory) / CONFIG_FILE
    if not path.is_file():
        return False
    try:
        return "model_type" in read_json(path)
    except ValueError:
        return False


def read_config(directory: str | os.PathLike) -> TransformerConfig:
    """Returns our configuration of a model of the Transformers library; its weights are not read.

    Args:
        directory: The directory.

    Raises:
        ValueError: If its `model_type` or a key of its configuration is not supported, or a value of it.
    """
    directory = Path(directory)
    values = read_json(directory / CONFIG_FILE)
    family = get_family(values.get("model_type"))
    with open_directory(directory) as tensors:
        return _read_config(family, values, _plain_names(family, tensors))[0]


def load_backbone(directory: str | os.PathLike, **overrides: Any) -> Backbone:
    """Returns the backbone of a model of the Transformers library, with its weights.

    Args:
        directory: The directory, with `config.json` and safetensors files.
        **overrides: Replaced choices that change no weights, for example `max_length=4096` or `dropout=0.0`.

    Raises:
        ValueError: If something in the directory is not supported, damaged or does not fit.

    Example:

    >>> backbone = load_backbone("path/to/bert-base-uncased")
    >>> backbone.config.num_layers
    12
    """
    return _load(Path(directory), None, True, overrides)[0]


def load_task_parts(
    directory: str | os.PathLike, task: str, load_weights: bool = True, **overrides: Any
) -> tuple[Backbone, dict[str, Any], "HeadWeights"]:
    """Returns what a task is made of.

    Args:
        directory: The directory.
        task: Name of our task.
        load_weights: Whether to load the weights.
        **overrides: Replaced choices of the configuration that change no weights.

    Returns:
        The backbone, arguments for the constructor of the task beside backbone and tokenizer, and the weights of its
        head, to be given to it by `assign`.

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
            warnings.warn(
                f"{self.source} has no weights for this head ({', '.join(layers)}): it starts untrained.", stacklevel=3
            )
            return
        files = TensorFiles({name: tensor.shape for name, tensor in self.tensors.items()}, self.tensors.__getitem__)
        check_rows(rows, files, ())
        for row in rows:
            row.read(files.get(row.name))


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


def _load(
    directory: Path, task: str | None, load_weights: bool, overrides: dict[str, Any]
) -> tuple[Backbone, dict[str, Any], HeadWeights]:
    values = read_json(directory / CONFIG_FILE)
    family = get_family(values.get("model_type"))
    with open_directory(directory) as files:
        tensors = _plain_names(family, files)
        config, reader = _read_config(family, values, tensors)
        head = _head(family, task)
        options = head.options(reader)
        backbone = Backbone.from_config(_override(config, overrides))
        stored = {}
        if load_weights:
            rows = table_rows(named_layers(backbone), family.table_of(config))
            _check_count(rows, backbone)
            stored = _head_tensors(family, head, tensors, rows)
            check_rows(rows, tensors, _other_tensors(family, tensors, rows))
            for row in rows:
                row.read(tensors.get(row.name))
    return backbone, options, HeadWeights(str(directory), dict(head.table), stored)


def _plain_names(family: Family, files: TensorFiles) -> TensorFiles:
    """The same tensors without prefixes."""
    names: dict[str, str] = {}
    for name in files.shapes:
        plain = family.plain_name(name)
        if plain in names:
            raise ValueError(f"Two tensors of the file mean the same: {name!r} and {names[plain]!r}.")
        names[plain] = name
    return TensorFiles(
        {plain: files.shapes[name] for plain, name in names.items()}, lambda name: files.get(names[name])
    )


def _read_config(
    family: Family, values: dict[str, Any], tensors: TensorFiles
) -> tuple[TransformerConfig, ConfigReader]:
    reader = ConfigReader(values, tensors.shapes)
    config = family.read(reader)
    reader.finish()
    return config, reader


def _override(config: TransformerConfig, overrides: dict[str, Any]) -> TransformerConfig:
    allowed = ["max_length", "dropout"]
    if config.position.kind == "learned":
        allowed.remove("max_length")  # it is the size of a table
    for key in overrides:
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"Of a model with weights only {allowed} can be replaced, got {key!r}.{hint}")
    return dataclasses.replace(config, **overrides)


def _head(family: Family, task: str | None) -> Head:
    if task is None:
        return Head(family.architecture)
    if task in family.heads:
        return family.heads[task]
    if task == "TextEmbedder":
        return Head(family.architecture)  # it has no weights of its own
    raise ValueError(f"A {family.model_type!r} model makes one of {sorted(family.heads)}, not a {task}.")


def _check_count(rows: list[Row], backbone: Backbone) -> None:
    """Checks that no weight of a backbone is without a name."""
    counted = sum(int(np.prod(row.shape)) for row in rows)
    adapted = sum(int(np.prod(weight.shape)) for weight in backbone.weights if "lora" in weight.path)
    if counted != backbone.parameter_count() - adapted:
        raise ValueError(f"{counted} weights have names, the backbone has {backbone.parameter_count() - adapted}.")


def _head_tensors(family: Family, head: Head, tensors: TensorFiles, rows: list[Row]) -> dict[str, np.ndarray]:
    names = {f"{name}.{leaf}" for name in head.table.values() for leaf in ("weight", "bias")}
    names -= {row.name for row in rows} | set(family.copies)
    return {name: tensors.get(name) for name in sorted(names) if name in tensors.shapes}


def _other_tensors(family: Family, tensors: TensorFiles, rows: list[Row]) -> set[str]:
    """Tensors that the model has no place for and need not have, each of them checked."""
    needed, others = {row.name for row in rows}, set()
    for name in set(tensors.shapes) - needed:
        if name in family.copies:
            original = family.copies[name]
            if original not in tensors.shapes or not np.array_equal(tensors.get(name), tensors.get(original)):
                raise ValueError(
                    f"{name} must be the same as {original}, because the configuration says that they are tied."
                )
        elif name in family.zeros:
            if np.any(tensors.get(name)):
                raise ValueError(f"{name} must be zero: the model has no place for it.")
        elif not family.is_ignored(name) and not family.is_of_a_head(name):
            continue
        others.add(name)
    return others


def write_backbone(
    backbone: Backbone,
    directory: str | os.PathLike,
    *,
    model_type: str | None = None,
    task: Any = None,
    extra: Any = None,
) -> str:
    """Writes a directory that the Transformers library reads.

    Args:
        backbone: The backbone.
        directory: Where to; replaced if it holds such a model, an error if it holds something else.
        model_type: The family to write it as. Default: the first that can express the configuration.
        task: Task whose head is written too; None for an encoder alone, or for a language model.
        extra: Called with the new directory, to write more to it.

    Returns:
        The model type.

    Raises:
        ValueError: If no family, or not the given one, can express the configuration.
        FileExistsError: If the directory exists and holds something else.

    Example:

    >>> write_backbone(backbone, "exported", model_type="bert")
    'bert'
    """
    # decoders have their output projection in the backbone
    generators = {"decoder": "CausalLM", "encoder_decoder": "Seq2SeqLM"}
    task_name = generators.get(getattr(backbone.config, "architecture", None)) if task is None else type(task).__name__
    candidates = all_families() if model_type is None else [get_family(model_type)]
    problems = []
    for family in candidates:
        try:
            values, rows = _describe(family, backbone, task, task_name)
        except (ValueError, KeyError, TypeError) as error:
            problems.append(f"{family.model_type}: {error}")
            continue
        with written_whole(directory, is_huggingface, "model of the Transformers library") as folder:
            (folder / CONFIG_FILE).write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")
            tensors = {row.name: row.write() for row in rows}
            write_tensors(folder / WEIGHTS_FILE, tensors, {"format": "pt"})
            if extra is not None:
                extra(folder)
        return family.model_type
    raise ValueError("The Transformers library has no family here for this model:\n  " + "\n  ".join(problems))


def _describe(family: Family, backbone: Backbone, task: Any, task_name: str | None) -> tuple[dict[str, Any], list[Row]]:
    """Configuration and tensors of a family, if they mean the same model."""
    config = backbone.config
    if not isinstance(config, TransformerConfig):
        raise ValueError(f"it is a Transformer, this is a {type(backbone).__name__}")
    head = _head(family, task_name)
    options = {} if task is None else task.options()
    values = {"model_type": family.model_type, "architectures": [head.architecture], **family.write(config)}
    values |= head.write(options)
    with_head = head.architecture != family.architecture
    plain = table_rows(named_layers(backbone), family.table_of(config))
    reader = ConfigReader(values, {row.name for row in plain})
    differing = _differences(family.read(reader), config)
    if differing:
        raise ValueError(f"it cannot express {differing}")
    _check_count(plain, backbone)
    reader.finish()
    for key, value in head.options(reader).items():
        if options.get(key) != value and not (options.get(key) is None and key == "head_dropout_before"):
            raise ValueError(f"its {head.architecture} has {key}={value!r}, this task {key}={options.get(key)!r}")
    rows = [dataclasses.replace(row, name=family.stored_name(row.name)) if with_head else row for row in plain]
    if with_head and head.table:
        rows += table_rows(head_layers(task), head.table)
    return {**values, "dtype": "float32"}, rows


def _differences(read: TransformerConfig, config: TransformerConfig) -> str:
    """The choices in which two configurations differ and that change what a trained model computes."""
    ours, theirs = _effective(config), _effective(read)
    return ", ".join(f"{key}={ours[key]!r}" for key in ours if ours[key] != theirs[key])


def _effective(config: TransformerConfig) -> dict[str, Any]:
    """All choices, with what a missing one means."""
    values = config.to_dict()
    flat = {key: value for key, value in values.items() if not isinstance(value, dict)}
    for part, choices in values.items():
        if isinstance(choices, dict):
            flat |= {f"{part}.{key}": value for key, value in choices.items()}
    # these matter to training only
    flat = {key: value for key, value in flat.items() if not key.endswith(("dropout", "initializer_range"))}
    if config.position.kind == "relative_bias":
        del flat["max_length"]  # not in their configuration
    bias = config.attention.use_bias
    flat["attention.use_bias"] = sorted(bias) if isinstance(bias, tuple) else bias
    flat["attention.num_key_value_heads"] = config.attention.num_key_value_heads or config.attention.num_heads
    flat["attention.head_dim"] = config.head_dim
    flat["attention.scale"] = round(config.attention.scale or config.head_dim**-0.5, 12)
    flat["position.layout"] = config.position.layout or "half_split"
    flat["position.local_base"] = config.position.local_base or config.position.base
    if config.num_decoder_layers == config.num_layers:
        flat["num_decoder_layers"] = None
    return flat
