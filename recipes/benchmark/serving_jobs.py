"""Jobs of a server under load: what is asked, and what the answers must be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recipes.benchmark.serving_models import make_texts
from recipes.common.errors import ConfigError
from zoo.serving.exported_model import DESCRIPTION_FILE, ExportedModel
from zoo.serving.model_folders import find_versions

JOBS = ("classify", "embed", "translate", "complete")
# Numbers of answers may differ by so much: sums of a batch are not added in the order of those of a text alone.
TOLERANCE = 1e-3


def job_of(folder: Path, job: str) -> tuple[str, Path]:
    """Returns the name and export of the model that can do a job.

    Args:
        folder: As `recipes.serve` takes it.
        job: One of `JOBS`.

    Raises:
        ConfigError: If there is none.
    """
    for name, versions in find_versions(folder).items():
        export = versions[max(versions)]
        description = json.loads((export / DESCRIPTION_FILE).read_text(encoding="utf-8"))
        if _can(description, job):
            return name, export
    raise ConfigError(f"models: {folder} must hold one for the job {job}; leave the job out of jobs")


def _can(description: dict[str, Any], job: str) -> bool:
    endpoints = description["endpoints"]
    outputs = {field["name"] for field in endpoints[description["default"]]["outputs"]}
    return {
        "classify": "label_names" in endpoints and "probabilities" in outputs,
        "embed": outputs == {"embeddings"},
        "translate": "generate" in endpoints and "advance" not in endpoints,
        "complete": "advance" in endpoints,
    }[job]


def make_plan(job: str, name: str, export: Path, texts: int, max_new_tokens: int) -> dict[str, Any]:
    """Returns what clients ask, and what the export says to each text alone.

    Args:
        job: One of `JOBS`.
        name: Name of the model.
        export: Its export.
        texts: Number of texts.
        max_new_tokens: Most tokens of each completion.

    Returns:
        `path`, `asked` (a list of bodies), `expected` (a list of answers), `kind` and `tolerance`, as values for JSON.
    """
    given = make_texts(texts, 2)
    model = ExportedModel(export)
    asked, expected = _WAYS[job](model, name, given, max_new_tokens)
    path = {
        "classify": f"/v1/models/{name}:predict",
        "embed": "/v1/embeddings",
        "translate": "/v1/completions",
        "complete": "/v1/completions",
    }[job]
    return {"kind": job, "path": path, "asked": asked, "expected": expected, "tolerance": TOLERANCE}


def _classify(model: Any, name: str, texts: list[str], most: int) -> tuple[list[Any], list[Any]]:
    asked = [{"instances": [text]} for text in texts]
    answers = [model.call(model.default, texts=[text])["probabilities"][0].tolist() for text in texts]
    return asked, answers


def _embed(model: Any, name: str, texts: list[str], most: int) -> tuple[list[Any], list[Any]]:
    asked = [{"model": name, "input": text} for text in texts]
    return asked, [model.call(model.default, texts=[text])["embeddings"][0].tolist() for text in texts]


def _translate(model: Any, name: str, texts: list[str], most: int) -> tuple[list[Any], list[Any]]:
    asked = [{"model": name, "prompt": text} for text in texts]
    return asked, [_generated(model, text, 0) for text in texts]


def _complete(model: Any, name: str, texts: list[str], most: int) -> tuple[list[Any], list[Any]]:
    body = {"model": name, "max_tokens": most, "seed": 0, "stream": True, "stream_options": {"include_usage": True}}
    return [{**body, "prompt": text} for text in texts], [_generated(model, text, most) for text in texts]


def _generated(model: Any, text: str, most: int) -> str:
    endpoint = model.endpoints["generate"]
    inputs = {field["name"]: field["default"] for field in endpoint["inputs"] if field.get("default") is not None}
    written = model.call("generate", **inputs | {"texts": [text], "max_new_tokens": most})["texts"][0]
    repeats = endpoint.get("properties", {}).get("begins_with_prompt", False)
    return (written[len(text.encode()) :] if repeats else written).decode("utf-8", "replace")


_WAYS: dict[str, Callable[[Any, str, list[str], int], tuple[list[Any], list[Any]]]] = {
    "classify": _classify,
    "embed": _embed,
    "translate": _translate,
    "complete": _complete,
}
