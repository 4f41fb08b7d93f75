"""Export: from a saved model to a SavedModel that takes and returns strings, or to the format of another runtime.

python -m recipes.export runs/dates --output export
python -m recipes.export runs/sst2 --output export --format onnx --weights int8
python -m recipes.export hf://owner/name --task CausalLM --output export --options '{"sampler": "greedy"}'
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
from recipes.common.saved_models import TASKS, load_task


@dataclasses.dataclass(frozen=True)
class ExportConfig:
    """Writes a saved model as a SavedModel with string endpoints, or for another runtime."""

    model: str = setting(
        help="Folder of a run, or directory of a saved model, also of the Transformers library, or hf://owner/name.",
        words="first",
    )
    output: str = setting(help="Folder to write.")
    task: str | None = setting(None, f"One of {', '.join(TASKS)}; null for the kind that was saved here.")
    format: str = setting("tf_saved_model", "tf_saved_model, onnx, litert or openvino.")
    weights: str = setting("float32", "float32 or int8, not of a SavedModel.")
    strings: bool = setting(False, "Whether an export in the format onnx takes strings too.")
    options: dict[str, Any] = setting({}, "Further arguments of the task's export(), for example {sampler: beam}.")


def main(config: ExportConfig) -> Path:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The folder written.
    """
    if keras.backend.backend() != "tensorflow":
        raise ConfigError(f"exports are written with the backend tensorflow, not {keras.backend.backend()}")
    with errors_of("format"):
        try:
            zoo.export.require_format(config.format)
        except ImportError as error:
            raise ConfigError(f"format: {error}") from error
    task = load_task(config.model, config.task)
    choices = {"format": config.format, "weights": config.weights, "strings": config.strings}
    with errors_of("options"):
        task.export(config.output, **choices, **config.options)
    # the file that says what is in the folder was written with the last of its other files
    endpoints = json.loads((Path(config.output) / "signature.json").read_text(encoding="utf-8"))["endpoints"]
    print(f"{config.output}: a {type(task).__name__} with the endpoints {', '.join(sorted(endpoints))}")
    return Path(config.output)


if __name__ == "__main__":
    run_recipe(main, ExportConfig, "export")
