"""A model in every format beside its SavedModel: size, time to start, time of a call, agreement with Python.

    python -m recipes.benchmark formats --model runs/sst2 --texts sentences.txt

Each format runs in a process of its own that imports its runtime and NumPy alone. All take token ids but the
SavedModel, which takes strings: its times hold those of its tokenizer. A model that writes text writes greedily;
agreement is then the share of texts whose tokens are all the same.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np

import zoo
from recipes.benchmark.step_data import write_results
from recipes.common.config import setting
from recipes.common.errors import ConfigError
from recipes.common.output_file import check_output_file
from recipes.common.saved_models import load_task

_BATCH_SIZES = (1, 32)

# What a process of its own does: loads an export, calls it with rows, says how long that took and what came out.
_RUNNER = """
import json, statistics, sys, time
import numpy as np
request = json.load(open(sys.argv[1]))
started = time.perf_counter()
folder, threads = request["folder"], request["threads"]
if request["format"] == "tf_saved_model":
    import tensorflow as tf
    import tensorflow_text
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    model = tf.saved_model.load(folder)
    def run(rows):
        return model.serve(tf.constant(rows["texts"]))
else:
    sys.path.insert(0, folder)
    from run_model import ExportedModel, generate
    model = ExportedModel(folder, threads=threads)
    def run(rows):
        ids = rows["ids"]
        if request["writes"]:
            source = {"sources" if "encode" in model.endpoints else "prompts": ids}
            return generate(model, **source, max_new_tokens=request["max_new_tokens"])
        length = max(map(len, ids))
        token_ids = np.zeros((len(ids), length), "int32")
        for row, one in enumerate(ids):
            token_ids[row, : len(one)] = one
        mask = np.arange(length) < np.array([[len(one)] for one in ids])
        inputs = {"token_ids": token_ids, "padding_mask": mask, "segment_ids": np.zeros_like(token_ids)}
        names = [field["name"] for field in model.endpoints["forward"]["inputs"]]
        return model("forward", **{name: inputs[name] for name in names})
batches = request["batches"]
run(batches[0])
start, milliseconds = time.perf_counter() - started, []
for rows in batches:
    run(rows)
    times = []
    for _ in range(request["rounds"]):
        begun = time.perf_counter()
        run(rows)
        times.append(time.perf_counter() - begun)
    milliseconds.append(1000 * statistics.median(times))
result = run(batches[-1])
if isinstance(result, dict):
    arrays = {name: np.asarray(value) for name, value in result.items()}
    result = {name: array.tolist() for name, array in arrays.items() if array.dtype.kind in "bfiu"}
elif not isinstance(result, list):
    result = result.numpy()
    is_text = result.dtype == object
    result = [text.decode("utf-8", "replace") for text in result] if is_text else result.tolist()
json.dump({"start": start, "milliseconds": milliseconds, "result": result}, open(sys.argv[2], "w"))
"""


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures a model in the formats of several runtimes."""

    model: str = setting(help="Folder of a run or directory of a saved model.", offers="paths")
    texts: str = setting(help="Text file with a text, prompt or source per line; at least 32.", offers="paths")
    formats: list[str] = setting(
        ["tf_saved_model", "onnx", "litert", "openvino"], "Formats to measure: tf_saved_model, onnx, litert, openvino."
    )
    weights: list[str] = setting(["float32", "int8"], "Types of weights to measure: float32, int8.")
    max_new_tokens: int = setting(
        32, "Number of tokens to generate for each text, if the model generates text.", above=0
    )
    threads: int = setting(1, "Number of threads per call.", above=0)
    rounds: int = setting(9, "Number of calls that are timed. Medians are reported.", above=0)
    output: str = setting("runs/benchmark/formats.json", "File for the figures.", offers="paths")


