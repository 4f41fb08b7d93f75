"""Exports a saved model as a SavedModel that takes and returns strings, or for another runtime.

python -m recipes.export runs/dates --output models/dates --examples '[4 May 1999, 12.10.88]'
python -m recipes.export runs/sst2 --output models/sst2 --format onnx --weights int8
python -m recipes.export hf://owner/name --task CausalLM --output models/name --options '{"sampler": "greedy"}'

The output is the folder of a model, as TensorFlow Serving, KServe and Vertex AI take it. Each call writes a new version
into it: models/dates/1/saved_model.pb, then models/dates/2/saved_model.pb. A server that polls the folder takes it up.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import keras

import zoo
from recipes.common.config import run_recipe, setting
from recipes.common.errors import ConfigError, errors_of
from recipes.common.output_file import check_place
from recipes.common.saved_models import TASKS, load_task


@dataclasses.dataclass(frozen=True)
class ExportConfig:
    """Writes a saved model as a SavedModel with string endpoints, or for another runtime."""

    model: str = setting(
        help="Folder of a run, or directory of a saved model, also of the Transformers library, or hf://owner/name.",
        words="first",
        offers="paths",
    )
    output: str = setting(
        help="Folder of the model; its name is the name by which servers know the model.", offers="paths"
    )
    version: int | None = setting(None, "Number of the version. null: one more than the newest.", above=0)
    task: str | None = setting(None, f"One of {', '.join(TASKS)}; null for the kind that was saved here.", offers=TASKS)
    format: str = setting(
        "tf_saved_model",
        "Format to write: tf_saved_model, onnx, litert, openvino, openvino_genai or gguf.",
        offers=("tf_saved_model", "onnx", "litert", "openvino", "openvino_genai", "gguf"),
    )
    weights: str = setting(
        "float32",
        "Type of the weights: float32, with onnx, litert and openvino also int8, with openvino_genai int8 and int4, "
        "with gguf float16, bfloat16, q8_0, q5_1, q5_0, q4_1 and q4_0. Not for a SavedModel.",
        offers=("float32", "int8", "int4", "float16", "bfloat16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"),
    )
    strings: bool = setting(False, "Whether an export in the format onnx also takes strings.")
    examples: list[Any] = setting(
        [],
        "Real inputs for the model card of a SavedModel, and for servers to warm up with: texts, lists of texts, "
        "conversations.",
    )
    options: dict[str, Any] = setting({}, "Further arguments of the task's export(), for example {sampler: beam}.")


def main(config: ExportConfig) -> Path:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The folder written.
    """
    if keras.backend.backend() != "tensorflow" and config.format != zoo.export.GGUF:
        raise ConfigError(f"exports are written with the backend tensorflow, not {keras.backend.backend()}")
    with errors_of("format"):
        try:
            zoo.export.require_format(config.format)
        except ImportError as error:
            raise ConfigError(f"format: {error}") from error
    with errors_of("version"):
        folder = zoo.export.new_version(config.output, config.version)
    check_place(folder, "output", saved_model=config.format == zoo.export.SAVED_MODEL)
    task = load_task(config.model, config.task)
    choices = {name: getattr(config, name) for name in ("format", "weights", "strings", "examples")}
    with errors_of("options"):
        task.export(folder, **choices, **config.options)
    # the file that says what is in the folder is written with its other files
    endpoints = json.loads((folder / zoo.export.DESCRIPTION_FILE).read_text(encoding="utf-8"))["endpoints"]
    programs = "for programs with a loop of their own, see model_card.md"
    what = f"with the endpoints {', '.join(sorted(endpoints))}" if endpoints else programs
    print(f"{folder}: a {type(task).__name__} {what}")
    return folder


if __name__ == "__main__":
    run_recipe(main, ExportConfig, "export", prints_results=True)
