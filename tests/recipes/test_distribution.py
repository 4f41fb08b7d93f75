"""Recipes on several devices and in several processes: the numbers of one device, one writer, a killed process."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import filelock
import keras
import pytest
from distributed_runs import needs_jax
from fork_server import process_of

import zoo
from recipes import launch
from recipes.common.config import parse
from recipes.common.errors import ConfigError
from recipes.common.training.fitting import prepare
from recipes.distill import DistillConfig
from recipes.distill import check as check_distill
from recipes.language_model import LanguageModelConfig

ROOT = Path(__file__).parents[2]
TEXT = "".join(f"{a} plus {b} is {a + b}.\n" for a in range(20) for b in range(12))
TRAINING = [
    # batches that two devices do not divide
    *("--training.epochs", "2", "--training.batch_size", "7", "--training.warmup_steps", "2"),
    *("--training.batches_per_epoch", "6", "--training.length", "16", "--training.save_every", "2"),
    *("--prompts", "1", "2 plus", "--new_tokens", "8"),
]

# TensorFlow makes exports
ON_JAX = ["--export", "false"]


def environment(**variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KERAS_")}
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests/helpers")])
    return {**kept, "PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", **variables}


def words(folder, run, *more, dropout=0.0, start_from=None):
    sizes = {"num_layers": 1, "hidden_dim": 16, "feed_forward": {"intermediate_dim": 16}, "dropout": dropout}
    model = ["--model.preset", "llama_shakespeare", "--model.options", json.dumps(sizes)]
    if start_from is not None:
        model = ["--model.start_from", str(start_from)]
    (folder / "train.txt").write_text(TEXT)
    (folder / "validation.txt").write_text(TEXT[::3])
    files = ["--data.train", str(folder / "train.txt"), "--data.validation", str(folder / "validation.txt")]
    return [*TRAINING, *model, *files, "--run_folder", str(folder / run), *more]


def run(command, **variables):
    result = subprocess.run(command, capture_output=True, text=True, env=environment(**variables), cwd=ROOT)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    return result.stdout


def measures(folder):
    """Metrics of the epochs and results of a run, without times."""
    with open(folder / "metrics.csv", newline="") as file:
        rows = [
            {name: float(value) for name, value in row.items() if "second" not in name and name != "loss"}
            for row in csv.DictReader(file)
        ]
    results = json.loads((folder / "results.json").read_text())
    return rows, {name: value for name, value in results.items() if "nll" in name}


def assert_same(found, expected):
    for ours, theirs in zip(measures(found)[0], measures(expected)[0], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-4)
    assert measures(found)[1] == pytest.approx(measures(expected)[1], rel=1e-3)


MIRRORED = """
import sys, tensorflow as tf
processor = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
from recipes.common.config import run_recipe
from recipes.language_model import LanguageModelConfig, main
run_recipe(main, LanguageModelConfig, "language_model", sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow")
def test_mirrored_run_has_the_numbers_of_one_device_and_resumes_on_one(tmp_path):
    one = [sys.executable, "-m", "recipes.language_model"]
    # the export of the resumed run is looked at
    run([*one, *words(tmp_path, "one", "--export", "false")])
    two = [sys.executable, "-c", MIRRORED]
    stops = ["--training.callbacks", '[{"class": "stop_training.StopAt", "batch": 9}]']
    result = subprocess.run(
        [*two, *words(tmp_path, "two", "--training.distribution", "mirrored", *stops)],
        **{"capture_output": True, "text": True, "env": environment(), "cwd": ROOT},
    )
    assert result.returncode == 9, result.stderr[-3000:]
    assert ", on 2 devices, mirrored\n" in result.stdout
    # the rest of the training on one device
    run([*one, *words(tmp_path, "two", *stops)], STOPPED="1")
    assert_same(tmp_path / "two", tmp_path / "one")
    assert (tmp_path / "two/export/two/1/saved_model.pb").exists()
    assert len(list((tmp_path / "two/samples").iterdir())) == 2


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--training.jit_compile", "true"], "training.jit_compile must be false .* got true"),
        (["--training.accumulation_steps", "2"], "training.accumulation_steps must be null .* got 2"),
        (["--training.dtype", "mixed_float16"], "training.dtype must be float32 or mixed_bfloat16"),
    ],
)
def test_what_mirrored_cannot_do_is_said_before_data_are_read(monkeypatch, words, message):
    monkeypatch.setattr(zoo.distribution, "use", lambda distribution: None)  # this process has one device
    config = parse(LanguageModelConfig, ["--training.distribution", "mirrored", *words])
    with pytest.raises(ConfigError, match=message):
        prepare(config)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow")