def main(config: Config) -> list[dict[str, Any]]:
    """Runs the benchmark and prints the table.

    Args:
        config: The configuration.

    Returns:
        For each format and kind of weights: bytes, seconds to the first answer, milliseconds of a call by batch size,
        and agreement.

    Raises:
        ConfigError: If a format is not known, or there are too few texts.
    """
    check_output_file(config.output)
    measured = (zoo.export.SAVED_MODEL, *zoo.export.RUNTIME_FORMATS)
    unknown = [name for name in config.formats if name not in measured]
    if unknown:
        raise ConfigError(f"formats must be among {', '.join(measured)}, got {unknown}")
    lines = [line for line in Path(config.texts).read_text(encoding="utf-8").splitlines() if line.strip()]
    if len(lines) < max(_BATCH_SIZES):
        raise ConfigError(f"texts: {config.texts} must hold at least {max(_BATCH_SIZES)} texts, got {len(lines)}")
    task = load_task(config.model)
    if isinstance(task, zoo.QuestionAnswerer) or getattr(task.preprocessor, "pairs", False):
        raise ConfigError(f"model: {config.model} takes two texts, and lines hold one")
    rows = _Rows(task, lines[: max(_BATCH_SIZES)], config.max_new_tokens)
    print("| format | weights | MB | first answer: s | batch 1: ms | batch 32: ms | largest difference | same |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    results = []
    for name in config.formats:
        for weights in config.weights if name != zoo.export.SAVED_MODEL else ["float32"]:
            results.append(_measure(task, rows, name, weights, config))
            print(_row(results[-1]), flush=True)
    write_results(config.output, {"config": dataclasses.asdict(config), "formats": results})
    return results


class _Rows:
    """Texts, their tokens, and what Python makes of them."""

    def __init__(self, task: zoo.Task, texts: list[str], max_new_tokens: int) -> None:
        self.texts, self.writes = texts, hasattr(task, "generate")
        preprocessor = task.preprocessor
        if self.writes:
            import tensorflow as tf

            prompts, sources = preprocessor.prompts(tf.constant(texts), None, True, task.longest, max_new_tokens)
            self.ids = (prompts if sources is None else sources).to_list()
            options = {"max_new_tokens": max_new_tokens, "sampler": "greedy", "jit_compile": False}
            given = {"prompts": self.ids} if sources is None else {"source": self.ids}
            made = task.generate_tokens(**given, **options)
            self.expected = [
                row[: length - end].tolist()
                for row, length, end in zip(made["token_ids"], made["lengths"], made["end_lengths"], strict=True)
            ]
            self.texts_expected = task.generate(texts, truncate=True, **options)
        else:
            inputs = preprocessor.inference_batch(preprocessor.check_rows(texts, "texts"))
            mask = np.asarray(inputs["padding_mask"])
            self.ids = [ids[real].tolist() for ids, real in zip(np.asarray(inputs["token_ids"]), mask, strict=True)]
            self.mask, forward = mask, task.token_endpoints()["forward"]
            tensors = [keras.ops.convert_to_tensor(inputs[field.name]) for field in forward.inputs]
            self.expected = {name: np.asarray(value) for name, value in forward.function(*tensors).items()}

    def batch(self, size: int) -> dict[str, Any]:
        return {"texts": self.texts[:size], "ids": self.ids[:size]}


def _measure(task: zoo.Task, rows: _Rows, name: str, weights: str, config: Config) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if rows.writes:
        options["max_new_tokens"] = config.max_new_tokens
        if name == zoo.export.SAVED_MODEL:
            options |= {"sampler": "greedy", "jit_compile": False, "truncate": True}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "export")
        task.export(folder, format=name, weights=weights, **options)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        request = {
            **{"folder": str(folder), "format": name, "threads": config.threads, "rounds": config.rounds},
            **{"writes": rows.writes, "max_new_tokens": config.max_new_tokens},
            "batches": [rows.batch(count) for count in _BATCH_SIZES],
        }
        Path(place, "request.json").write_text(json.dumps(request), encoding="utf-8")
        words = [sys.executable, "-c", _RUNNER, str(Path(place, "request.json")), str(Path(place, "result.json"))]
        finished = subprocess.run(words, capture_output=True, text=True)
        if finished.returncode:
            raise RuntimeError(f"{name}: {finished.stderr[-3000:]}")
        found = json.loads(Path(place, "result.json").read_text(encoding="utf-8"))
    times = dict(zip(_BATCH_SIZES, found["milliseconds"], strict=True))
    agreement = _agreement(rows, name, found["result"])
    return {
        "format": name,
        "weights": weights,
        "bytes": size,
        "start": found["start"],
        "milliseconds": times,
        **agreement,
    }


def _agreement(rows: _Rows, name: str, result: Any) -> dict[str, Any]:
    """Largest difference of numbers, and the share of rows, or of texts, with the same best choice."""
    if rows.writes:
        expected = rows.texts_expected if name == zoo.export.SAVED_MODEL else rows.expected
        same = [one == other for one, other in zip(result, expected, strict=True)]
        return {"largest_difference": None, "same": float(np.mean(same))}
    if not isinstance(result, dict):
        result = {next(iter(rows.expected)): result}
    shared = [key for key in rows.expected if key in result]
    if not shared:
        return {"largest_difference": None, "same": None}
    differences, same = [], []
    for key in shared:
        expected = rows.expected[key]
        if expected.ndim == 3:
            # behind the last token of a row there is nothing to compare
            length = np.shape(result[key])[1]
            expected, real = expected[:, :length], rows.mask[:, :length]
        else:
            real = np.ones(expected.shape[:1], "bool")
        found = np.asarray(result[key])
        if found.shape != expected.shape:
            return {"largest_difference": None, "same": None}
        differences.append(np.abs(found - expected)[real].max())
        if expected.ndim > 1 and expected.shape[-1] > 1:
            same.append(np.mean((found.argmax(-1) == expected.argmax(-1))[real]))
    return {"largest_difference": float(max(differences)), "same": float(np.mean(same)) if same else None}


def _row(result: dict[str, Any]) -> str:
    difference, same = result["largest_difference"], result["same"]
    cells = [
        *(result["format"], result["weights"], f"{result['bytes'] / 1e6:.1f}", f"{result['start']:.2f}"),
        *(f"{value:.1f}" for value in result["milliseconds"].values()),
        "" if difference is None else f"{difference:.1e}",
        "" if same is None else f"{100 * same:.1f} %",
    ]
    return f"| {' | '.join(cells)} |"
