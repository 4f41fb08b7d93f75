"""Directories of the Transformers library among what `from_preset` reads."""

from pathlib import Path
from typing import Any

from zoo.huggingface.directory import is_huggingface, load_backbone
from zoo.huggingface.task_names import task_of
from zoo.huggingface.tasks import load_task
from zoo.storage import Reader, read_one_version, register_reader
from zoo.storage.checkpoint import CONFIG_FILE
from zoo.storage.tokenizer import is_stored_tokenizer
from zoo.tokenizers import load_huggingface
from zoo.tokenizers.huggingface import has_huggingface_tokenizer


class TransformersReader(Reader):
    """A directory with `config.json`, safetensors files and those of a tokenizer."""

    looks_for = "a directory of the Transformers library (config.json with a model_type), or hf://owner/name"

    def accepts(self, source: Path) -> bool:
        return is_huggingface(source)

    def accepts_tokenizer(self, source: Path) -> bool:
        # beside another configuration the files are those of another kind of model
        is_alone = not (source / CONFIG_FILE).exists() and not is_stored_tokenizer(source)
        return is_alone and has_huggingface_tokenizer(source)

    def task_of(self, source: Path) -> str:
        return task_of(source)

    def load_task(self, kind: type, source: Path, load_weights: bool, tokenizer: Any, choices: dict[str, Any]) -> Any:
        return read_one_version(
            source, lambda: load_task(kind, source, load_weights=load_weights, tokenizer=tokenizer, **choices)
        )

    def load_backbone(self, source: Path, load_weights: bool, choices: dict[str, Any]) -> Any:
        return read_one_version(source, lambda: load_backbone(source, load_weights=load_weights, **choices))

    def load_tokenizer(self, source: Path) -> Any:
        return read_one_version(source, lambda: load_huggingface(source))


register_reader(TransformersReader())
