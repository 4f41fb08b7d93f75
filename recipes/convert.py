"""Converts a saved model between the files of this project, of Transformers and of KerasHub.

python -m recipes.convert path/to/bert-base-uncased models/bert
python -m recipes.convert models/bert exported --format transformers --dtype bfloat16
python -m recipes.convert models/bert hf://me/bert
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import zoo
from recipes.common.config import SWITCHES, run_recipe, setting
from recipes.common.errors import ConfigError, errors_of
from recipes.common.saved_models import TASKS, load_task

_PUSHED = {"transformers": "huggingface", "adapter": "adapter", "zoo": "preset"}


@dataclasses.dataclass(frozen=True)
class ConvertConfig:
    """Reads a saved model and writes it for another library: convert SOURCE TARGET."""

    source: str = setting(
        help="Directory of a saved model, of Transformers or of KerasHub, or hf://owner/name.", offers="paths"
    )
    target: str = setting(help="Folder to write, or hf://owner/name to put it on the Hugging Face hub.", offers="paths")
    format: Literal["zoo", "transformers", "keras_hub", "adapter"] | None = setting(
        None,
        "Library whose files are written. adapter: only the low-rank updates, for PEFT. zoo keeps "
        "updates apart from the weights, the others merge them. null: transformers for a source of "
        "this project, or else zoo.",
    )
    dtype: Literal["float32", "bfloat16", "float16"] | None = setting(
        None,
        "Dtype of the weights in files of Transformers. null: that of the source's files, or else of its weights.",
    )
    task: str | None = setting(
        None, f"One of {', '.join(TASKS)}; null for the kind that the source says.", offers=TASKS
    )


def main(config: ConvertConfig) -> Path | str:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The folder written, or the address of the commit on the hub.
    """
    source, target = Path(config.source), Path(config.target)
    if source.exists() and target.exists() and source.samefile(target):
        raise ConfigError(f"target must be another folder than the source, got {config.target}")
    task = load_task(config.source, config.task)
    is_ours = isinstance(zoo.storage.find_reader(config.source)[0], zoo.tasks.preset_reader.SavedReader)
    form = config.format or ("transformers" if is_ours else "zoo")
    if config.dtype is not None and form != "transformers":
        raise ConfigError(
            f"dtype must be null with the format {form!r}, whose weights are as they are, got {config.dtype!r}; "
            "--format transformers writes them in another dtype"
        )
    with errors_of("target"):
        if config.target.startswith("hf://"):
            if form == "keras_hub":
                raise ConfigError("format must not be 'keras_hub' for a model of the hub, got 'keras_hub'")
            target = task.push(config.target, format=_PUSHED[form], dtype=config.dtype)
            kind = {"transformers": "Transformers", "adapter": "PEFT"}.get(form, "this project")
        elif form == "transformers":
            kind = f"Transformers, model_type {task.save_to_huggingface(target, dtype=config.dtype)}"
        elif form == "adapter":
            active = task.backbone.adapters.active
            if len(active) != 1:
                raise ConfigError(f"format 'adapter' needs a model with one active adapter, got {list(active)}")
            kind = f"PEFT, model_type {task.save_adapter(target, active[0])}"
        elif form == "keras_hub":
            kind = f"KerasHub, {task.save_to_keras_hub(target)}"
        else:
            task.save_to_preset(target)
            kind = "this project"
    print(f"{target}: a {type(task).__name__} of {task.count_params():,} parameters, in the files of {kind}")
    return target


def with_names(words: Sequence[str]) -> list[str]:
    """Returns the words of a command line, the first two named where they stand without a name.

    Args:
        words: The words behind the name of the recipe.

    Example:

    >>> with_names(["models/bert", "exported", "--format", "transformers"])
    ['--source', 'models/bert', '--target', 'exported', '--format', 'transformers']
    """
    switches = [word for word in words if word in SWITCHES]
    words = [word for word in words if word not in SWITCHES]
    if len(words) > 1 and not any(word.startswith("--") for word in words[:2]):
        words = ["--source", words[0], "--target", *words[1:]]
    return switches + words


if __name__ == "__main__":
    run_recipe(main, ConvertConfig, "convert", with_names(sys.argv[1:]), prints_results=True)
