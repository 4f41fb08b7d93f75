"""What benchmarks of training steps share: a batch of sentence pairs, inputs of Keras models, the files of results."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

import keras
import numpy as np

import zoo
from recipes.common.processes import threads_each


def make_batch(
    batch_size: int, length: int, vocabulary_size: int
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Returns a batch of random tokens, padded as a bucket of a real corpus is: by no or a few positions.

    Args:
        batch_size: Sentence pairs.
        length: Tokens of the source, and of the target.
        vocabulary_size: Number of tokens.

    Returns:
        `(inputs, labels, weights)`, each `(batch_size, length)`; `inputs` has the keys of `zoo.Seq2SeqLM`.

    Example:

    >>> inputs, labels, weights = make_batch(128, 20, 10_000)
    """
    generator = np.random.default_rng(0)
    ids = generator.integers(4, vocabulary_size, (batch_size, length)).astype("int32")
    mask = np.arange(length) < generator.integers(length - 3, length + 1, (batch_size, 1))
    inputs = {
        "encoder_token_ids": ids,
        "encoder_padding_mask": mask,
        "decoder_token_ids": ids,
        "decoder_padding_mask": mask,
    }
    return inputs, ids, mask.astype("float32")


def symbolic_inputs() -> dict[str, keras.KerasTensor]:
    """Returns the inputs of a functional model that takes such batches, each `(batch, length)` of any size."""
    return {
        f"{side}_{name}": keras.Input((None,), dtype=dtype, name=f"{side}_{name}")
        for side in ("encoder", "decoder")
        for name, dtype in (("token_ids", "int32"), ("padding_mask", "bool"))
    }


def write_results(path: str | os.PathLike, results: dict[str, Any]) -> None:
    """Writes results and where they were taken as JSON, atomically; the folder is made if it does not exist.

    Args:
        path: The file.
        results: Plain values.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    content = {"environment": environment(), **results}
    zoo.storage.write_text_atomically(path, json.dumps(content, indent=2) + "\n")


def environment() -> dict[str, Any]:
    """Returns day, machine, cores, and the versions of Python and of the libraries that are installed."""
    versions = {}
    for name in ("keras", "tensorflow", "tensorflow-text", "keras-nlp", "jax", "torch", "transformers", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": platform.platform(),
        "cores": threads_each(1),
        "backend": keras.backend.backend(),
        "versions": {"python": platform.python_version(), **versions},
    }


def write_table(folder: str | os.PathLike, table: str) -> None:
    """Prints a table and writes it to `results.md`, atomically; the folder is made if it does not exist.

    Args:
        folder: The folder.
        table: The table, as Markdown.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    zoo.storage.write_text_atomically(Path(folder) / "results.md", table)
    print("\n" + table)
