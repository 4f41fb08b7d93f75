"""Training on several devices compared with training on one: weights after 20 updates, and tokens per second.

The part `equality` trains small models of each shape, with the same batches and gradients that are clipped, and tells
by how much any weight differs from that of one device at most. Biases of keys are left out: softmax does not see them,
and Adam makes steps of what rounding leaves of their gradients. `scaling` trains a larger decoder in one process and in
two, each on a core of its own. All devices are those of this machine's processor.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recipes.benchmark.step_data import write_results
from recipes.common.config import setting
from recipes.common.errors import ConfigError, RecipeError
from recipes.common.output_file import check_output_file
from zoo.extras import require_extra

PARTS = ("equality", "scaling")
SHAPES = ("decoder", "encoder", "encoder_decoder")
_PROGRAM = "recipes.benchmark.distributed_fit"


class Way(NamedTuple):
    """What a model trains on.

    Args:
        backend: Of Keras.
        distribution: As `zoo.distribution.use` takes it.
        devices: Of each process.
        processes: Number of processes.
    """

    backend: str
    distribution: str | Mapping[str, int] | None
    devices: int = 1
    processes: int = 1


ONE = {backend: Way(backend, None) for backend in ("tensorflow", "jax")}
WAYS = {
    "mirrored, two logical processors": Way("tensorflow", "mirrored", 2),
    "data, four simulated devices": Way("jax", "data", 4),
    "model, four simulated devices": Way("jax", "model", 4),
    "{data: 2, model: 2}, four simulated devices": Way("jax", {"data": 2, "model": 2}, 4),
    "data, two processes": Way("jax", "data", processes=2),
    "model, two processes": Way("jax", "model", processes=2),
    "{data: 2, model: 2}, two processes with two simulated devices": Way("jax", {"data": 2, "model": 2}, 2, 2),
}
# experts do not train with MirroredStrategy
_COLUMNS = {**{shape: {"shape": shape} for shape in SHAPES}, "decoder with experts": {"shape": "decoder", "experts": 4}}


@dataclasses.dataclass(frozen=True)
class Config:
    """Compares training on several devices with training on one."""

    parts: list[str] = setting(list(PARTS), f"Some of {', '.join(PARTS)}.")
    models: list[str] = setting(list(_COLUMNS), f"Models of equality: some of {', '.join(_COLUMNS)}.")
    ways: list[str] = setting(list(WAYS), "Of equality: " + "; ".join(WAYS) + ".")
    texts: int = setting(75, "Texts of equality, of which 8 are a batch; there are two epochs.", least=1)
    updates: int = setting(20, "Updates of scaling that are timed.", least=1)
    rounds: int = setting(3, "Turns of scaling.", least=1)
    output: str = setting("runs/benchmark/distribution.json", "File for the figures.", offers="paths")


def main(config: Config) -> dict[str, Any]:
    """Runs the parts and prints a table of each.

    Args:
        config: The configuration.

    Returns:
        The figures of each part, by name.

    Raises:
        ConfigError: If a part, model or way is unknown, or JAX is not installed.
        RecipeError: If a training fails.
    """
    check_output_file(config.output)
    for key, given, known in (("parts", config.parts, PARTS), ("models", config.models, _COLUMNS)):
        _check(key, given, known)
    _check("ways", config.ways, WAYS)
    is_needed = "scaling" in config.parts or any(WAYS[way].backend == "jax" for way in config.ways)
    if is_needed:
        require_extra("jax", "Training in several processes, or on data and model,")
    results: dict[str, Any] = {"config": dataclasses.asdict(config)}
    functions = {"equality": equality, "scaling": scaling}
    with tempfile.TemporaryDirectory() as folder:
        for part in config.parts:
            results[part] = functions[part](config, Path(folder))
            write_results(config.output, results)
    return results


def equality(config: Config, folder: Path) -> dict[str, dict[str, float | None]]:
    """Returns the largest difference of a weight from one device, by way and model; None where there is no such one."""
    found: dict[str, dict[str, float | None]] = {}
    ones: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    print(f"| largest difference | {' | '.join(config.models)} |\n| --- |{' --- |' * len(config.models)}")
    for name in config.ways:
        way, found[name] = WAYS[name], {}
        for model in config.models:
            options = {**_COLUMNS[model], "texts": config.texts}
            if way.distribution == "mirrored" and "experts" in options:
                found[name][model] = None
                continue
            key = (way.backend, model)
            if key not in ones:
                ones[key] = fit(ONE[way.backend], options, folder)
            found[name][model] = difference(fit(way, options, folder), ones[key])
        cells = ["" if value is None else f"{value:.0e}" for value in found[name].values()]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return found


def difference(weights: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]) -> float:
    """Returns the largest difference of a weight between two trainings.

    Args:
        weights, others: What `fit` returns.

    Raises:
        RecipeError: If they do not have the same weights.
    """
    if set(weights) != set(others):
        raise RecipeError(f"weights that one training has only: {sorted(set(weights) ^ set(others))}")
    names = [name for name in weights if name.startswith("weights/") and not name.endswith("attention/key/bias")]
    return max(float(np.abs(weights[name].astype("float64") - others[name]).max()) for name in names)


def scaling(config: Config, folder: Path) -> dict[str, Any]:
    """Returns tokens per second in one process and in two, medians of turns, and the median of their ratio."""
    ways = {"one process": ONE["jax"], "two processes": WAYS["data, two processes"]}
    turns: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(config.rounds):
        for name, way in ways.items():
            speed = fit(way, {"timed_updates": config.updates}, folder)["tokens_per_second"]
            turns[name].append(float(speed))
    ratios = [two / one for one, two in zip(*turns.values(), strict=True)]
    ratio = statistics.median(ratios)
    found = {"tokens_per_second": {name: statistics.median(turn) for name, turn in turns.items()}, "ratio": ratio}
    print("\n| | tokens per second | of one process |\n| --- | --- | --- |")
    for name, speed in found["tokens_per_second"].items():
        print(f"| {name} | {speed:,.0f} | {1.0 if name == 'one process' else ratio:.2f} |")
    return found


def fit(way: Way, options: Mapping[str, Any], folder: Path) -> dict[str, np.ndarray]:
    """Trains in processes of their own.

    Args:
        way: What it trains on.
        options: See `recipes.benchmark.distributed_fit.Fit`.
        folder: Where its file is written.

    Raises:
        RecipeError: If it fails.
    """
    out = folder / "fit.npz"
    options = {**options, "distribution": way.distribution}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KERAS_", "JAX_"))}
    environment |= {"KERAS_BACKEND": way.backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if way.backend == "jax":
        environment |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(way.devices)}
    else:
        environment["CUDA_VISIBLE_DEVICES"] = ""
        options["devices"] = way.devices
    launcher = ["recipes.launch", "--processes", str(way.processes)] if way.processes > 1 else []
    command = [sys.executable, "-m", *launcher, _PROGRAM, str(out), json.dumps(options)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RecipeError(f"{way} ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    with np.load(out) as arrays:
        return dict(arrays)


def _check(key: str, given: list[str], known: Any) -> None:
    unknown = [each for each in given if each not in known]
    if unknown:
        raise ConfigError(f"{key} must be among {', '.join(known)}, got {unknown[0]!r}")
