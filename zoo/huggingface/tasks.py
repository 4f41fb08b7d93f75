"""Tasks of models of the Transformers library, head included, in both directions."""

import contextlib
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from zoo.config import TransformerConfig, renamed_in_errors
from zoo.huggingface.card import CARD_FILE, model_card
from zoo.huggingface.cross_encoder import write_cross_encoder
from zoo.huggingface.directory import head_layers, load_task_parts
from zoo.huggingface.generation import GENERATION_FILE, read_generation, read_settings, write_generation
from zoo.huggingface.sentence import assign_projections, read_sentence_options, read_similarity, write_sentence_options
from zoo.huggingface.unsupported_parts import check_options
from zoo.huggingface.writing import describe_task, write_backbone
from zoo.preprocessing.labels import have_same_outputs
from zoo.storage import errors_of_file, means_own, require_type
from zoo.storage.checkpoint import CONFIG_FILE, read_config_file
from zoo.storage.user_warnings import warn_user
from zoo.tokenizers import load_huggingface, save_huggingface
from zoo.tokenizers.huggingface import has_huggingface_tokenizer

# our tasks that write texts
GENERATORS = ("CausalLM", "Seq2SeqLM")
# ids of special tokens; those that end a text are in the `generation` of a task
_WITHOUT_END = ("bos_token_id", "pad_token_id", "decoder_start_token_id")


def load_task(
    task_class: type,
    directory: str | os.PathLike[str],
    *,
    load_weights: bool = True,
    tokenizer: Any = "auto",
    **choices: Any,
) -> Any:
    """Returns a task of a model of the Transformers library.

    Args:
        task_class: Our class, for example `MaskedLM`.
        directory: The directory, with `config.json` and safetensors files.
        load_weights: Whether to load the weights. Without them the safetensors files need not be there.
        tokenizer: The tokenizer; "auto" for that of the directory, if it has one, and None for use on token level. With
            the tokenizer of the directory, the decoder of an encoder-decoder starts from the token that the
            configuration names (T5: padding token, BART: end token).
        **choices: Arguments of the task that replace those of the model, for example `labels`; and choices of the
            configuration that do not change the weights, for example `max_length`.

    Raises:
        ValueError: If something in the directory is not supported, damaged or does not fit.

    Example:

    >>> load_task(MaskedLM, "path/to/bert-base-uncased").backbone.config.num_layers
    12
    """
    fields = {field.name for field in dataclasses.fields(TransformerConfig)}
    overrides = {key: value for key, value in choices.items() if key in fields}
    given = {key: value for key, value in choices.items() if key not in fields}
    if means_own(tokenizer):
        tokenizer = load_huggingface(directory) if has_huggingface_tokenizer(directory) else None
    parts = load_task_parts(directory, task_class.__name__, load_weights, **overrides)
    backbone, options = parts.backbone, parts.options
    if task_class.__name__ == "TextEmbedder":
        longest = None if "sequence_length" in given else backbone.config.max_length
        of_files = read_sentence_options(Path(directory), longest, tokenizer, prompts="prompts" not in given)
        options = {**options, **of_files}
        backbone.origin = dataclasses.replace(backbone.origin, similarity=read_similarity(Path(directory)))
    has_start = backbone.config.architecture == "encoder_decoder"
    if tokenizer is not None and has_start:
        options = {**options, **_start_of_decoding(tokenizer, Path(directory))}
    if task_class.__name__ in GENERATORS and "generation" not in given:
        generation = read_generation(Path(directory), backbone.config.vocabulary_size, has_start, tokenizer)
        options = {**options, "generation": generation}
    with contextlib.ExitStack() as stack:
        if not given:  # else a choice may not be from the file
            stack.enter_context(errors_of_file(Path(directory) / CONFIG_FILE))
            stack.enter_context(renamed_in_errors(parts.names))
        task = task_class(backbone, tokenizer, **{**options, **given})
    if load_weights:
        # another number of labels is another task: its head starts untrained
        same = "labels" not in given or have_same_outputs(given["labels"], options["labels"])
        parts.head.assign(head_layers(task), fresh=not same)
        if options.get("projections") and "projections" not in given:
            assign_projections(task, Path(directory))
    return task


def _start_of_decoding(tokenizer: Any, directory: Path) -> dict[str, Any]:
    """The option of a task that names the token that decoding starts with; none for another tokenizer than theirs."""
    path, settings = read_settings(directory)
    start_id = settings.get("decoder_start_token_id")
    if start_id is None:
        path, values = directory / CONFIG_FILE, read_config_file(directory)
        start_id = values.get("decoder_start_token_id", values.get("pad_token_id"))
    require_type(start_id, int | None, f"{path}: decoder_start_token_id or pad_token_id")
    if start_id is None or tokenizer.start_id == start_id:
        return {}
    try:
        own = load_huggingface(directory)
    except FileNotFoundError:
        return {}
    if not 0 <= start_id < own.vocabulary_size:
        raise ValueError(
            f"{path}: decoder_start_token_id must be an id of the tokenizer, which has "
            f"{own.vocabulary_size} tokens, got {start_id}."
        )
    same = own.get_vocabulary() == tokenizer.get_vocabulary()
    return {"decoder_start_token": tokenizer.id_to_token(start_id)} if same else {}


