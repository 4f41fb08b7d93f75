"""Tasks of models of the Transformers library, head included, in both directions."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from zoo.config import TransformerConfig
from zoo.huggingface.directory import head_layers, load_task_parts
from zoo.huggingface.files import CONFIG_FILE, read_json
from zoo.huggingface.sentence import read_sentence_options, write_sentence_options
from zoo.huggingface.writing import write_backbone


def load_task(
    task_class: type, directory: str | os.PathLike, *, load_weights: bool = True, tokenizer: Any = None, **choices: Any
) -> Any:
    """Returns a task of a model of the Transformers library.

    Args:
        task_class: Our class, for example `MaskedLM`.
        directory: The directory, with `config.json` and safetensors files.
        load_weights: Whether to load the weights.
        tokenizer: The tokenizer; None for use on token level. An encoder-decoder gets that of the directory with the
            start token that the configuration names (T5: the padding token, BART: the end token).
        **choices: Arguments of the task in place of those that the model has, for example `labels`; and replaced
            choices of the configuration that change no weights, for example `max_length`.

    Raises:
        ValueError: If something in the directory is not supported, damaged or does not fit.

    Example:

    >>> load_task(MaskedLM, "path/to/bert-base-uncased").backbone.config.num_layers
    12
    """
    fields = {field.name for field in dataclasses.fields(TransformerConfig)}
    overrides = {key: value for key, value in choices.items() if key in fields}
    given = {key: value for key, value in choices.items() if key not in fields}
    backbone, options, head = load_task_parts(directory, task_class.__name__, load_weights, **overrides)
    if task_class.__name__ == "TextEmbedder":
        options = {**options, **read_sentence_options(Path(directory))}
    if tokenizer is not None and backbone.config.architecture == "encoder_decoder":
        tokenizer = _with_start_token(tokenizer, Path(directory))
    task = task_class(backbone, tokenizer, **{**options, **given})
    if load_weights:
        # another number of labels is another task: its head starts untrained
        head.assign(head_layers(task), fresh="labels" in given and task.options()["labels"] != options.get("labels"))
    return task


def _with_start_token(tokenizer: Any, directory: Path) -> Any:
    """The tokenizer of the directory with the token that decoding starts with; another tokenizer as it is."""
    from zoo.tokenizers import load_huggingface

    values = read_json(directory / CONFIG_FILE)
    start_id = values.get("decoder_start_token_id", values.get("pad_token_id"))
    if start_id is None or tokenizer.start_id == start_id:
        return tokenizer
    try:
        changed = load_huggingface(directory, start_token=tokenizer.id_to_token(start_id))
    except FileNotFoundError:
        return tokenizer
    return changed if changed.get_vocabulary() == tokenizer.get_vocabulary() else tokenizer


def save_task(task: Any, directory: str | os.PathLike, *, model_type: str | None = None) -> str:
    """Writes a task as a model of the Transformers library.

    The tokenizer is written to `tokenizer/`, in the form of this library. A `TextEmbedder` becomes a model of the
    Sentence Transformers library.

    Args:
        task: The task.
        directory: Where to; replaced if it holds such a model, an error if it holds something else.
        model_type: The family to write it as. Default: the first that can express it.

    Returns:
        The model type.

    Raises:
        ValueError: If no family, or not the given one, can express it.
        FileExistsError: If the directory exists and holds something else.

    Example:

    >>> save_task(model, "exported")
    'bert'
    """

    def write_more(folder: Path) -> None:
        if task.tokenizer is not None:
            task.tokenizer.save(folder / "tokenizer")
        if type(task).__name__ == "TextEmbedder":
            write_sentence_options(folder, task.options(), task.backbone.config.hidden_dim)

    return write_backbone(
        task.backbone,
        directory,
        model_type=model_type,
        task=task,
        extra=write_more,
    )
