"""Exports a model in a process of its own, with TensorFlow, where another backend has trained it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from recipes.common.errors import RecipeError
from recipes.common.saved_models import load_task

_LAST_LINES = 20


def export_with_tensorflow(
    model: Path, folder: Path, options: Mapping[str, Any], examples: Sequence[Any], kind: str
) -> None:
    """Writes the SavedModel of a saved model. Its process has TensorFlow as the backend, and no accelerator.

    Args:
        model: Directory of the saved model.
        folder: The folder to write.
        options: Arguments of the task's `export`, plain values.
        examples: A few inputs, for its card and its requests.
        kind: Name of the task's class.

    Raises:
        RecipeError: If the process fails; the message ends with its last lines.
    """
    request = {
        "model": str(model.absolute()),
        "folder": str(folder.absolute()),
        "options": dict(options),
        "examples": list(examples),
        "kind": kind,
        "dtype": keras.config.dtype_policy().name,
    }
    # the accelerator belongs to the process that trains, and its flags are for its compiler
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment |= {"KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "-1"}
    ended = subprocess.run(
        [sys.executable, "-m", "recipes.common.export_process"],
        input=json.dumps(request),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if ended.returncode:
        lines = "\n".join(ended.stdout.strip().splitlines()[-_LAST_LINES:])
        raise RecipeError(f"the export by TensorFlow ended with status {ended.returncode}:\n{lines}")


def main() -> None:
    """Reads a request from standard input, and exports."""
    request = json.load(sys.stdin)
    keras.config.set_dtype_policy(request["dtype"])
    task = load_task(request["model"], request["kind"])
    task.export(request["folder"], **request["options"], examples=request["examples"])


if __name__ == "__main__":
    main()
