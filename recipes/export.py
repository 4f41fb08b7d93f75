"""Export: from a saved model to a SavedModel that takes strings and returns strings.

python -m recipes.export runs/dates --output export
python -m recipes.export hf://owner/name --task CausalLM --output export --options '{"sampler": "greedy"}'
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import keras

from recipes.common.config import run_recipe, setting
from recipes.common.errors import ConfigError, errors_of
from recipes.common.saved_models import TASKS, load_task


@dataclasses.dataclass(frozen=True)
class ExportConfig:
    """Writes a saved model as a SavedModel with string endpoints."""

    model: str = setting(
        help="Folder of a run, or directory of a saved model, also of the Transformers library, or hf://owner/name.",
        words="first",
    )
    output: str = setting(help="Folder to write.")
    task: str | None = setting(None, f"One of {', '.join(TASKS)}; null for the kind that was saved here.")
    options: dict[str, Any] = setting({}, "Arguments of the task's export(), for example {sampler: beam}.")


def main(config: ExportConfig) -> Path:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The folder written.
    """
    if keras.backend.backend() != "tensorflow":
        raise ConfigError(f"a SavedModel is written with the backend tensorflow, not {keras.backend.backend()}")
    import tensorflow as tf

    task = load_task(config.model, config.task)
    with errors_of("options"):
        task.export(config.output, **config.options)
    signatures = tf.saved_model.load(config.output).signatures
    print(f"{config.output}: a {type(task).__name__} with the endpoints {', '.join(sorted(signatures))}")
    return Path(config.output)


if __name__ == "__main__":
    run_recipe(main, ExportConfig, "export")