@pytest.mark.slow
def test_mirrored_run_with_dropout_resumes_exactly(tmp_path):
    """Replicas go on with the random numbers that they would have had."""
    stops = ["--training.callbacks", '[{"class": "stop_training.StopAt", "batch": 9}]']
    stops += ["--training.distribution", "mirrored"]
    two = [sys.executable, "-c", MIRRORED]
    run([*two, *words(tmp_path, "whole", *stops, dropout=0.3)], STOPPED="1")
    command = [*two, *words(tmp_path, "parts", *stops, dropout=0.3)]
    assert subprocess.run(command, capture_output=True, env=environment(), cwd=ROOT).returncode == 9
    assert "resuming in epoch 2" in run(command, STOPPED="1")
    run([sys.executable, "-m", "recipes.language_model", *words(tmp_path, "one", dropout=0.3)])
    parts, whole, one = (measures(tmp_path / name)[0] for name in ("parts", "whole", "one"))
    for ours, theirs, others in zip(parts, whole, one, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6)
        # or nothing was dropped
        assert others["nll"] != pytest.approx(theirs["nll"], rel=1e-5)


FROZEN = [
    *("--model.freeze", "token_embedding", "--model.rematerialize", "true", "--training.layer_decay", "0.8"),
    *("--training.patience", "1", "--training.average_checkpoints", "2", "--training.epochs", "3"),
]
LOW_RANK = ["--model.lora.rank", "2", "--training.patience", "1", "--training.weights", "best"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "distribution", {"tensorflow": ["mirrored"], "jax": ["data", "model"]}.get(keras.backend.backend(), [])
)
def test_choices_of_a_training(tmp_path, distribution):
    """What is frozen, computed again, scaled by layer, averaged, stopped early, and low-rank updates of the result."""
    on_jax = keras.backend.backend() == "jax"
    one = [sys.executable, "-m", "recipes.language_model"]
    several = one if on_jax else [sys.executable, "-c", MIRRORED]
    devices = {"KERAS_BACKEND": keras.backend.backend(), "JAX_NUM_CPU_DEVICES": "2"}
    for name, choices in (("frozen", FROZEN), ("low_rank", LOW_RANK)):
        start = tmp_path / "frozen/model" if name == "low_rank" else None
        given = words(tmp_path, name, *choices, *(ON_JAX if on_jax else []), start_from=start)
        run([*one, *given], **{**devices, "JAX_NUM_CPU_DEVICES": "1"})
        more = ["--training.distribution", distribution, "--run_folder", str(tmp_path / f"{name}_of_several")]
        run([*several, *given, *more], **devices)
        found = tmp_path / f"{name}_of_several"
        assert_same(found, tmp_path / name)
        assert (found / "model_card.md").exists() and list((found / "samples").iterdir())
        assert zoo.CausalLM.from_preset(found / "model").generate(["2 plus"], max_length=12)[0].startswith("2 plus")
    assert (found / "adapter").exists()


@pytest.fixture(scope="module")
def one_on_jax(tmp_path_factory):
    """The folder of a run on one device, which those of several are compared with."""
    folder = tmp_path_factory.mktemp("jax")
    run([sys.executable, "-m", "recipes.language_model", *words(folder, "one", *ON_JAX)], KERAS_BACKEND="jax")
    return folder / "one"


@pytest.mark.slow
@needs_jax
def test_processes_have_the_numbers_of_one_device(tmp_path, one_on_jax):
    two = [sys.executable, "-m", "recipes.launch", "--processes", "2", "recipes.language_model"]
    for distribution in ("data", "model"):
        output = run([*two, *words(tmp_path, distribution, *ON_JAX, "--training.distribution", distribution)])
        assert_same(tmp_path / distribution, one_on_jax)
        assert output.count("validation_nll_per_token") == 1
        mesh = {"data": "data 2, model 1", "model": "data 1, model 2"}[distribution]
        assert f", on devices along the axes {mesh}, of 2 processes\n" in output


