"""Tasks of KerasHub: backbone, head and tokenizer, in both directions."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from zoo.config import TransformerConfig
from zoo.huggingface.directory import head_layers
from zoo.huggingface.unsupported_parts import check_options, require_own_classes, written_head
from zoo.keras_hub.directory import OWN_FILES, find_arguments, is_keras_hub, open_backbone, written_backbone
from zoo.keras_hub.heads import get_head, kind_of, name_of_task
from zoo.keras_hub.tokenizers import make_tokenizer, read_tokenizer, require_kind, require_same
from zoo.keras_hub.weights import pairs_of
from zoo.preprocessing.labels import have_same_outputs
from zoo.storage import errors_of_file, means_own, open_h5, quote, read_json, replace_folder
from zoo.storage.user_warnings import warn_user

TASK_FILE, TASK_WEIGHTS_FILE = "task.json", "task.weights.h5"


def load_task(
    task_class: type,
    directory: str | os.PathLike[str],
    *,
    load_weights: bool = True,
    tokenizer: Any = "auto",
    **choices: Any,
) -> Any:
    """Returns a task of a preset of KerasHub.

    Args:
        task_class: Our class, for example `MaskedLM`.
        directory: The preset.
        load_weights: Whether to load the weights.
        tokenizer: The tokenizer; "auto" for that of the preset, None for use on token level.
        **choices: Arguments of the task that replace those of the preset, for example `labels`; and choices of the
            configuration that do not change the weights.

    Raises:
        ValueError: If something in the preset is not supported, is damaged or does not fit, or if the task does not
            support its backbone.

    Example:

    >>> load_task(TextClassifier, "path/to/preset", labels=["bad", "good"]).labels.names
    ['bad', 'good']
    """
    directory = Path(directory)
    fields = {field.name for field in dataclasses.fields(TransformerConfig)}
    overrides = {key: value for key, value in choices.items() if key in fields}
    given = {key: value for key, value in choices.items() if key not in fields}
    opened = open_backbone(directory, load_weights, overrides)
    config, class_name = opened.backbone.config, opened.arguments.class_name
    if config.architecture not in task_class.architectures:
        raise ValueError(
            f"{directory} holds a backbone of the kind {config.architecture!r}, which has no {task_class.__name__}."
        )
    if means_own(tokenizer):
        tokenizer = read_tokenizer(directory)
    name = name_of_task(class_name, task_class.__name__)
    arguments, options = _read_arguments(directory, name), {}
    if arguments is not None:
        head = get_head(class_name, task_class.__name__)
        with errors_of_file(f"{directory / TASK_FILE}: config"):
            options = {**head.options, **head.read(arguments, config)}
            labels = options.get("labels", 0)
            if labels > opened.elements:
                raise ValueError(f"num_classes must be at most {opened.elements}, got {labels}.")
    if task_class.__name__ == "Seq2SeqLM" and class_name == "T5Backbone" and tokenizer is not None:
        options = {"decoder_start_token": tokenizer.pad_token, **options}
    task = task_class(opened.backbone, tokenizer, **{**options, **given})
    if load_weights and head_layers(task):
        # another number of labels is another task
        is_same = "labels" not in given or have_same_outputs(given["labels"], options.get("labels", given["labels"]))
        if arguments is None or not is_same:
            found = "has no weights for the head of this task"
            if arguments is not None:
                found = "has the head of this task for other labels than those given"
            warn_user(f"{directory} {found}: it starts untrained.")
        else:
            theirs = _make_theirs(name, opened.theirs, head.write(task.options()))
            _load_head(theirs, directory / TASK_WEIGHTS_FILE)
            for pair in _pairs(head_layers(task), theirs, head.table, name):
                pair.read(pair.theirs)
    return task


def task_of(directory: str | os.PathLike[str]) -> str:
    """Returns the name of our task that a preset is one of.

    Args:
        directory: The preset.

    Raises:
        ValueError: If it holds a backbone alone, or a task that is not known here.

    Example:

    >>> task_of("path/to/preset")
    'TextClassifier'
    """
    path = Path(directory) / TASK_FILE
    name = read_json(path).get("class_name") if path.is_file() else None
    found = kind_of(name)
    if found is None:
        raise ValueError(f"task must be given: {directory}, a preset of KerasHub, does not say it.")
    return found


def _read_arguments(directory: Path, name: str) -> dict[str, Any] | None:
    """The arguments of the task of a preset; None if it has none, or one of another kind."""
    path = directory / TASK_FILE
    if not path.is_file():
        return None
    values = read_json(path)
    if values.get("class_name") != name:
        return None
    arguments = values.get("config")
    if not isinstance(arguments, dict):
        raise ValueError(f"{path}: config must be an object, got {quote(arguments)}.")
    return arguments


def _load_head(theirs: Any, path: Path) -> None:
    """Gives a task of KerasHub the weights of its head."""
    open_h5(path)
    try:
        theirs.load_task_weights(str(path))
    except Exception as error:  # of HDF5, of Keras, of the backend: their kinds are many
        raise ValueError(f"{path} does not fit the head: {str(error).splitlines()[0]}") from error


def save_task(task: Any, directory: str | os.PathLike[str], *, class_name: str | None = None) -> str:
    """Writes a task as a preset that `from_preset` of KerasHub's tasks reads.

    Label names and generation settings are not written, because KerasHub has neither.

    Args:
        task: The task.
        directory: The directory to write. A preset that it holds is replaced.
        class_name: KerasHub's class of the backbone. Default: the first that can express the task.

    Returns:
        Name of KerasHub's backbone class.

    Raises:
        ValueError: If no supported class of KerasHub, or not the given one, can express the task or its tokenizer; or
            if the task is quantized or has a class of your own.
        FileExistsError: If the directory exists and holds something else.

    Example:

    >>> save_task(model, "preset")
    'BertBackbone'
    """
    kind, options, tokenizer = type(task).__name__, task.options(), task.tokenizer
    require_own_classes(task.backbone, task)
    check_options(task)

    def check(class_name: str) -> None:
        head = get_head(class_name, kind)
        for key, value in head.options.items():
            if options.get(key) != value:
                name = name_of_task(class_name, kind)
                raise ValueError(f"a {name} there has {key}={value!r}, this task {key}={options.get(key)!r}")
        head.write(options)
        if tokenizer is not None:
            require_kind(tokenizer, class_name)

    arguments = find_arguments(task.backbone.config, class_name, check)
    name, head = name_of_task(arguments.class_name, kind), get_head(arguments.class_name, kind)
    preprocessor = (
        None if tokenizer is None else _preprocessor(name, task, make_tokenizer(tokenizer, arguments.class_name))
    )
    theirs = _make_theirs(name, written_backbone(task.backbone, arguments), head.write(options), preprocessor)
    for pair in _pairs(written_head(task), theirs, head.table, name):
        pair.write()
    with replace_folder(directory, is_keras_hub, "preset of KerasHub", OWN_FILES) as folder:
        theirs.save_to_preset(str(folder))
        if tokenizer is not None:
            require_same(tokenizer, arguments.class_name, folder)
    return arguments.class_name


def _make_theirs(name: str, backbone: Any, arguments: dict[str, Any], preprocessor: Any = None) -> Any:
    import keras_hub

    return getattr(keras_hub.models, name)(backbone=backbone, preprocessor=preprocessor, **arguments)


def _preprocessor(name: str, task: Any, tokenizer: Any) -> Any:
    import keras_hub

    options, longest = task.options(), task.longest
    if name.endswith("Seq2SeqLM"):
        arguments = {"encoder_sequence_length": longest, "decoder_sequence_length": longest}
    else:
        arguments = {"sequence_length": longest}
    if options.get("add_start_token") is not None:
        arguments["add_start_token"] = options["add_start_token"]
    return getattr(keras_hub.models, name).preprocessor_cls(tokenizer, **arguments)


def _pairs(layers: dict[str, Any], theirs: Any, table: Any, name: str) -> list[Any]:
    """The weights of the heads."""
    outside = {id(weight) for weight in theirs.backbone.weights}
    variables = {weight.path: weight for weight in theirs.weights if id(weight) not in outside}
    return pairs_of(layers, table, variables, name)
