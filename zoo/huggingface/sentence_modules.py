"""The list of modules that the Sentence Transformers library stores with a model."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.storage import parse_json, quote, read_bytes, read_json, require_type, to_dataclass

MODULES_FILE = "modules.json"
LENGTH_FILE = "sentence_bert_config.json"
MODEL_FILE = "config_sentence_transformers.json"
EMBEDDER, SCORER = "SentenceTransformer", "CrossEncoder"
# by the last part of their names
_CLASSES = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}
# what the module of the model is asked for, the output of the model that has it, and what it is called
_OUTPUTS = {
    EMBEDDER: ("feature-extraction", "last_hidden_state", "token_embeddings"),
    SCORER: ("sequence-classification", "logits", "scores"),
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

    @property
    def kind(self) -> str:
        """The last part of the name of its class."""
        return self.type.rpartition(".")[2]


def read_modules(directory: Path) -> list[Module]:
    """Returns the modules of a directory; none where it has no list of them.

    Args:
        directory: The directory.

    Raises:
        ValueError: If the list is damaged, or the model is not in the directory itself.
    """
    path = directory / MODULES_FILE
    if not path.is_file():
        return []
    entries = parse_json(read_bytes(path, 2**20), str(path))
    require_type(entries, list[Any], f"{path}: the list of modules")
    modules = [to_dataclass(Module, entry, f"{path}: [{index}]", True) for index, entry in enumerate(entries)]
    if modules and modules[0].path:
        raise ValueError(f"{path}: [0].path must be '', the directory itself, got {quote(modules[0].path)}.")
    return modules


def read_model_settings(directory: Path) -> dict[str, Any]:
    """Returns what the library stores about a model as a whole; nothing where it does not.

    Args:
        directory: The directory.
    """
    path = directory / MODEL_FILE
    return read_json(path) if path.is_file() else {}


def write_modules(
    directory: Path, kind: str, names: Sequence[str], settings: dict[str, Any], length: int | None = None
) -> list[Path]:
    """Writes the list of modules, what the model is asked for, and what is stored about the model as a whole.

    Args:
        directory: The directory of the model.
        kind: `EMBEDDER` or `SCORER`.
        names: The modules, by the last parts of the names of their classes.
        settings: What is stored about the model.
        length: Longest text, where no tokenizer is written that has it.

    Returns:
        The folders of the modules; that of the first is the directory.
    """
    paths = ["", *(f"{number}_{name}" for number, name in enumerate(names) if number)]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": _CLASSES[name]}
        for number, (name, path) in enumerate(zip(names, paths, strict=True))
    ]
    write_json(directory / MODULES_FILE, modules)
    task, output, called = _OUTPUTS[kind]
    text = {"method": "forward", "method_output_name": output}
    values = {"transformer_task": task, "modality_config": {"text": text}, "module_output_name": called}
    write_json(directory / LENGTH_FILE, values if length is None else {**values, "max_seq_length": length})
    write_json(directory / MODEL_FILE, {"model_type": kind, **settings})
    return [directory / path for path in paths]


def write_json(path: Path, values: Any) -> None:
    """Writes a JSON file, and its folder."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