@pytest.mark.slow
@needs_jax
def test_a_killed_process_ends_the_others_and_the_run_resumes(tmp_path, one_on_jax):
    one = [sys.executable, "-m", "recipes.language_model"]
    slow = ["--training.callbacks", '[{"class": "slow_training.Slow"}, {"class": "stop_training.StopAt", "batch": 5}]']
    more = [*ON_JAX, "--training.distribution", "data", *slow]
    command = [sys.executable, "-m", "recipes.launch", "--processes", "2", "recipes.language_model"]
    command += words(tmp_path, "two", *more)
    launcher = subprocess.Popen(
        command, env=environment(STOPPED="1"), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    states = tmp_path / "two/checkpoints/state"
    deadline = time.monotonic() + 240
    while not list(states.glob("epoch-00000-batch-0000000[24]")) and time.monotonic() < deadline:
        assert launcher.poll() is None, launcher.communicate()
        time.sleep(0.1)
    pid = process_of(launcher.pid)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    began = time.monotonic()
    os.kill(int(children[1]), signal.SIGKILL)
    _, errors = launcher.communicate(timeout=120)
    assert time.monotonic() - began < 60
    assert launcher.returncode == 128 + signal.SIGKILL
    assert "process 1 of 2 ended with signal 9 (SIGKILL), and the others were stopped" in errors
    assert "lost the others" in errors and "resumes from the last saved state" in errors
    # on four devices of one process, and then on one device
    mesh = words(tmp_path, "two", *ON_JAX, *slow, "--training.distribution", "{fsdp: 2, model: 2}")
    result = subprocess.run(
        [*one, *mesh],
        **{"capture_output": True, "text": True, "cwd": ROOT},
        env=environment(KERAS_BACKEND="jax", JAX_NUM_CPU_DEVICES="4"),
    )
    assert result.returncode == 9 and "resuming in epoch 1" in result.stdout, result.stderr[-3000:]
    assert ", on devices along the axes fsdp 2, model 2, of 1 process\n" in result.stdout
    output = run([*one, *words(tmp_path, "two", *ON_JAX, *slow)], KERAS_BACKEND="jax", STOPPED="1")
    assert "resuming in epoch 2" in output
    assert_same(tmp_path / "two", one_on_jax)


@needs_jax
@pytest.mark.slow
def test_killed_in_a_save_on_a_mesh_of_two_processes(tmp_path, one_on_jax):
    """Nothing of the state that was half written is taken, and the numbers are those of a run without a kill."""
    command = [sys.executable, "-m", "recipes.launch", "--processes", "2", "recipes.language_model"]
    kills = ["--training.callbacks", '[{"class": "stop_training.KillInSave", "save": 3}]']
    command += words(tmp_path, "two", *ON_JAX, "--training.distribution", "{data: 2, model: 2}", *kills)
    devices = {"JAX_NUM_CPU_DEVICES": "2"}
    killed = subprocess.run(command, capture_output=True, text=True, env=environment(**devices), cwd=ROOT)
    assert killed.returncode == 128 + signal.SIGKILL, killed.stderr[-3000:]
    assert ", on devices along the axes data 2, model 2, of 2 processes\n" in killed.stdout
    assert "process 0 of 2 ended with signal 9 (SIGKILL), and the others were stopped" in killed.stderr
    assert re.search("error: process 1 of 2 lost (process 0|the others)", killed.stderr)
    left = os.listdir(tmp_path / "two/checkpoints/state")
    assert sum(name.endswith(".incomplete") for name in left) == 1
    assert "epoch-00000-batch-00000002" in left and "epoch-00000-batch-00000004" not in left
    output = run(command, **devices, STOPPED="1")
    assert "resuming in epoch 1" in output
    assert_same(tmp_path / "two", one_on_jax)
    assert not any(name.endswith(".incomplete") for name in os.listdir(tmp_path / "two/checkpoints/state"))


@pytest.mark.sampled(1)
@needs_jax
@pytest.mark.parametrize("mistake", ["a folder in use", "an error of the first process"])
def test_what_stops_one_process_stops_all(tmp_path, mistake):
    """At once: without end(), the process that failed would wait for the others, and they for it."""
    more = [*ON_JAX, "--training.distribution", "data"]
    command = [sys.executable, "-m", "recipes.launch", "--processes", "2", "recipes.language_model"]
    lock = filelock.FileLock(tmp_path / "two/run.lock")
    if mistake == "a folder in use":
        (tmp_path / "two").mkdir()
        lock.acquire()
    else:
        # the tokenizer is trained by the first one alone
        more += ["--tokenizer.kind", "bpe", "--tokenizer.vocabulary_size", "2"]
    command += words(tmp_path, "two", *more)
    result = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=60)
    lock.release()
    assert ("is in use by another process" if mistake == "a folder in use" else "error: tokenizer") in result.stderr
    assert "process 0 of 2 ended with status 2, and the others were stopped" in result.stderr
    assert result.returncode == 2


