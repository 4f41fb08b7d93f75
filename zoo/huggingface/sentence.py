"""What the Sentence Transformers library stores with a model: how hidden states become the vector of a text."""

from pathlib import Path
from typing import Any

from zoo.config.checks import require
from zoo.huggingface.sentence_modules import (
    EMBEDDER,
    LENGTH_FILE,
    MODEL_FILE,
    MODULES_FILE,
    read_model_settings,
    read_modules,
    write_json,
    write_modules,
)
from zoo.huggingface.weights import Row, check_rows, table_rows
from zoo.huggingface.writing import WRITTEN
from zoo.storage import (
    errors_of_file,
    folder_inside,
    open_tensor_file,
    quote,
    quote_key,
    read_json,
    require_type,
    write_tensors,
)
from zoo.storage.checkpoint import WEIGHTS_FILE

TOKENIZER_FILE = "tokenizer_config.json"
# our pooling, their name, and the flag that stood for it before version 6
POOLINGS = {
    "first": ("cls", "pooling_mode_cls_token"),
    "mean": ("mean", "pooling_mode_mean_tokens"),
    "mean_sqrt": ("mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"),
    "weighted_mean": ("weightedmean", "pooling_mode_weightedmean_tokens"),
    "max": ("max", "pooling_mode_max_tokens"),
    "last": ("lasttoken", "pooling_mode_lasttoken"),
}
_ACTIVATIONS = {
    "identity": "torch.nn.modules.linear.Identity",
    "tanh": "torch.nn.modules.activation.Tanh",
    "relu": "torch.nn.modules.activation.ReLU",
    "gelu": "torch.nn.modules.activation.GELU",
    "silu": "torch.nn.modules.activation.SiLU",
    "sigmoid": "torch.nn.modules.activation.Sigmoid",
}
_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
# keys of modules after pooling that say which vectors they read and write
_PLACES = ("module_input_name", "module_output_name")
_PLACE = "sentence_embedding"


def read_sentence_options(
    directory: Path, longest: int | None = None, tokenizer: Any = None, *, prompts: bool = True
) -> dict[str, Any]:
    """Returns the arguments of a `TextEmbedder` that a directory names; none where it is no sentence model.

    Args:
        directory: The directory, with `modules.json` next to the model.
        longest: Longest sequence of the model; None where another is chosen than that of the files.
        tokenizer: The tokenizer of the task; None for use on token level.
        prompts: Whether to read the prompts.

    Raises:
        ValueError: If a module or a way of pooling is not supported, texts are lower-cased that the tokenizer does not
            lower-case, the default prompt is none of the prompts, or pooling leaves them out.
    """
    modules = read_modules(directory)
    if not modules:
        return {}
    path = directory / MODULES_FILE
    kinds = [module.kind for module in modules]
    count = kinds.count("Dense")
    if kinds[: 2 + count] != ["Transformer", "Pooling", *["Dense"] * count] or kinds[2 + count :] not in (
        [],
        ["Normalize"],
    ):
        raise ValueError(
            f"{path}: type must be Transformer, Pooling, any number of Dense, then Normalize or nothing, "
            f"got {quote(kinds)}."
        )
    last = Path(directory, modules[-1].path)
    if kinds[-1] == "Normalize" and not last.is_dir():  # before version 6 it had no files
        modules = modules[:-1]
    folders = [folder_inside(directory, each.path, f"{path}: [{i}].path") for i, each in enumerate(modules) if i]
    pooling, with_prompts = _read_pooling(folders[0] / "config.json")
    projections = [_read_projection(folder) for folder in folders[1 : 1 + count]]
    for folder in folders[1 + count :]:
        if (folder / "config.json").is_file():
            _require_place(read_json(folder / "config.json"), folder / "config.json")
    options: dict[str, Any] = {"pooling": pooling, "projections": projections, "normalize": kinds[-1] == "Normalize"}
    options |= _read_length(directory, longest, tokenizer)
    if prompts and (directory / MODEL_FILE).is_file():
        options |= _read_prompts(directory / MODEL_FILE)
        if any(options["prompts"].values()) and not with_prompts:
            raise ValueError(
                f"{folders[0] / 'config.json'}: include_prompt must be true with prompts ({MODEL_FILE}), which are "
                "pooled over like other tokens here, got False: give others, or prompts={} for none."
            )
    return options


