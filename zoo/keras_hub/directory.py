"""Reading and writing the presets of KerasHub, through KerasHub."""

import dataclasses
import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zoo.backbones.backbone import Backbone
from zoo.config import TransformerConfig, replace_choices, require_weights
from zoo.config.checks import require
from zoo.huggingface.unsupported_parts import require_own_classes
from zoo.huggingface.weights import named_layers
from zoo.huggingface.writing import effective
from zoo.keras_hub.family import Arguments, all_backbone_classes, get_backbone_class
from zoo.keras_hub.weights import Pair, pairs_of
from zoo.storage import H5Weights, errors_of_file, open_h5, quote, read_json, replace_folder, to_dataclass
from zoo.storage.checkpoint import read_config_file
from zoo.storage.deferred import Deferred, deferred, intercept_assignments, shapes_only

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.weights.h5"
# the files that the library has for a model and its preprocessor
OWN_FILES = (
    *(CONFIG_FILE, WEIGHTS_FILE, "metadata.json", "task.json", "task.weights.h5", "preprocessor.json"),
    *("tokenizer.json", "assets/tokenizer/vocabulary.*", "assets/tokenizer/merges.txt"),
)
# arguments of every layer of Keras
_OF_KERAS = ("name", "trainable", "dtype")


def is_keras_hub(directory: str | os.PathLike[str]) -> bool:
    """Returns whether a directory holds a preset of KerasHub: a `config.json` with a `registered_name` of KerasHub.

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


def load_backbone(directory: str | os.PathLike[str], *, load_weights: bool = True, **overrides: Any) -> Backbone:
    """Returns the backbone of a preset of KerasHub.

    Args:
        directory: The preset.
        load_weights: Whether to load the weights. Without them their file need not be there.
        **overrides: Replaced choices that do not change the weights, see `zoo.config.replace_choices`. Most presets of
            models without a table of positions do not name their `max_length`.

    Raises:
        ValueError: If its class is not supported, or a file is damaged or does not fit.

    Example:

    >>> load_backbone("path/to/preset").config.num_layers
    12
    """
    return open_backbone(directory, load_weights, overrides).backbone


@dataclasses.dataclass(frozen=True)
class Opened:
    """A backbone that was read, and that of KerasHub.

    Args:
        backbone: Ours.
        arguments: The arguments of theirs.
        theirs: Theirs, whose weights have no values; None where no weights were loaded.
        elements: How many numbers its file holds; infinite where it has none.
    """

    backbone: Backbone
    arguments: Arguments
    theirs: Any
    elements: float


def open_backbone(directory: str | os.PathLike[str], load_weights: bool, overrides: dict[str, Any]) -> Opened:
    """Returns the backbone of a preset and what it was read from, see `load_backbone`."""
    directory = Path(directory)
    path = directory / CONFIG_FILE
    values = read_config_file(directory)
    with errors_of_file(path):
        kind = get_backbone_class(values.get("class_name"))
        given = values.get("config")
        if not isinstance(given, dict):
            raise ValueError(f"config must be an object, got {quote(given)}.")
    plain = {key: value for key, value in given.items() if key not in _OF_KERAS}
    arguments = to_dataclass(kind, plain, f"{path}: config")
    weights = open_h5(directory / WEIGHTS_FILE) if load_weights or (directory / WEIGHTS_FILE).exists() else None
    held = math.inf if weights is None else weights.elements
    with errors_of_file(path):
        layers = arguments.num_layers
        require(layers <= held, "config.num_layers", layers, f"at most {held}, how many numbers {WEIGHTS_FILE} holds")
        config = arguments.config()
        if weights is not None:
            require_weights(config, weights.elements, str(weights.path))
    replaced = replace_choices(config, overrides, load_weights=load_weights)
    theirs = None
    with deferred(directory.name) as scope:
        with errors_of_file(path):
            backbone = Backbone.from_config(replaced)
        if load_weights:
            with shapes_only():
                theirs = make_theirs(arguments)
            weights.check_shapes(theirs, str(path))
            _read_through(theirs, weights, _pairs(backbone, theirs, arguments), scope)
    return Opened(backbone, arguments, theirs, held)


def _read_through(theirs: Any, weights: H5Weights, pairs: list[Pair], scope: Deferred) -> None:
    """Reads a file as KerasHub does, each tensor into ours at once: theirs never have values."""
    with intercept_assignments(scope, [(pair.theirs, pair.read) for pair in pairs]), warnings.catch_warnings():
        # Keras finds the same layers a second time in lists of the model, and no weights for them there
        warnings.filterwarnings("ignore", message="Skipping nested container")
        weights.load_into(theirs)


def _pairs(backbone: Backbone, theirs: Any, arguments: Arguments) -> list[Pair]:
    variables = arguments.variables(theirs)
    return pairs_of(named_layers(backbone), arguments.table, variables, arguments.class_name)


def save_backbone(backbone: Backbone, directory: str | os.PathLike[str], *, class_name: str | None = None) -> str:
    """Writes a preset that `keras_hub.models.Backbone.from_preset` reads.

    Args:
        backbone: The backbone.
        directory: The directory to write. A preset that it holds is replaced.
        class_name: KerasHub's class of the backbone. Default: the first that can express the model.

    Returns:
        Name of KerasHub's class.

    Raises:
        ValueError: If no supported class of KerasHub, or not the given one, can express the model; or if the model is
            quantized or has a class of your own.
        FileExistsError: If the directory exists and holds something else.

    Example:

    >>> save_backbone(model.backbone, "preset")
    'BertBackbone'
    """
    require_own_classes(backbone)
    arguments = find_arguments(backbone.config, class_name)
    theirs = written_backbone(backbone, arguments)
    with replace_folder(directory, is_keras_hub, "preset of KerasHub", OWN_FILES) as folder:
        theirs.save_to_preset(str(folder))
    return arguments.class_name


def written_backbone(backbone: Backbone, arguments: Arguments) -> Any:
    """Returns a backbone of KerasHub with the weights of ours.

    Args:
        backbone: Ours.
        arguments: The arguments of theirs.
    """
    theirs = make_theirs(arguments)
    for pair in _pairs(backbone, theirs, arguments):
        pair.write(backbone.config.position.offset)
    return theirs


def make_theirs(arguments: Arguments) -> Any:
    """Returns a new backbone of KerasHub in single precision.

    Args:
        arguments: Its arguments.
    """
    import keras_hub

    kind = getattr(keras_hub.models, arguments.class_name)
    return kind(**dataclasses.asdict(arguments), dtype="float32")


def find_arguments(
    config: Any, class_name: str | None = None, check: Callable[[str], None] = lambda class_name: None
) -> Arguments:
    """Returns the arguments of the first class of KerasHub that expresses a configuration.

    Args:
        config: The configuration.
        class_name: The only class to be tried; None for all.
        check: Called with the name of a class, raises a ValueError if it is not to be taken.

    Raises:
        ValueError: If there is none, saying why each is not.
    """
    if not isinstance(config, TransformerConfig):
        raise ValueError(f"KerasHub has no recurrent models, got a {type(config).__name__}.")
    problems = []
    for kind in all_backbone_classes() if class_name is None else [get_backbone_class(class_name)]:
        try:
            arguments = kind.of(config)
            found = arguments.config()
        except (ValueError, TypeError, KeyError) as error:
            problems.append(f"{kind.class_name}: {error}")
            continue
        ours, theirs = _comparable(config), _comparable(found)
        differing = ", ".join(f"{key}={ours[key]!r}" for key in ours if ours[key] != theirs.get(key))
        try:
            if differing:
                raise ValueError(f"it cannot express {differing}")
            check(kind.class_name)
        except ValueError as error:
            problems.append(f"{kind.class_name}: {error}")
            continue
        return arguments
    raise ValueError("KerasHub has no class here for this model:\n  " + "\n  ".join(problems))


def _comparable(config: TransformerConfig) -> dict[str, Any]:
    """What a trained model is bound to, but for what a preset of KerasHub does not say."""
    # rows of the table that no position looks up are left out
    left = {"position.offset", *(["max_length"] if config.position.kind == "rotary" else [])}
    return {key: value for key, value in effective(config).items() if key not in left}
