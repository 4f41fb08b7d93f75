"""Loading a model from the files of each library: time, and the peak of memory beyond what the process held before.

`python -m recipes.benchmark loading` writes random weights of a named architecture in each form, loads each in a
process of its own, removes them, and writes `results.json` and `results.md` to a folder.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import ml_dtypes
import numpy as np

import zoo
from recipes.benchmark.peak_memory import peak_memory
from recipes.common.config import setting
from recipes.common.errors import ConfigError, errors_of

SHARDS = 4
# name: (what the files hold, dtype that they are loaded with)
FORMS = {
    "transformers": ("float32, one safetensors file", "float32"),
    "sharded": (f"float32, {SHARDS} safetensors files", "float32"),
    "cast_up": ("bfloat16, one safetensors file", "float32"),
    "half": ("bfloat16, one safetensors file", "bfloat16"),
    "cast_down": ("float32, one safetensors file", "bfloat16"),
    "preset": ("a preset of this library", "float32"),
    "keras_hub": ("a preset of KerasHub", "float32"),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures how much time and memory loading a model takes."""

    preset: str = setting("bert_base_uncased", "Name of the architecture.", offers="presets")
    forms: list[str] = setting(list(FORMS), f"Forms of the files: {', '.join(FORMS)}.")
    folder: str = setting("runs/benchmark/loading", "Folder for the results.", offers="paths")

    def __post_init__(self) -> None:
        unknown = sorted(set(self.forms) - set(FORMS))
        if unknown:
            raise ConfigError(f"forms must be among {', '.join(FORMS)}, got {unknown[0]!r}")


def main(config: Config) -> list[dict[str, Any]]:
    """Runs the benchmark and prints the table.

    Args:
        config: The configuration.

    Returns:
        A row for each form: its name, seconds, bytes of the model, and bytes of memory at the peak.
    """
    folder = Path(config.folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory(dir=folder) as place:
        with errors_of("preset"):
            backbone = zoo.Backbone.from_preset(config.preset, load_weights=False)
        sizes = [math.prod(weight.shape) for weight in backbone.weights]
        for form in config.forms:
            model = Path(place) / form
            write(form, backbone, model)
            _, dtype = FORMS[form]
            width = 2 if dtype == "bfloat16" else 4
            timing = Path(place) / "seconds"
            peak = peak_memory("recipes.benchmark.loading:make_load", path=str(model), dtype=dtype, timing=str(timing))
            row = {"form": form, "seconds": float(timing.read_text()), "model": width * sum(sizes), "peak": peak}
            rows.append({**row, "largest_tensor": width * max(sizes)})
            shutil.rmtree(model)
            print(_line(rows[-1]))
    zoo.storage.write_text_atomically(folder / "results.json", json.dumps(rows, indent=2) + "\n")
    zoo.storage.write_text_atomically(folder / "results.md", table(rows))
    print("\n" + table(rows))
    return rows


def write(form: str, backbone: zoo.Backbone, path: Path) -> None:
    """Writes a model.

    Args:
        form: One of `FORMS`.
        backbone: The model.
        path: Where to.
    """
    if form == "keras_hub":
        zoo.keras_hub.save_backbone(backbone, path)
    elif form == "preset":
        kind = {"encoder": zoo.MaskedLM, "decoder": zoo.CausalLM, "encoder_decoder": zoo.Seq2SeqLM}
        kind[backbone.config.architecture](backbone).save_to_preset(path)
    else:
        zoo.huggingface.write_backbone(backbone, path)
        if form in ("cast_up", "half"):
            with zoo.storage.open_checkpoint(path) as files:
                tensors = {name: np.array(files.get(name), ml_dtypes.bfloat16) for name in files.shapes}
            zoo.storage.write_tensors(path / zoo.storage.checkpoint.WEIGHTS_FILE, tensors, {"format": "pt"})
        elif form == "sharded":
            _cut(path)


def _cut(path: Path) -> None:
    index = {}
    with zoo.storage.open_checkpoint(path) as files:
        names = sorted(files.shapes)
        for number in range(SHARDS):
            part, file = names[number::SHARDS], f"model-{number + 1:05d}-of-{SHARDS:05d}.safetensors"
            zoo.storage.write_tensors(path / file, {name: files.get(name) for name in part}, {"format": "pt"})
            index |= dict.fromkeys(part, file)
    (path / zoo.storage.checkpoint.WEIGHTS_FILE).unlink()
    (path / zoo.storage.checkpoint.INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": index}))


def make_load(path: str, dtype: str, timing: str) -> Callable[[], Any]:
    """Returns a function that loads a model; libraries and what they make at their first use are there already.

    Args:
        path: The model.
        dtype: Policy of its layers.
        timing: File that gets the seconds.
    """
    kept = [zoo.Backbone.from_preset("gpt_shakespeare", load_weights=False)]
    if Path(path).name == "keras_hub":
        import keras_hub

        kept.append(keras_hub.models.BertBackbone)

    def load() -> None:
        start = time.perf_counter()
        kept.append(zoo.Backbone.from_preset(path, dtype=keras.DTypePolicy(dtype)))
        Path(timing).write_text(str(time.perf_counter() - start), encoding="ascii")

    return load


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the results as a table in Markdown.

    Args:
        rows: What `main` returns.
    """
    head = "| files | loaded as | seconds | model | largest tensor | peak | peak / model |\n|" + " --- |" * 7
    return "\n".join([head, *map(_line, rows)]) + "\n"


def _line(row: dict[str, Any]) -> str:
    what, dtype = FORMS[row["form"]]
    sizes = " | ".join(f"{row[name] / 1e6:.0f} MB" for name in ("model", "largest_tensor", "peak"))
    return f"| {what} | {dtype} | {row['seconds']:.1f} | {sizes} | {row['peak'] / row['model']:.2f} |"