def _read_prompts(path: Path) -> dict[str, Any]:
    values = read_json(path)
    prompts, default = values.get("prompts", {}), values.get("default_prompt_name")
    require_type(prompts, dict[str, str], f"{path}: prompts")
    require_type(default, str | None, f"{path}: default_prompt_name")
    if default is not None and default not in prompts:
        raise ValueError(f"{path}: default_prompt_name must be one of the prompts, got {quote(default)}.")
    return {"prompts": prompts, "default_prompt": default}


def read_similarity(directory: Path) -> str | None:
    """Returns by what the library compares the vectors of a model; None where its files do not say it.

    Args:
        directory: The directory.

    Raises:
        ValueError: If it is none of the ways that the library has.
    """
    name = read_model_settings(directory).get("similarity_fn_name")
    key = f"{directory / MODEL_FILE}: similarity_fn_name"
    require(name in (None, *_SIMILARITIES), key, name, f"one of {_SIMILARITIES}")
    return name


def _read_length(directory: Path, longest: int | None, tokenizer: Any) -> dict[str, Any]:
    """The arguments for the length of texts: the library cuts longer ones."""
    path = directory / LENGTH_FILE
    values = read_json(path) if path.is_file() else {}
    length, lower = values.get("max_seq_length"), values.get("do_lower_case", False)
    require_type(length, int | None, f"{path}: max_seq_length")
    require_type(lower, bool, f"{path}: do_lower_case")
    if lower and tokenizer is not None and _keeps_capitals(tokenizer):
        raise ValueError(
            f"{path}: do_lower_case must be false with a tokenizer that keeps capital letters, "
            "got True: give one that lower-cases."
        )
    if length is not None:
        if not 1 <= length <= (length if longest is None else longest):
            allowed = "of at least 1" if longest is None else f"from 1 to {longest}, the longest sequence of the model"
            raise ValueError(f"{path}: max_seq_length must be an integer {allowed}, got {quote(length)}.")
        return {"sequence_length": length, "truncate": True}
    # since version 6 it is that of the tokenizer, no longer than the model
    path = directory / TOKENIZER_FILE
    length = read_json(path).get("model_max_length") if path.is_file() else None
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        return {"truncate": True} if "transformer_task" in values else {}
    return {"sequence_length": length if longest is None else min(length, longest), "truncate": True}


def _keeps_capitals(tokenizer: Any) -> bool:
    letters = [chr(number) for number in range(ord("a"), ord("z") + 1)]
    small, capital = (tokenizer.tokenize(texts).to_list() for texts in (letters, [x.upper() for x in letters]))
    return small != capital


def _read_pooling(path: Path) -> tuple[str, bool]:
    """Our name of a way of pooling, and whether it is over the tokens of prompts too."""
    values = read_json(path)
    for key in values:
        if key.startswith("pooling_mode_") or key == "include_prompt":
            require_type(values[key], bool, f"{path}: {quote_key(key)}")
    if "pooling_mode" in values:
        given = values["pooling_mode"]
        modes = given if isinstance(given, list) else [given]
        names = [name for name, (mode, _) in POOLINGS.items() if [mode] == modes]
        allowed = f"one of {sorted(mode for mode, _ in POOLINGS.values())}"
        require(bool(names), f"{path}: pooling_mode", given, allowed)
    else:
        chosen = sorted(key for key, value in values.items() if key.startswith("pooling_mode_") and value)
        names = [name for name, (_, flag) in POOLINGS.items() if [flag] == chosen]
        if not names:
            flags = sorted(flag for _, flag in POOLINGS.values())
            raise ValueError(f"{path}: one of {flags} must be true, got {quote(chosen)}.")
    return names[0], values.get("include_prompt", True)


