"""Reading and writing the presets of KerasHub, through KerasHub."""

import dataclasses
import os
import warnings
from pathlib import Path
from typing import Any

from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.config import TransformerConfig, require_weights
from zoo.huggingface.weights import leaves_of, named_layers, variable_of
from zoo.huggingface.writing import effective
from zoo.keras_hub.family import Arguments, all_backbone_classes, get_backbone_class
from zoo.keras_hub.tokenizers import write_tokenizer
from zoo.storage import naming, open_h5, quote, read_json, replace_folder, to_dataclass
from zoo.storage.checkpoint import read_config_file

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.weights.h5"
# arguments of every layer of Keras
_OF_KERAS = ("name", "trainable", "dtype")


def is_keras_hub(directory: str | os.PathLike) -> bool:
    """Whether a directory holds a preset of KerasHub: a `config.json` with a `registered_name` of it.

    Args:
        directory: The directory.
    """
    path = Path(directory) / CONFIG_FILE
    if not path.is_file():
        return False
    try:
        return str(read_json(path).get("registered_name")).startswith(("keras_hub>", "keras_nlp>"))
    except ValueError:
        return False


def load_backbone(directory: str | os.PathLike, *, load_weights: bool = True, **overrides: Any) -> Backbone:
    """Returns the backbone of a preset of KerasHub.

    Args:
        directory: The preset.
        load_weights: Whether to load the weights.
        **overrides: Replaced choices that change no weights: `dropout`, and `max_length` of models with rotary
            positions, which a preset does not name.

    Raises:
        ValueError: If its class is not known here, or a file is damaged or does not fit.

    Example:

    >>> load_backbone("path/to/preset").config.num_layers
    12
    """
    directory = Path(directory)
    path = directory / CONFIG_FILE
    values = read_config_file(directory)
    with naming(path):
        kind = get_backbone_class(values.get("class_name"))
        given = values.get("config")
        if not isinstance(given, dict):
            raise ValueError(f"config must be an object, got {quote(given)}.")
    plain = {key: value for key, value in given.items() if key not in _OF_KERAS}
    arguments = to_dataclass(kind, plain, f"{path}: config")
    weights = open_h5(directory / WEIGHTS_FILE)
    with naming(path):
        config = arguments.config()
        require_weights(config, weights.elements, str(weights.path))
        allowed = ["dropout"] + ["max_length"] * (config.position.kind == "rotary")
        for key in overrides:
            if key not in allowed:
                raise ValueError(f"Overrides of a model with weights must be among {allowed}, got {key!r}.")
        backbone = Backbone.from_config(dataclasses.replace(config, **overrides))
    if load_weights:
        theirs = _theirs(arguments)
        with warnings.catch_warnings():
            # Keras finds the same layers a second time in lists of the model, and no weights for them there
            warnings.filterwarnings("ignore", message="Skipping nested container")
            weights.load_into(theirs)
        for _, ours, variable in _pairs(backbone, theirs, kind):
            # theirs have an axis for the heads
            ours.assign(ops.convert_to_numpy(variable).reshape(ours.shape))
    return backbone


def save_backbone(backbone: Backbone, directory: str | os.PathLike, *, tokenizer: Any = None) -> str:
    """Writes a preset that `keras_hub.models.Backbone.from_preset` reads.

    Args:
        backbone: The backbone.
        directory: Where to; replaced if it holds such a preset, an error if it holds something else.
        tokenizer: The tokenizer, written too.

    Returns:
        Name of the class of KerasHub.

    Raises:
        ValueError: If no class of KerasHub that is known here can express the model, or it is quantized.
        FileExistsError: If the directory exists and holds something else.

    Example:

    >>> save_backbone(model.backbone, "preset", tokenizer=model.tokenizer)
    'BertBackbone'
    """
    arguments = _arguments_for(backbone.config)
    kind = type(arguments)
    theirs = _theirs(arguments)
    for name, ours, variable in _pairs(backbone, theirs, kind):
        value = ops.convert_to_numpy(ours)
        if name.endswith(".position"):
            value = value[backbone.config.position.offset :]
        variable.assign(value.reshape(variable.shape))
    with replace_folder(directory, is_keras_hub, "preset of KerasHub") as folder:
        theirs.save_to_preset(str(folder))
        if tokenizer is not None:
            write_tokenizer(tokenizer, kind.class_name, folder)
    return kind.class_name


def _theirs(arguments: Arguments) -> Any:
    """A backbone of KerasHub in single precision."""
    import keras_hub

    kind = getattr(keras_hub.models, arguments.class_name)
    return kind(**dataclasses.asdict(arguments), dtype="float32")


def _arguments_for(config: Any) -> Arguments:
    """The arguments of the first class that expresses a configuration."""
    if not isinstance(config, TransformerConfig):
        raise ValueError(f"KerasHub has no recurrent models, got a {type(config).__name__}.")
    problems = []
    for kind in all_backbone_classes():
        try:
            arguments = kind.of(config)
            found = arguments.config()
        except (ValueError, TypeError, KeyError) as error:
            problems.append(f"{kind.class_name}: {error}")
            continue
        ours, theirs = _comparable(config), _comparable(found)
        differing = ", ".join(f"{key}={ours[key]!r}" for key in ours if ours[key] != theirs.get(key))
        if not differing:
            return arguments
        problems.append(f"{kind.class_name}: it cannot express {differing}")
    raise ValueError("KerasHub has no class here for this model:\n  " + "\n  ".join(problems))


def _comparable(config: TransformerConfig) -> dict[str, Any]:
    """What a trained model is bound to, but for what a preset of KerasHub does not say."""
    # rows of the table that no position looks up are left out
    left = {"position.offset", *(["max_length"] if config.position.kind == "rotary" else [])}
    return {key: value for key, value in effective(config).items() if key not in left}


def _pairs(backbone: Backbone, theirs: Any, kind: type[Arguments]) -> list[tuple[str, Any, Any]]:
    """The names of our layers, their variables and those of KerasHub; none is left over on either side."""
    variables = {variable.path: variable for variable in theirs.weights}
    layers = named_layers(backbone)
    pairs, used = [], set()
    for pattern, path in kind.table.items():
        before, _, after = pattern.partition("{}")
        for name in [name for name in layers if name.startswith(before) and name.endswith(after)]:
            number = name[len(before) : len(name) - len(after)] if after else ""
            if (after and not number.isdigit()) or (not after and name != pattern):
                continue
            place = path.replace("{}", number)
            for leaf in leaves_of(name, layers[name]):
                found = place if place in variables else f"{place}/{leaf}"
                if found not in variables:
                    raise ValueError(f"{kind.class_name} has no place for the weights of {name} ({leaf}).")
                pairs.append((name, variable_of(layers[name], leaf), variables[found]))
                used.add(found)
            layers = {other: layer for other, layer in layers.items() if other != name}
    left = [*sorted(layers), *sorted(set(variables) - used)]
    if left:
        raise ValueError(f"{kind.class_name} and the backbone must have the same weights; {', '.join(left)} is left.")
    return pairs