def test_mistakes(tmp_path, capsys):
    backend = keras.backend.backend()
    wrong = "data" if backend != "jax" else "mirrored"
    config = parse(LanguageModelConfig, ["--training.distribution", wrong, "--export", "false"])
    with pytest.raises(ConfigError, match=f"training.distribution.*got '{backend}'"):
        prepare(config)
    config = parse(DistillConfig, ["--training.distribution", wrong, "--export", "false"])
    with pytest.raises(ConfigError, match="training.distribution must be null with recipes.distill"):
        check_distill(config)
    for key, value in (("jit_compile", "true"), ("accumulation_steps", "2"), ("dtype", "mixed_float16")):
        given = ["--training.distribution", "mirrored", f"--training.{key}", value, "--export", "false"]
        with pytest.raises(ConfigError, match=f"training.{key} must be .* with training.distribution mirrored"):
            prepare(parse(LanguageModelConfig, given))
    for given, message in (
        (["--processes", "1", "recipes.translate"], "--processes must be at least 2, got 1"),
        (["--processes", "2"], "required: recipe"),
    ):
        with pytest.raises(SystemExit):
            launch.main(given)
        assert message in capsys.readouterr().err


def test_the_launcher_without_jax(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    with pytest.raises(SystemExit):
        launch.main(["--processes", "2", "recipes.language_model"])
    assert 'pip install "keras-transformer-zoo[jax]"' in capsys.readouterr().err


@needs_jax
def test_the_launcher_names_its_own_command_to_go_on(tmp_path, capsys):
    """Not that of one process, which would train without the others."""
    assert launch.main(["--processes", "2", "no_such_recipe", "--seed", "4"]) == 1
    command = "python -m recipes.launch --processes 2 no_such_recipe --seed 4"
    assert capsys.readouterr().err.endswith(f"from the last saved state: {command}\n")

    (tmp_path / "learn.py").write_text(
        "import dataclasses, sys, time\n"
        "from recipes.common.config import run_recipe, setting\n"
        "@dataclasses.dataclass(frozen=True)\n"
        "class Config:\n"
        '    """Learns."""\n'
        "    resumes = True\n"
        "    seed: int = setting(0, 'Seed.')\n"
        "def main(config):\n"
        "    print('begun', flush=True)\n"
        "    time.sleep(60)\n"
        "run_recipe(main, Config, 'learn')\n"
    )
    paths = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    launcher = subprocess.Popen(
        [sys.executable, "-m", "recipes.launch", "--processes", "2", "learn", "--seed", "4"],
        **{"env": environment(PYTHONPATH=paths), "cwd": ROOT, "text": True},
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE},
        # which a shell in the background has taken from its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert [launcher.stdout.readline() for _ in range(2)] == ["begun\n"] * 2
    launcher.send_signal(signal.SIGINT)
    _, errors = launcher.communicate(timeout=60)
    assert launcher.returncode == 130
    command = "python -m recipes.launch --processes 2 learn --seed 4"
    lines = [line for line in errors.splitlines() if line]
    assert lines[-1] == f"recipes.launch: interrupted; the same command resumes from the last saved state: {command}"
    assert lines[:-1] == ["recipes.learn: interrupted"] * 2


def test_each_process_has_a_gpu_of_its_own(monkeypatch, capsys):
    for given, expected in (
        (None, [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]),
        ("4,7", [{"CUDA_VISIBLE_DEVICES": "4"}, {"CUDA_VISIBLE_DEVICES": "7"}]),
        # no GPU, as the user has it
        ("", [{}, {}]),
    ):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if given is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        assert [launch._device(index) for index in range(2)] == expected
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with pytest.raises(SystemExit):
        launch.main(["--processes", "3", "recipes.translate"])
    assert "CUDA_VISIBLE_DEVICES must name a GPU for each of 3 processes" in capsys.readouterr().err


def test_mesh_on_the_command_line():
    config = parse(LanguageModelConfig, ["--training.distribution", "{data: 4, model: 2}"])
    assert config.training.distribution == {"data": 4, "model": 2}
    with pytest.raises(ConfigError, match="training.distribution"):
        parse(LanguageModelConfig, ["--training.distribution", "mirorred"])