def _read_projection(folder: Path) -> dict[str, Any]:
    """The options of a linear map after pooling."""
    path = folder / "config.json"
    values = read_json(path)
    activation = values.get("activation_function", _ACTIVATIONS["tanh"])
    bias, residual, units = values.get("bias", True), values.get("use_residual", False), values.get("out_features")
    require_type(activation, str, f"{path}: activation_function")
    require_type(bias, bool, f"{path}: bias")
    require_type(units, int, f"{path}: out_features")
    require(residual is False, f"{path}: use_residual", residual, "false")
    _require_place(values, path)
    names = [name for name, theirs in _ACTIVATIONS.items() if theirs == activation]
    require(bool(names), f"{path}: activation_function", activation, f"one of {sorted(_ACTIVATIONS.values())}")
    return {"units": units, "activation": names[0], "use_bias": bias}


def _require_place(values: dict[str, Any], path: Path) -> None:
    for key in _PLACES:
        place = values.get(key, _PLACE)
        require(place == _PLACE, f"{path}: {key}", place, repr(_PLACE))


def assign_projections(task: Any, directory: Path) -> None:
    """Gives the linear maps of a `TextEmbedder` their weights in a directory.

    Args:
        task: The task, whose options were read from the directory.
        directory: The directory.

    Raises:
        ValueError: If they do not fit.
    """
    modules = [module for module in read_modules(directory) if module.kind == "Dense"]
    for projection, module in zip(task.projections, modules, strict=True):
        path = folder_inside(directory, module.path, f"{directory / MODULES_FILE}: path") / WEIGHTS_FILE
        with open_tensor_file(path) as tensors, errors_of_file(path):
            rows = _projection_rows(projection)
            check_rows(rows, tensors, ())
            for row in rows:
                row.read(tensors.get(row.name))


def _projection_rows(projection: Any) -> list[Row]:
    return table_rows({"linear": projection}, {"linear": "linear"})


def write_sentence_options(directory: Path, task: Any, dtype: str) -> None:
    """Writes what makes a directory a sentence model.

    Args:
        directory: The directory of the model.
        task: A `TextEmbedder`.
        dtype: Dtype of the weights.

    Raises:
        ValueError: If the library has no such pooling or activation, or vectors are cut, which its files cannot say.
    """
    options = task.options()
    pooling = options["pooling"]
    if options["width"] is not None:
        raise ValueError(
            f"width must be None to be written as a sentence model, got {options['width']}: give it to "
            "SentenceTransformer(..., truncate_dim=...)."
        )
    if pooling not in POOLINGS:
        raise ValueError(f"The pooling of a sentence model must be one of {sorted(POOLINGS)}, got {pooling!r}.")
    settings = {
        "prompts": options["prompts"],
        "default_prompt_name": options["default_prompt"],
        "similarity_fn_name": (None if task.backbone.origin is None else task.backbone.origin.similarity) or "cosine",
    }
    names = ["Transformer", "Pooling", *["Dense"] * len(task.projections), *["Normalize"] * options["normalize"]]
    length = options["sequence_length"] if task.tokenizer is None else None
    folders = write_modules(directory, EMBEDDER, names, settings, length)
    inputs = task.projections[0].kernel.shape[0] if task.projections else task.width
    places = dict.fromkeys(_PLACES, _PLACE)
    values = {"embedding_dimension": inputs, "pooling_mode": POOLINGS[pooling][0], "include_prompt": True}
    write_json(folders[1] / "config.json", values)
    for folder, projection in zip(folders[2:], task.projections, strict=False):
        chosen = projection.options
        if chosen.activation not in _ACTIVATIONS:
            raise ValueError(
                f"The activation of a projection of a sentence model must be one of {sorted(_ACTIVATIONS)}, got "
                f"{chosen.activation!r}."
            )
        values = {"in_features": inputs, "out_features": chosen.units, "bias": chosen.use_bias}
        write_json(folder / "config.json", {**values, "activation_function": _ACTIVATIONS[chosen.activation], **places})
        tensors = {row.name: row.write().astype(WRITTEN[dtype]) for row in _projection_rows(projection)}
        write_tensors(folder / WEIGHTS_FILE, tensors, {"format": "pt"})
        inputs = chosen.units
    if options["normalize"]:
        write_json(folders[-1] / "config.json", places)
