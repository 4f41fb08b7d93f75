"""GGUF files among what `from_preset` reads."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zoo.gguf.architectures import architecture_of
from zoo.gguf.config import config_of, pooling_files
from zoo.gguf.fields import Fields
from zoo.gguf.generation import generation_of
from zoo.gguf.header import is_gguf, read_gguf
from zoo.gguf.tensors import WEIGHTS
from zoo.gguf.tokenizer import tokenizer_files
from zoo.huggingface.directory import load_backbone
from zoo.huggingface.generation import GENERATION_FILE
from zoo.huggingface.tasks import load_task
from zoo.storage import Reader, means_own, register_reader
from zoo.storage.checkpoint import CONFIG_FILE
from zoo.tokenizers import load_huggingface


class GGUFReader(Reader):
    """A file of llama.cpp, or the first one of several parts."""

    looks_for = "a GGUF file"

    def accepts(self, source: Path) -> bool:
        return is_gguf(source)

    def task_of(self, source: Path) -> str:
        return architecture_of(Fields(read_gguf(source))).task

    def load_task(self, kind: type, source: Path, load_weights: bool, tokenizer: Any, choices: dict[str, Any]) -> Any:
        with _as_directory(source, has_tokenizer=means_own(tokenizer)) as directory:
            return load_task(kind, directory, load_weights=load_weights, tokenizer=tokenizer, **choices)

    def load_backbone(self, source: Path, load_weights: bool, choices: dict[str, Any]) -> Any:
        with _as_directory(source, has_tokenizer=False) as directory:
            return load_backbone(directory, load_weights=load_weights, **choices)

    def load_tokenizer(self, source: Path) -> Any:
        with _as_directory(source, has_model=False) as directory:
            return load_huggingface(directory)


@contextlib.contextmanager
def _as_directory(source: Path, has_model: bool = True, has_tokenizer: bool = True) -> Iterator[Path]:
    """A directory of the Transformers library that says the same, with a link to the weights.

    A backbone whose tokenizer is not supported loads without it, and a tokenizer without its model.

    Errors name the file in the place of those of the directory, which is gone afterwards.
    """
    header = read_gguf(source)
    contents: dict[str, Any] = {}
    if has_model:
        contents |= {CONFIG_FILE: config_of(header), **pooling_files(header)}
        if generation := generation_of(header):
            contents[GENERATION_FILE] = generation
    if has_tokenizer:
        contents |= tokenizer_files(header)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / source.stem
        directory.mkdir()
        for name, content in contents.items():
            data = content if isinstance(content, (bytes, str)) else json.dumps(content)
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_bytes(data if isinstance(data, bytes) else data.encode("utf-8"))
        (directory / WEIGHTS).symlink_to(source.resolve())
        try:
            yield directory
        except (ValueError, FileNotFoundError) as error:
            text = str(error).replace(f"{directory / WEIGHTS}", str(source)).replace(str(directory), f"{source} as")
            raise type(error)(text.replace(" as/", " as ")) from error


register_reader(GGUFReader())
