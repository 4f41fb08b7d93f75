"""The benchmark of an accelerator: what is counted, limits, what is written, and tiny runs on a processor."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from recipes.benchmark.accelerator import command, plan, report
from recipes.benchmark.accelerator.devices import peak_operations
from recipes.benchmark.accelerator.jobs import MARK, Job, say
from recipes.benchmark.accelerator.kernels import traced_kernels
from recipes.benchmark.accelerator.processes import Process, Run
from recipes.benchmark.accelerator.shapes import SHAPES, Shape, training_operations

ROOT = Path(__file__).parents[3]
needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")


def test_operations_are_those_of_the_products():
    def product(rows, inner, columns):
        return 2 * rows * inner * columns

    def scores(length):
        return 2 * 2 * product(length, 8, length)  # queries by keys, weights by values, two heads

    # 2 heads of 8 share one of keys and values; gate, up and down
    shape = Shape("", "decoder", 50, 16, 32, 3, 2, 1, gated=True)
    attention = 2 * product(7, 16, 16) + 2 * product(7, 16, 8)
    forward = 3 * (attention + 3 * product(7, 16, 32) + scores(3) + scores(4)) + product(5, 16, 50)
    assert training_operations(shape, [3, 4], scored=5) == 3 * forward
    # weights that do not train have no gradients
    products = forward - 3 * (scores(3) + scores(4))
    assert training_operations(shape, [3, 4], scored=5, frozen=True) == 3 * forward - products
    both = Shape("", "encoder_decoder", 50, 16, 32, 3, 2, 2)
    attention = 4 * product(7, 16, 16) + scores(3) + scores(4)
    forward = 3 * (3 * attention + 2 * 2 * product(7, 16, 32)) + product(7, 16, 50)
    assert training_operations(both, [3, 4], scored=7) == 3 * forward
    # 6 N + 12 L d T, where N leaves out position table, biases and norms
    weights = 124_439_808 - 1024 * 768 - 12 * (4 * 768 + 5 * 768 + 4 * 768) - 2 * 768
    wanted = 6 * weights + 12 * 12 * 768 * 1024
    assert training_operations(SHAPES["gpt2_small"], [1024], scored=1024) / 1024 == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_those_of_the_presets(name):
    import zoo

    shape = SHAPES[name]
    config = zoo.preset_config(shape.preset)
    assert config.architecture == shape.architecture and config.feed_forward.gated == shape.gated
    sizes = ("vocabulary_size", "hidden_dim", "num_layers")
    assert [getattr(config, size) for size in sizes] == [getattr(shape, size) for size in sizes]
    assert config.feed_forward.intermediate_dim == shape.intermediate_dim
    heads = config.attention.num_heads, config.attention.num_key_value_heads or config.attention.num_heads
    assert heads == (shape.num_heads, shape.num_key_value_heads)


def test_batches():
    job = Job("", SHAPES["bert_base"].tiny(), "masked", batch_size=5, length=12)
    batch, again = job.batch(3), job.batch(3)
    assert all(np.array_equal(batch[name], again[name]) for name in batch)
    assert batch["padding_mask"].sum(axis=1).tolist() == [6, 7, 9, 10, 12] == job.lengths.tolist()
    assert job.tokens == 44 and dataclasses.replace(job, shape=SHAPES["t5_small"]).tokens == 88
    places = batch["masked_positions"]
    assert places.shape == (5, 1) and np.all(places < job.lengths[:, None])
    whole = Job("", SHAPES["gpt2_small"].tiny(), "causal", batch_size=2, length=9).batch(0)
    assert whole["padding_mask"].all() and np.array_equal(whole["token_ids"][:, 1:], whole["labels"][:, :-1])
    assert Job.from_json(json.loads(json.dumps(dataclasses.asdict(job)))) == job


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H200", 989),
        ("NVIDIA A100-SXM4-40GB", 312),
        ("NVIDIA A10", 125),
        ("NVIDIA L40S", 362),
        ("cpu", None),
        ("NVIDIA GeForce RTX 3060", None),
    ],
)
def test_peaks(name, teraflops):
    assert peak_operations(name) == (teraflops and teraflops * 1e12)


def interpreter(folder, script):
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def said(**row):
    return f"echo '{MARK}{json.dumps(row)}'"


def rows_of(run, seconds, python=sys.executable):
    with Process(run, python) as process:
        yield from process.rows(seconds)


RUN = Run("gpt2", "zoo", "keras_training", (Job("a"), Job("b"), Job("c")), 60)


def test_a_limit_ends_the_process_and_what_it_has_started(tmp_path):
    alive = tmp_path / "alive"
    script = [
        said(kind="row", name="a", loss=1.0),
        said(kind="done", name="a"),
        said(kind="progress", done="7 passed"),
        f"(sleep 3; touch {alive}) &",
        "sleep 60",
    ]
    started = time.monotonic()
    rows = list(rows_of(RUN, 1.5, interpreter(tmp_path, "\n".join(script))))
    assert time.monotonic() - started < 20
    assert rows[0] == {"part": "gpt2", "library": "zoo", "kind": "row", "name": "a", "loss": 1.0}
    assert [row["failed"] for row in rows[1:]] == ["not done within 2 s, with 7 passed", "not begun within 2 s"]
    time.sleep(3)
    assert not alive.exists()


def test_a_row_has_a_line_of_its_own(capsys):
    print("....", end="")
    say({"kind": "progress", "done": "4 passed"})
    assert f'{MARK}{{"kind": "progress", "done": "4 passed"}}' in capsys.readouterr().out.splitlines()


def test_a_process_that_ends_says_why(tmp_path):
    script = [said(kind="row", name="a", loss=1.0), said(kind="done", name="a"), "echo no memory >&2", "exit 3"]
    rows = list(rows_of(RUN, 60, interpreter(tmp_path, "\n".join(script))))
    assert [row["name"] for row in rows] == ["a", "b", "c"]
    assert rows[1]["failed"] == rows[2]["failed"] == "the process ended with code 3: no memory"


def test_a_library_that_is_not_installed(tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    paths = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    run = Run("gpt2", "transformers", "torch_training", (Job("a", SHAPES["gpt2_small"]),), 60, paths)
    assert [row["left_out"] for row in rows_of(run, 60)] == ["torch is not installed"]


def test_all_parts_together_have_a_limit(tmp_path, monkeypatch, capsys):
    clock = [100.0]
    begun = []

    class Fake:
        def __init__(self, run, python):
            self.run, self.python = run, python
            open_now.append(self)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            if self in open_now:
                open_now.remove(self)

        def rows(self, seconds):
            # this one measures, and the next one imports
            assert 1 <= len(open_now) <= 2
            begun.append((self.run.part, self.run.library, seconds, self.python))
            clock[0] += seconds
            row = {"part": self.run.part, "library": self.run.library}
            yield {**row, "kind": "device", "device": "NVIDIA H100 80GB HBM3", "versions": {"jax": "1"}}
            for job in self.run.jobs:
                yield {**row, "kind": "row", "name": job.name, "failed": "not done"}

    open_now = []
    monkeypatch.setattr(command, "Process", Fake)
    monkeypatch.setattr(command.time, "monotonic", lambda: clock[0])
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    script = interpreter(tmp_path, "exit 1")
    results = command.main(["--output", str(tmp_path), "--transformers_python", script])
    assert results["seconds"] <= 350 and sum(seconds for _, _, seconds, _ in begun) == pytest.approx(350)
    assert all(seconds >= plan.LEAST_SECONDS for _, _, seconds, _ in begun)
    assert {python for _, library, _, python in begun if library == "transformers"} == {script}
    planned = [job.name for run in plan.runs(tiny=False, cache_folder="") for job in run.jobs]
    assert [row["name"] for row in results["rows"]] == planned
    assert results["rows"][-1]["left_out"] == "not begun: the 350 s of all parts were over"
    output = capsys.readouterr().out
    assert "There is no figure: no row has tokens per second." in output and "989 TFLOP/s" in output
    assert not open_now
    begun.clear()
    command.main(["--parts", "t5", "--libraries", "zoo", "--output", str(tmp_path)])
    assert [(part, library) for part, library, _, _ in begun] == [("t5", "zoo")]


def test_every_part_is_planned_for_this_library():
    for tiny in (True, False):
        runs = plan.runs(tiny=tiny, cache_folder="")
        assert {run.part for run in runs if run.library == "zoo"} == set(plan.PARTS)
        assert {run.library for run in runs} == set(plan.LIBRARIES)
        # a row has one name per library
        names = [(run.part, run.library, job.name) for run in runs for job in run.jobs]
        assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--parts", "gpt3"], "invalid choice: 'gpt3'"),
        (["--seconds", "0"], "must be above 0, got 0"),
        (["--transformers_python", "/nowhere"], "must be a Python interpreter, got '/nowhere'"),
    ],
)
def test_wrong_words(words, message, monkeypatch, capsys):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with pytest.raises(SystemExit):
        command.main(words)
    assert message in capsys.readouterr().err


def test_another_backend(monkeypatch, capsys):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    with pytest.raises(SystemExit):
        command.main([])
    assert "KERAS_BACKEND must be jax or not set for this benchmark, got 'torch'" in capsys.readouterr().err


def test_tables_and_figure(tmp_path):
    work = {"part": "gpt2", "name": "g", "first_step_seconds": 13.04, "peak_bytes": 3 * 2**30}
    rows = [
        {**work, "library": "zoo", "tokens_per_second": 200_000.0, "operations_per_second": 247.25e12},
        {**work, "library": "transformers", "tokens_per_second": 400_000.0, "operations_per_second": 494.5e12},
        {"part": "gpt2", "name": "h", "library": "zoo", "failed": "RuntimeError: a | b\nc"},
        {
            "part": "generation",
            "name": "i",
            "library": "keras_hub",
            "tokens_per_second": 7.0,
            **dict(list(work.items())[2:]),
        },
        {
            **{"part": "attention", "name": "causal", "library": "zoo", "path": "fused", "is_chosen": True},
            **{"kernel": "cuDNN", "forward_seconds": 1e-4, "both_seconds": 2.9e-4, "temporary_bytes": None},
            **{"error": 0.004, "gradient_error": 0.002},
        },
        {
            "part": "tests",
            "name": "t",
            "library": "zoo",
            "outcomes": {"passed": 1200, "failed": 1},
            "failed_tests": ["x::y"],
        },
    ]
    kernels = [
        {"name": "g", "kernels": [["nvjet_N", 0.03], ["fusion", 0.01]], "busy_seconds": 0.04, "step_seconds": 0.05}
    ]
    results = {
        "rows": rows,
        "kernels": kernels,
        "device": "NVIDIA H100 80GB HBM3",
        "versions": {"jax": "0.11.2"},
        "seconds": 9,
        "tiny": False,
    }
    text = report.table(results)
    assert text.startswith("Device: NVIDIA H100")
    # or somebody takes the speed of two narrow layers for that of the model that a row names
    warned = report.table({**results, "tiny": True})
    assert warned.endswith(f", and their figures mean nothing.\n\n{text}")
    assert "| g | zoo | 200,000 | 25.0% | 13.0 s | 3,072 MiB |  |" in text
    assert "| g | transformers | 400,000 | 50.0% | 13.0 s | 3,072 MiB | 0.50 |" in text
    assert "| h | zoo | RuntimeError: a / b c |  |  |  |  |" in text
    assert "| i | keras_hub | 7 |  | 13.0 s | 3,072 MiB |  |" in text
    assert "| causal | **fused** | cuDNN | 0.100 | 0.290 |  | 4.0e-03 | 2.0e-03 |" in text
    assert "| t | zoo | 1 failed, 1,200 passed; x::y |" in text
    assert "A step takes 50.0 ms by the clock. Its kernels take 40.0 ms." in text
    assert "| `nvjet_N` | 30.00 | 75.0% |" in text
    for part in plan.PARTS:
        if any(row["part"] == part for row in rows):
            columns = report.heading(part).splitlines()[0].count("|")
            assert all(
                line.count("|") == columns for line in text.split(f"## {part}:")[1].split("\n\n")[1].splitlines()
            )
    assert report.plot(rows, tmp_path / "a.png") is None
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


@needs_jax
def test_kernels_of_a_device(monkeypatch):
    def event(name, seconds, **stats):
        return SimpleNamespace(name=name, duration_ns=1e9 * seconds, stats=list(stats.items()))

    def planes(on_gpu):
        stream = [event("nvjet_128x256_1", 0.5), event("nvjet_64x256_2", 0.25), event("fusion.17", 0.125)]
        modules = [event("jit_train_step", 0.875)]
        host = [event("fusion.3", 2.0, hlo_op="fusion.3"), event("dot", 1.0)]
        gpu = [SimpleNamespace(name="Stream #13", events=stream), SimpleNamespace(name="XLA Modules", events=modules)]
        found = [SimpleNamespace(name="/host:CPU", lines=[SimpleNamespace(name="XLA threads", events=host)])]
        return [*found, SimpleNamespace(name="/device:GPU:0", lines=gpu)] if on_gpu else found

    import jax

    @contextlib.contextmanager
    def trace(folder):
        yield
        Path(folder, "a.xplane.pb").write_bytes(b"")

    monkeypatch.setattr(jax.profiler, "trace", trace)
    for on_gpu, wanted in ((True, [("nvjet_NxN", 0.75), ("fusion", 0.125)]), (False, [("fusion", 2.0)])):
        profile = SimpleNamespace(from_file=lambda _, on_gpu=on_gpu: SimpleNamespace(planes=planes(on_gpu)))
        monkeypatch.setattr(jax.profiler, "ProfileData", profile)
        assert traced_kernels(lambda: None) == wanted


# what a machine with a GPU may lack
BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, *rest):
        if name.split(".")[0] in (
            *("tensorflow", "tensorflow_text", "keras_hub", "keras_nlp", "matplotlib"),
            *("jsonargparse", "pooch", "nltk", "sacremoses", "rouge_score"),
        ):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""
WITH_LITTLE_INSTALLED = f"""
{BLOCKED}
sys.argv[1:] = ["accelerator", "--help"]
import recipes.benchmark.__main__
try:
    recipes.benchmark.__main__.main()
