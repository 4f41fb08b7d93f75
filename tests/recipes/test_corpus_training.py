"""Training on prepared corpora, killed and gone on with, also on another number of processes: the same weights."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

pytest.importorskip("array_record", reason="the extra 'corpus' is not installed")
pytest.importorskip("datasketch", reason="the extra 'corpus' is not installed")

from distributed_runs import needs_jax  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402

from recipes import prepare_text  # noqa: E402
from recipes.common.config import parse  # noqa: E402
from zoo.tokenizers import ByteLevelBPETokenizer  # noqa: E402
from zoo.tokenizers.byte_alphabet import byte_characters  # noqa: E402

ROOT = Path(__file__).parents[2]
END = "<|endoftext|>"
LENGTH, ROWS, BATCHES, EPOCHS, STOP = 16, 6, 6, 2, 9
OPTIONS = [
    *("--model.preset", "llama_shakespeare", "--export", "false", "--prompts", "1", "--new_tokens", "4"),
    *("--model.options", '{"num_layers": 1, "hidden_dim": 16, "feed_forward": {"intermediate_dim": 16}}'),
    *("--training.epochs", str(EPOCHS), "--training.batch_size", str(ROWS), "--training.warmup_steps", "2"),
    *("--training.batches_per_epoch", str(BATCHES), "--training.length", str(LENGTH), "--training.save_every", "2"),
    *("--training.callbacks", f'[{{"class": "stop_training.StopAt", "batch": {STOP}}}]'),
]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Two corpora, the second of which is gone through several times."""
    folder = tmp_path_factory.mktemp("corpora")
    options = {"pad_token": END, "start_token": END, "end_token": END}
    ByteLevelBPETokenizer([END, *byte_characters()], [], **options).save(folder / "tokenizer")
    for name, sign in (("plus", "+"), ("minus", "-")):
        lines = [
            f"{a} {sign} {b} = {eval(f'{a} {sign} {b}')}" for a in range(20) for b in range(3 if sign == "-" else 9)
        ]
        (folder / f"{name}.txt").write_text("\n".join(lines))
        words = ["--input", str(folder / f"{name}.txt"), "--tokenizer", str(folder / "tokenizer"), "--unit", "line"]
        words += ["--output", str(folder / name), "--length", str(LENGTH), "--validation", "0.1", "--processes", "1"]
        prepare_text.main(parse(prepare_text.PrepareTextConfig, words))
    return folder


def start(corpora, run, processes=1, **variables):
    names = ["--data.train", str(corpora / "plus"), str(corpora / "minus"), "--data.weights", "2", "1"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KERAS_")}
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests/helpers")])
    kept |= {"PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", **variables}
    launched = ["recipes.launch", "--processes", str(processes)] if processes > 1 else []
    shared = ["--training.distribution", "data"] if processes > 1 else []
    command = [sys.executable, "-m", *launched, "recipes.language_model", *OPTIONS, *names, *shared]
    command += ["--run_folder", str(run)]
    return subprocess.run(command, capture_output=True, text=True, env=kept, cwd=ROOT)


def state(run):
    """Weights, moments of the optimizer and all else that a run goes on from, after its last batch."""
    return load_file(run / f"checkpoints/state/epoch-{EPOCHS:05d}-batch-00000000/tensors.safetensors")


def losses(run):
    with open(run / "metrics.csv", newline="") as file:
        return [{name: float(row[name]) for name in ("nll", "val_nll")} for row in csv.DictReader(file)]


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow")
def test_killed_in_an_epoch(corpora, tmp_path):
    whole = start(corpora, tmp_path / "whole", KERAS_BACKEND="tensorflow", STOPPED="1")
    assert whole.returncode == 0, whole.stderr[-3000:]
    killed = start(corpora, tmp_path / "killed", KERAS_BACKEND="tensorflow")
    assert killed.returncode == 9, killed.stderr[-3000:]
    gone_on = start(corpora, tmp_path / "killed", KERAS_BACKEND="tensorflow", STOPPED="1")
    assert gone_on.returncode == 0, gone_on.stderr[-3000:]
    assert "resuming in epoch 2" in gone_on.stdout
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    found, expected = state(tmp_path / "killed"), state(tmp_path / "whole")
    assert len(expected) > 20 and found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.slow
@needs_jax
def test_killed_and_gone_on_with_on_another_number_of_processes(corpora, tmp_path):
    whole = start(corpora, tmp_path / "whole", KERAS_BACKEND="jax", STOPPED="1")
    assert whole.returncode == 0, whole.stderr[-3000:]
    for first, second in ((2, 1), (1, 2)):
        run = tmp_path / f"{first} and {second}"
        killed = start(corpora, run, first, KERAS_BACKEND="jax")
        assert killed.returncode == 9, killed.stderr[-3000:]
        gone_on = start(corpora, run, second, KERAS_BACKEND="jax", STOPPED="1")
        assert gone_on.returncode == 0, gone_on.stderr[-3000:]
        assert "resuming in epoch 2" in gone_on.stdout
        for ours, theirs in zip(losses(run), losses(tmp_path / "whole"), strict=True):
            assert ours == pytest.approx(theirs, rel=1e-4)
        found, expected = state(run), state(tmp_path / "whole")
        assert len(expected) > 20 and found.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-3, atol=1e-4, err_msg=key)
