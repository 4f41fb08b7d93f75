"""What commands write where nobody sees a terminal: no codes of terminals, no log of TensorFlow; quiet; configs."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from recipes.command.native_log import filtered_errors
from recipes.command.printing import has_bars, print_result, quiet_output

ROOT = Path(__file__).parents[3]
SMALL = """
training: {epochs: 2, batch_size: 4}
model: {options: {num_layers: 1, hidden_dim: 16, attention: {num_heads: 2}}}
tokenizer: {vocabulary_size: 300}
baseline: false
"""
RATED = (("fine", "good"), ("dull", "bad"))
LOG = re.compile(rb"^[IWEF]\d{4} |absl::|AVX", re.MULTILINE)


@pytest.fixture
def folder(tmp_path):
    rows = "".join(f"a {word} film {number}\t{label}\n" for number in range(6) for word, label in RATED)
    (tmp_path / "rows.tsv").write_text(rows)
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


FILES = ["--data.train", "rows.tsv", "--data.validation", "rows.tsv"]
CLASSIFY = ["-m", "recipes.classify", "--config", "small.yaml", *FILES]


def run(words, folder, **variables):
    """Runs Python; with PYTHONHASHSEED as a process of its own, which imports TensorFlow itself."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", **variables}
    if "TF_CPP_MIN_LOG_LEVEL" not in variables:
        environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
        done = subprocess.run(
            [sys.executable, *words], stdout=out, stderr=err, env=environment, cwd=folder, timeout=300
        )
    return done.returncode, (folder / "out").read_bytes(), (folder / "err").read_bytes()


@pytest.mark.slow
def test_a_run_in_files(folder):
    status, out, err = run(CLASSIFY, folder)
    assert status == 0, err
    for output in (out, err):
        assert b"\x1b" not in output and b"\r" not in output and b"\b" not in output
    assert not LOG.search(err) and not LOG.search(out)
    assert len(re.findall(rb"^epoch [12]/2: accuracy ", out, re.MULTILINE)) == 2
    assert re.search(rb"export: 'a fine film 0' -> probabilities of bad, good: \[0", out)


@pytest.mark.slow
def test_a_quiet_run_prints_its_results_alone(folder):
    status, out, err = run([*CLASSIFY, "--quiet"], folder)
    assert status == 0 and not err
    assert json.loads(out)["test_examples"] == 12
    status, out, err = run([*CLASSIFY, "--quiet", "--training.epochs", "3"], folder)
    assert status == 2 and not out and b"training.epochs" in err


@pytest.mark.parametrize("words", [["recipes.classify", "--help"], ["recipes", "recipes"], ["recipes", "presets"]])
def test_lists_in_files(words, tmp_path):
    status, out, err = run(["-m", *words], tmp_path)
    assert status == 0 and out and not err
    assert b"\x1b" not in out and b"\r" not in out


def test_a_printed_config_is_read_back(folder):
    words = [*CLASSIFY[2:], "--training.seed", "7", "--data.label_column", "2", "--model.options.num_layers", "3"]
    status, out, err = run(["-m", "recipes.classify", *words, "--print_config"], folder)
    assert status == 0 and not err and not (folder / "runs").exists()
    (folder / "printed.yaml").write_bytes(out)
    again = run(["-m", "recipes.classify", "--config", "printed.yaml", "--print_config"], folder)
    assert again == (0, out, b"")
    assert b"seed: 7\n" in out and b"num_layers: 3\n" in out and b"hidden_dim: 16\n" in out


def test_a_recipe_of_recipes_has_no_printed_config(tmp_path):
    status, out, err = run(["-m", "recipes.compare", "--recipe", "classify", "--print_config"], tmp_path)
    assert status == 2 and not out and b"--print_config must be given to the recipe itself" in err


@pytest.mark.slow
def test_the_level_leaves_out_all_but_the_lines_of_the_import(tmp_path):
    code = """
import os, sys
import tensorflow as tf
os.write(2, b"imported\\n")
tf.function(lambda x: x + 1, jit_compile=True)(tf.constant(1.0))
"""
    _, _, everything = run(["-c", code], tmp_path, TF_CPP_MIN_LOG_LEVEL="0")
    status, _, some = run(["-c", code], tmp_path, TF_CPP_MIN_LOG_LEVEL="3")
    assert status == 0 and some.endswith(b"imported\n")
    assert not everything.endswith(b"imported\n") and len(LOG.findall(some)) < len(LOG.findall(everything))


def test_a_bar_is_for_terminals(monkeypatch, capsys):
    assert not has_bars()
    main, terminal = pty.openpty()
    with open(terminal, "w") as screen:
        monkeypatch.delenv("NO_COLOR", raising=False)
        # a bar goes to the standard error: it is drawn while the output goes to a file, and not the other way round
        monkeypatch.setattr(sys, "stdout", screen)
        assert not has_bars()
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        assert has_bars()
        with quiet_output():
            assert not has_bars()
        monkeypatch.setenv("NO_COLOR", "1")
        assert not has_bars()
        monkeypatch.setenv("NO_COLOR", "")
        assert has_bars()
        monkeypatch.undo()
    os.close(main)


def test_quiet_output(capsys):
    with quiet_output():
        print("epoch 1")
        print_result("accuracy", 0.9)
    print("end")
    assert capsys.readouterr().out == "accuracy 0.9\nend\n"


def test_other_lines_than_those_of_the_log_stay(capfd):
    logged = b"I0000 00:00:1795830620.299023   19458 port.cc:153] oneDNN custom operations are on.\n"
    with pytest.raises(ImportError), filtered_errors():
        os.write(2, logged + b"E0001 mine\n")
        print("a warning", file=sys.stderr)
        raise ImportError
    assert sorted(capfd.readouterr().err.splitlines()) == ["E0001 mine", "a warning"]
