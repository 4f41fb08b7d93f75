"""What the Sentence Transformers library stores with a model: how hidden states become the vector of a text."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from zoo.storage import folder_inside, parse_json, quote, quote_key, read_bytes, read_json, require_type, to_dataclass

MODULES_FILE = "modules.json"
LENGTH_FILE = "sentence_bert_config.json"
PROMPTS_FILE = "config_sentence_transformers.json"
POOLING_FOLDER = "1_Pooling"
# our pooling and their flag
FLAGS = {
    "first": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "last": "pooling_mode_lasttoken",
}


@dataclasses.dataclass(frozen=True)
class Module:
    """An entry of `modules.json`.

    Args:
        type: Name of the module's class.
        path: Folder of its files, in the directory; empty for the directory itself.
    """

    type: str
    path: str = ""


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
    path = directory / MODULES_FILE
    if not path.is_file():
        return {}
    modules = parse_json(read_bytes(path, 2**20), str(path))
    require_type(modules, list[Any], f"{path}: the list of modules")
    modules = [to_dataclass(Module, module, f"{path}: [{index}]", True) for index, module in enumerate(modules)]
    kinds = [module.type.rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ValueError(f"{path}: type must be Transformer, Pooling, then Normalize or nothing, got {quote(kinds)}.")
    if modules[0].path:
        raise ValueError(f"{path}: [0].path must be '', the directory itself, got {quote(modules[0].path)}.")
    folder = folder_inside(directory, modules[1].path, f"{path}: [1].path")
    pooling, with_prompts = _read_pooling(folder / "config.json")
    options: dict[str, Any] = {"pooling": pooling, "normalize": len(kinds) == 3}
    if (directory / LENGTH_FILE).is_file():
        values = read_json(directory / LENGTH_FILE)
        length, lower = values.get("max_seq_length"), values.get("do_lower_case", False)
        require_type(length, int | None, f"{directory / LENGTH_FILE}: max_seq_length")
        require_type(lower, bool, f"{directory / LENGTH_FILE}: do_lower_case")
        if lower and tokenizer is not None and _keeps_capitals(tokenizer):
            raise ValueError(
                f"{directory / LENGTH_FILE}: do_lower_case must be false with a tokenizer that keeps capital letters, "
                "got True: give one that lower-cases."
            )
        if length is not None and not 1 <= length <= (length if longest is None else longest):
            allowed = "of at least 1" if longest is None else f"from 1 to {longest}, the longest sequence of the model"
            raise ValueError(
                f"{directory / LENGTH_FILE}: max_seq_length must be an integer {allowed}, got {quote(length)}."
            )
        # the library cuts longer texts
        options |= {} if length is None else {"sequence_length": length, "truncate": True}
    if prompts and (directory / PROMPTS_FILE).is_file():
        options |= _read_prompts(directory / PROMPTS_FILE)
        if any(options["prompts"].values()) and not with_prompts:
            raise ValueError(
                f"{folder / 'config.json'}: include_prompt must be true with prompts ({PROMPTS_FILE}), which are "
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
    chosen = sorted(key for key, value in values.items() if key.startswith("pooling_mode_") and value)
    names = [name for name, flag in FLAGS.items() if [flag] == chosen]
    if not names:
        raise ValueError(f"{path}: one of {sorted(FLAGS.values())} must be true, got {quote(chosen)}.")
    return names[0], values.get("include_prompt", True)


def write_sentence_options(directory: Path, options: dict[str, Any], width: int) -> None:
    """Writes what makes a directory a sentence model.

    Args:
        directory: The directory of the model.
        options: What `options()` of a `TextEmbedder` returned.
        width: Width of the whole vectors.

    Raises:
        ValueError: If the library has no such pooling, or vectors are cut, which its files cannot say.
    """
    pooling = options["pooling"]
    if options["width"] is not None:
        raise ValueError(
            f"width must be None to be written as a sentence model, got {options['width']}: give it to "
            "SentenceTransformer(..., truncate_dim=...)."
        )
    if pooling not in FLAGS:
        raise ValueError(f"The pooling of a sentence model must be one of {sorted(FLAGS)}, got {pooling!r}.")
    kinds = ["Transformer", "Pooling"] + ["Normalize"] * options["normalize"]
    paths = ["", POOLING_FOLDER, "2_Normalize"]
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, path) in enumerate(zip(kinds, paths, strict=False))
    ]
    _write(directory / MODULES_FILE, modules)
    flags = {flag: name == pooling for name, flag in FLAGS.items()}
    _write(directory / POOLING_FOLDER / "config.json", {"word_embedding_dimension": width, **flags})
    if options["sequence_length"] is not None:
        _write(directory / LENGTH_FILE, {"max_seq_length": options["sequence_length"], "do_lower_case": False})
    prompts = {"prompts": options["prompts"], "default_prompt_name": options["default_prompt"]}
    _write(directory / PROMPTS_FILE, prompts)


def _write(path: Path, values: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
