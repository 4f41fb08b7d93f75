"""The folder of an export for llama.cpp: the model, a file for Ollama, and a card that says how to run both."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from zoo.export.folder import export_folder
from zoo.gguf.writing import write_gguf

FILE, OLLAMA_FILE, CARD_FILE = "model.gguf", "Modelfile", "model_card.md"

_CARD = """# {name}

A causal language model of {parameters:,} weights, {weights}, for [llama.cpp](https://github.com/ggml-org/llama.cpp) and
programs that are built on it. `{file}` holds {parts}, and needs nothing else of this folder.

| program | command |
| --- | --- |
| llama.cpp, in a terminal | `llama-cli -m {file}` |
| llama.cpp, a server with OpenAI's routes | `llama-server -m {file} --ctx-size {length}` |
| Ollama | `ollama create {tag} -f {ollama_file}`, then `ollama run {tag}` |
| LM Studio | copy `{file}` to a folder of its models |
| Keras | `zoo.CausalLM.from_preset("{file}")` |
"""


def write_gguf_folder(directory: str | os.PathLike[str], task: Any, weights: str) -> None:
    """Writes a causal language model for llama.cpp, Ollama and LM Studio, whole or not at all.

    Args:
        directory: The directory to write. An export that it holds is replaced.
        task: A `CausalLM`.
        weights: See `write_gguf`.

    Raises:
        ValueError: As for `write_gguf`.
        FileExistsError: If the directory exists and does not hold an export.

    Example:

    >>> write_gguf_folder("exported", model, "q8_0")
    """
    *_, above, name = Path(os.path.abspath(directory)).parts
    name = above if name.isdigit() else name  # servers keep versions of a model in folders of numbers
    with export_folder(directory, {}, format="gguf", weights=weights) as folder:
        write_gguf(task, folder / FILE, weights, name=name)
        # Ollama reads the chat template from the file
        (folder / OLLAMA_FILE).write_text(f"FROM ./{FILE}\n", "utf-8")
        has_template = task.tokenizer.chat_format is not None
        card = _CARD.format(
            name=name,
            parameters=task.backbone.parameter_count(),
            weights=f"in {weights}" if weights.startswith("q") else f"as {weights}",
            file=FILE,
            ollama_file=OLLAMA_FILE,
            tag=name.lower(),
            parts="the weights, the tokenizer and the chat template"
            if has_template
            else "the weights and the tokenizer",
            length=task.backbone.config.max_length,
        )
        (folder / CARD_FILE).write_text(card, "utf-8")
