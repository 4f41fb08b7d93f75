"""The comparison with other libraries: what is counted, who runs, what is written."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from recipes.benchmark import comparison
from recipes.benchmark.configurations import operations_of
from recipes.benchmark.contestant import Contestant, ContestantError, Turn
from recipes.benchmark.libraries import keras_hub as theirs
from recipes.benchmark.libraries import zoo as ours
from recipes.benchmark.works import WORKS, Work
from recipes.common.errors import ConfigError

TINY = Work("train", "decoder", 2, 6, 1, 16, 2, 32, 50, dropout=0.1)
WORKS_OF_EACH = {
    "train_decoder": TINY,
    "train_encoder_decoder": dataclasses.replace(TINY, model="encoder_decoder"),
    "infer": dataclasses.replace(TINY, job="infer", model="encoder", dropout=0.0),
    "generate": dataclasses.replace(TINY, job="generate", dropout=0.0, new_tokens=3),
}


@pytest.fixture
def policy():
    before = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(before)


def test_operations_are_those_of_the_products():
    def product(rows, inner, columns):
        return 2 * rows * inner * columns

    rows, width, wide, length, words = 12, 16, 32, 6, 50
    projection, pair = product(rows, width, width), 2 * product(length, width // 2, length) * 2 * 2
    feed_forward = 2 * product(rows, width, wide)
    head = product(rows, width, words)
    layer = 4 * projection + pair + feed_forward
    assert operations_of(TINY) == 3 * (layer + head)
    # the encoder, and a decoder that attends twice
    both = dataclasses.replace(TINY, model="encoder_decoder")
    assert operations_of(both) == 3 * (layer + layer + 4 * projection + pair + head)
    assert operations_of(dataclasses.replace(TINY, job="infer", model="encoder")) == layer
    # from the fourth token on, when three are held, to the fifth: five and a half in the mean
    written = dataclasses.replace(TINY, job="generate", batch_size=1, length=4, new_tokens=3)
    token = 4 * product(1, width, width) + 2 * product(1, width, wide) + product(1, width, words)
    assert operations_of(written) == 3 * (token + 2 * product(1, width, 1) * 5.5)
    assert written.bytes_read == 4 * 3 * (4 * width * width + 2 * width * wide + width * words)
    assert (both.items, written.items, WORKS["infer_encoder"].items) == (24, 3, 32)


@pytest.mark.slow
@pytest.mark.parametrize("library", [ours, theirs], ids=["zoo", "keras_hub"])
@pytest.mark.parametrize("work", WORKS_OF_EACH.values(), ids=WORKS_OF_EACH)
def test_works_are_done(library, work, policy):
    step = library.make(work)
    first, second = step(), step()
    if work.job == "train":
        # from about log(words) down
        assert np.all(np.array([first, second]) < np.log(work.vocabulary_size) + 1.5)
        assert np.all(np.array([first, second]) > np.log(work.vocabulary_size) - 1.5)
    elif work.job == "infer":
        hidden = first["sequence_output"] if isinstance(first, dict) else first
        assert hidden.shape == (2, 6, 16) and np.isfinite(hidden).all()
    else:
        ids = np.asarray(first["token_ids"])
        assert ids.shape in ((2, 3), (2, 9))  # the new tokens, or the prompts too
        np.testing.assert_array_equal(ids, second["token_ids"])


def test_a_process_that_fails_says_why():
    with Contestant("no_such", TINY, {}) as process, pytest.raises(ContestantError, match="No module named"):
        process.turn(1)


def test_a_python_of_its_own_finds_the_benchmark_from_any_folder(tmp_path, monkeypatch):
    """It has neither the packages of this one nor its paths."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    with (
        Contestant("transformers", TINY, {}, str(python)) as process,
        pytest.raises(ContestantError, match="No module named '(torch|transformers|numpy)'"),
    ):
        process.turn(1)


def test_what_is_not_there_is_said(tmp_path, capsys):
    with pytest.raises(ConfigError, match="transformers_python: .*/nowhere"):
        comparison.main(comparison.Config(transformers_python="/nowhere"))
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(ConfigError, match="libraries: none of transformers is installed"):
        comparison.main(comparison.Config(libraries=["transformers"], transformers_python=str(python)))
    assert "--transformers_python names another Python" in capsys.readouterr().out


def test_tables_and_pictures(tmp_path):
    turns = [Turn(0.5, 1.0, 2**30), Turn(0.4, 0.8, 2**30), Turn(0.8, 1.2, 2**31)]
    work = WORKS["train_decoder"]
    row = comparison.summary(work, turns, {"float32": 1e11, "bfloat16": 2e11})
    assert row["items_per_second"] == 2048 / 0.5 and (row["slowest"], row["fastest"]) == (2048 / 0.8, 2048 / 0.4)
    assert row["processor_seconds"] == 1.0 and row["peak_bytes"] == 2**31
    assert row["share_of_ceiling"] == pytest.approx(operations_of(work) / 1e11)
    written = WORKS["generate"]
    row_of_texts = comparison.summary(written, turns, {"memory": 2e10})
    assert row_of_texts["share_of_ceiling"] == pytest.approx(written.bytes_read / 0.5 / 2e10)
    failed = {"modes": {"float32": {"failed": "Traceback\nImportError: no torch"}}}
    libraries = {"zoo": {**row, "best": "float32"}, "keras_hub": {**row, "best": "float32", "speed_of_the_first": 1.5}}
    works = {"train_decoder": {"unit": "tokens", "libraries": {**libraries, "transformers": failed}}}
    table = comparison.table(works)
    assert (
        "| train_decoder, tokens | keras_hub | float32 | 4,096 (2,560 to 5,120) | 1.000 | 1.84 | 2,048 MiB | 1.50 |"
        in table
    )
    assert "| train_decoder | transformers | failed: ImportError: no torch |" in table
    comparison.plot(works, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="elsewhere the peak is that of the parent, too")
def test_memory_is_that_of_the_process_alone():
    """A process of a few megabytes, begun by one that holds many more."""
    held = np.ones(100 << 18, "float32")
    code = "from recipes.benchmark.peak_memory import peak_resident_bytes; print(peak_resident_bytes())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 1 << 20 < int(done.stdout) < held.nbytes
