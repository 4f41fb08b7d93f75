"""Engines of generation with OpenVINO: graphs of a model, made once and kept in a folder."""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from layers.dense import Dense
from layers.keras_internals import sublayers
from zoo.export.formats import require_float32, require_packages
from zoo.generation.engine import Engine
from zoo.generation.request import GenerationOptions
from zoo.openvino_genai.compression import WEIGHTS, compressed
from zoo.openvino_genai.decoder import OpenVINODecoder, OpenVINOEngine, require_tensorflow
from zoo.openvino_genai.stateful import stateful_model, why_not_stateful
from zoo.preprocessing.rows import shorten
from zoo.private_folders import why_not_private
from zoo.storage import replace_folder

NAME = "openvino"
# how errors call it
_GIVEN = f"engine={NAME!r}"
# Graphs that are kept. One in float32 is as large as its model.
MOST_KEPT = 4
_GRAPH = "openvino_model.xml"
_PACKAGES = ("keras", "tensorflow", "openvino", "nncf")
# What a graph follows from beside the model.
_CODE = tuple(Path(__file__).parents[2] / package for package in ("layers", "zoo"))


@dataclasses.dataclass(frozen=True)
class OpenVINO:
    """The engine that OpenVINO is: how it holds the weights.

    Args:
        weights: "float32", "int8" or "int4", as in exports.

    Raises:
        ValueError: If it is another.
    """

    weights: str = "float32"

    def __post_init__(self) -> None:
        if self.weights not in WEIGHTS:
            raise ValueError(f"engine.weights must be one of {', '.join(map(repr, WEIGHTS))}, got {self.weights!r}.")


class OpenVINOEngines:
    """The engines of a task, made anew when its weights have changed.

    Args:
        task: A `CausalLM`.
    """

    def __init__(self, task: Any) -> None:
        self._task = task
        self._made: dict[OpenVINO, tuple[np.ndarray, list[Any], Engine]] = {}

    def engine(self, engine: Any, options: GenerationOptions, **absent: Any) -> Engine:
        """Returns the engine that an argument names, which writes with the weights that the model has now.

        Args:
            engine: "openvino", a dictionary such as `{"name": "openvino", "weights": "int8"}`, or an `OpenVINO`.
            options: Settings of the generation.
            **absent: Further arguments, which must be None or False.

        Raises:
            ValueError: If the engine is none of them, if OpenVINO cannot hold the model or generate so, or if others
                may write to the folder of graphs.
            ImportError: If the extra `openvino` is not installed.
        """
        kind = _kind(engine)
        _require_possible(options, absent)
        require_tensorflow()
        require_packages(_GIVEN, NAME)
        backbone = self._task.backbone
        reason = why_not_stateful(backbone)
        if reason is not None:
            raise ValueError(f"engine must be None with this model, got {NAME!r}: {reason}.")
        require_float32(_GIVEN, self._task)
        now, factors = self._task.generator.engine.checksums(), _factors(backbone)
        made = self._made.get(kind)
        if made is None or made[1] != factors or not np.array_equal(made[0], now):
            self._made[kind] = now, factors, OpenVINOEngine(OpenVINODecoder(backbone, _graph(self._task, kind)))
        return self._made[kind][2]


def _kind(engine: Any) -> OpenVINO:
    """The kind of engine that an argument names."""
    if isinstance(engine, OpenVINO):
        return engine
    options = {"name": engine} if isinstance(engine, str) else engine
    if isinstance(options, Mapping) and options.get("name") == NAME and set(options) <= {"name", "weights"}:
        return OpenVINO(**{key: options[key] for key in options if key != "name"})
    raise ValueError(f"engine must be None, {NAME!r}, or {{'name': {NAME!r}, 'weights': ...}}, got {shorten(engine)}.")


def _require_possible(options: GenerationOptions, absent: Mapping[str, Any]) -> None:
    """Raises a ValueError if OpenVINO cannot generate so."""
    for name, value in {**absent, "jit_compile": options.jit_compile}.items():
        if value is not None and value is not False:
            raise ValueError(f"{name} must be left out with {_GIVEN}, got {shorten(value)}.")
    if options.sampler.needs_hidden:
        raise ValueError(
            f"sampler must not read hidden states with {_GIVEN}, which keeps them, got {options.sampler!r}."
        )


def kept_graphs() -> Path:
    """Returns the folder of all graphs of a user, in that of Keras (`KERAS_HOME`)."""
    return Path(os.environ.get("KERAS_HOME") or "~/.keras", "zoo_openvino").expanduser()


def _graph(task: Any, kind: OpenVINO) -> Path:
    """The graph of a model, which is written unless it is there."""
    kept = kept_graphs()
    kept.mkdir(parents=True, exist_ok=True, mode=0o700)
    why = why_not_private(kept)
    if why is not None:
        raise ValueError(
            "The folder of graphs for engine='openvino', in that of Keras (KERAS_HOME), must be one of this user to "
            f"which nobody else may write; {kept} {why}"
        )
    place = kept / _key(task, kind)
    with contextlib.suppress(FileNotFoundError):
        os.utime(place / _GRAPH)  # the ones that have not been used for the longest time go
    if not (place / _GRAPH).exists():
        import openvino

        model = stateful_model(task.backbone, last_alone=True)
        if kind.weights != "float32":
            model = compressed(model, kind.weights)
        with replace_folder(place, lambda old: True, "graph of OpenVINO") as folder:
            openvino.save_model(model, folder / _GRAPH, compress_to_fp16=False)
        for graph in sorted(kept.glob(f"*/{_GRAPH}"), key=_used_at)[:-MOST_KEPT]:
            graph.unlink(missing_ok=True)  # first: it says that the others are there
            shutil.rmtree(graph.parent, ignore_errors=True)
    return place / _GRAPH


def _used_at(graph: Path) -> float:
    """When a graph was used last; long ago if another process has removed it."""
    with contextlib.suppress(FileNotFoundError):
        return graph.stat().st_mtime
    return 0.0


def _key(task: Any, kind: OpenVINO) -> str:
    """What changes when a model, or what makes graphs of it, does."""
    digest = hashlib.sha256()
    backbone = task.backbone
    # without the states of random numbers
    weights = {id(variable) for variable in backbone.weights}
    variables = [variable for variable in backbone.active_variables if id(variable) in weights]
    files = sorted(file for folder in _CODE for file in folder.rglob("*.py"))
    about = {
        "config": backbone.config.to_dict(),
        "weights": kind.weights,
        "packages": [importlib.metadata.version(package) for package in _PACKAGES],
        "code": [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files],
        "shapes": [list(variable.shape) for variable in variables],
        "factors": _factors(backbone),
    }
    digest.update(json.dumps(about, sort_keys=True, default=str).encode())
    for variable in variables:
        digest.update(np.ascontiguousarray(keras.ops.convert_to_numpy(variable)).data)
    return digest.hexdigest()[:24]


def _factors(backbone: Any) -> list[Any]:
    """What the active low-rank updates of each map are multiplied by, which no weight says."""
    maps = [layer for layer in sublayers(backbone) if isinstance(layer, Dense)]
    return [[layer.updates[name].alpha for name in layer.active_updates] for layer in maps]