def save_task(
    task: Any,
    directory: str | os.PathLike[str],
    *,
    model_type: str | None = None,
    name: str | None = None,
    license: str | None = None,
    base_model: str | None = None,
    dtype: str | None = None,
) -> str:
    """Writes a task as a model of the Transformers library, with the files of its tokenizer.

    `AutoTokenizer` of the library then adds the same tokens around a text as the task; see
    `zoo.tokenizers.save_huggingface`. A `TextEmbedder` becomes a model of the Sentence Transformers library. The
    `generation` of a generative task becomes `generation_config.json`. `README.md` is the model card. A warning names
    options that the library cannot store (windows of long texts, how words are split). The last linear map of a head is
    divided by the temperature of the task, so that the library computes the same probabilities.

    Args:
        task: The task.
        directory: The directory to write. A model of the library that it holds is replaced.
        model_type: The model family of the files. Default: that which the task was read from, if it can express it,
            else the first that can.
        name: Name by which the model is loaded in the model card. Default: the name of the directory.
        license: Identifier of the licence, such as "apache-2.0", for the model card.
        base_model: Name on the hub of the model that this one was made from, for the model card.
        dtype: Dtype of the weights in the files, see `write_backbone`.

    Returns:
        The model type.

    Raises:
        ValueError: If no family, or not the given one, can express the task; if the library cannot reproduce its
            tokenizer or `generation`; or if the task has thresholds.
        FileExistsError: If the directory exists and holds something else.

    Example:

    >>> save_task(model, "exported")
    'bert'
    """

    check_options(task)
    generation = write_generation(task) if type(task).__name__ in GENERATORS else None

    def write_more(folder: Path, dtype: str) -> None:
        config = read_config_file(folder)
        if generation is not None:
            # else the library would look for them here alone
            ids = {key: config.get(key) for key in _WITHOUT_END if config.get(key) is not None}
            text = json.dumps({**ids, **generation}, indent=2, sort_keys=True) + "\n"
            (folder / GENERATION_FILE).write_text(text, encoding="utf-8")
        if task.tokenizer is not None:
            _save_tokenizer(task, folder)
        if type(task).__name__ == "TextEmbedder":
            write_sentence_options(folder, task, dtype)
        elif task.options().get("pairs"):
            write_cross_encoder(folder, task.options())
        architecture = config["architectures"][0]
        _warn_about_ids(task, {**config, **(generation or {})})
        title = Path(os.path.abspath(directory)).name if name is None else name
        card = model_card(task, title, architecture=architecture, license=license, base_model=base_model)
        (folder / CARD_FILE).write_text(card, encoding="utf-8")

    return write_backbone(
        task.backbone,
        directory,
        model_type=model_type,
        task=task,
        dtype=dtype,
        extra=write_more,
    )


def write_text_files(task: Any, folder: Path) -> dict[str, Any]:
    """Writes what programs beside the Transformers library read of a model, too: all but its weights.

    These are the files of the tokenizer with the chat template, `config.json`, and for a task that writes texts
    `generation_config.json`. Where no family of the library can express the model, `config.json` has its sizes alone.

    Args:
        task: A task with a tokenizer.
        folder: The folder.

    Returns:
        The content of `generation_config.json`; nothing for a task that writes no texts.

    Raises:
        ValueError: If the library cannot reproduce the tokenizer or the `generation`.
    """
    writes_texts = type(task).__name__ in GENERATORS
    generation = write_generation(task) if writes_texts else {}
    _save_tokenizer(task, folder)
    files = {CONFIG_FILE: describe_task(task), **({GENERATION_FILE: generation} if writes_texts else {})}
    for name, values in files.items():
        (folder / name).write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return generation


def _warn_about_ids(task: Any, values: dict[str, Any]) -> None:
    """Names the ids that the library needs and that neither a tokenizer nor the files of the model have."""
    kind, architecture = type(task).__name__, task.backbone.config.architecture
    needed = {
        "decoder_start_token_id": kind == "Seq2SeqLM" and values.get("bos_token_id") is None,
        "pad_token_id": kind == "TextClassifier" and architecture == "decoder",
    }
    missing = [key for key, is_needed in needed.items() if is_needed and values.get(key) is None]
    if missing:
        warn_user(
            f"The Transformers library needs {', '.join(missing)}, which a model without a tokenizer does not have: "
            "write it with one, or set it there."
        )


def _save_tokenizer(task: Any, folder: Path) -> None:
    tokenizer, special = task.tokenizer, task.preprocessor.special_tokens()
    start, end = (
        [] if index is None else [tokenizer.id_to_token(index)] for index in (special["start_id"], special["end_id"])
    )
    names = ["input_ids", "attention_mask"]
    if task.backbone.config.embedding.num_segments > 1:
        names.insert(1, "token_type_ids")
    save_huggingface(
        tokenizer,
        folder,
        before=start,
        after=end,
        pair_separators=task.options().get("pair_separators", 1),
        max_length=task.longest,
        input_names=names,
    )