except SystemExit as error:
    assert not error.code
assert "keras.src" not in sys.modules and "jax" not in sys.modules
"""


def test_help_without_the_extra_of_the_recipes():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", WITH_LITTLE_INSTALLED], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "--parts PART" in done.stdout and "lora         training updates of low rank" in done.stdout


def failures(rows):
    return [row for row in rows if "failed" in row or "left_out" in row]


@pytest.mark.slow
@needs_jax
def test_tiny_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    # the text is packed and tokenized on the way, where there is TensorFlow
    results = command.main(["--tiny", "--parts", "attention", "gpt2", "--libraries", "zoo", "--output", str(tmp_path)])
    assert not failures(results["rows"])
    trained = [row for row in results["rows"] if row["part"] == "gpt2"]
    assert len(trained) == 3
    for row in trained:
        assert row["loss"] == pytest.approx(np.log(512), rel=0.1) and row["tokens_per_second"] > 0
    attention = [row for row in results["rows"] if row["part"] == "attention"]
    assert {row["name"] for row in attention} == {"causal", "lengths", "padding", "causal lengths", "causal padding"}
    for row in attention:
        assert row["error"] < 0.02 and row["gradient_error"] < 0.02 and row["both_seconds"] > 0
    assert {row["path"] for row in attention} >= {"plain", "fused"}
    assert all(sum(row["is_chosen"] for row in attention if row["name"] == name) == 1 for name in ("causal", "padding"))
    assert results["kernels"][0]["busy_seconds"] > 0
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["rows"] == results["rows"] and written["tiny"] and "jax" in written["versions"]
    assert (tmp_path / "results.md").read_text() in capsys.readouterr().out
    assert (tmp_path / "results.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
@needs_jax
def test_tiny_models_without_tensorflow(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(BLOCKED)
    planned = [run for run in plan.runs(tiny=True, cache_folder="") if run.library == "zoo"]
    jobs = tuple(job for run in planned if run.part in ("bert", "t5", "lora") for job in run.jobs)
    text = next(job for run in planned for job in run.jobs if job.goal == "text")
    paths = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), *sys.path])}
    rows = list(rows_of(Run("", "zoo", "keras_training", (*jobs, text), 300, paths), 300))
    assert len(jobs) == 4 and [row["name"] for row in rows[1:-1]] == [job.name for job in jobs]
    assert not failures(rows[1:-1])
    for row, job in zip(rows[1:-1], jobs, strict=True):
        assert row["loss"] == pytest.approx(np.log(2 if job.goal == "classes" else 512), rel=0.15)
    assert "tensorflow" in rows[-1]["left_out"]


@needs_jax
@pytest.mark.slow
def test_tiny_generation_first_calls_and_tests(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    parts = ["generation", "first_call", "tests"]
    results = command.main(["--tiny", "--parts", *parts, "--libraries", "zoo", "--output", str(tmp_path)])
    assert not failures(results["rows"])
    empty, filled = (row for row in results["rows"] if row["part"] == "first_call")
    assert filled["first_step_seconds"] < empty["first_step_seconds"]
    assert [row["outcomes"]["passed"] > 5 for row in results["rows"] if row["part"] == "tests"] == [True]


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize("library", ["keras_hub", "transformers"])
def test_tiny_runs_of_others(tmp_path, monkeypatch, library):
    pytest.importorskip("torch" if library == "transformers" else "keras_hub")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    words = ["--tiny", "--libraries", library, "--seconds", "900", "--output", str(tmp_path)]
    results = command.main(words)
    assert results["rows"] and not failures(results["rows"])
