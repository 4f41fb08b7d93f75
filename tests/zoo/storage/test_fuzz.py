"""Mutated files load, or end in an error that names file and key; `tests/fuzz.py` tries more of them, for longer."""

import importlib.util
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("fuzz", Path(__file__).parents[2] / "fuzz.py")
fuzz = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fuzz)

pytest.importorskip("tensorflow_text")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    return folder, fuzz.make_seeds(folder)


@pytest.mark.parametrize(
    "kind, count",
    [
        ("huggingface_tokenizer", 30),
        ("tokenizer", 20),
        ("checkpoint", 12),
        ("adapter", 4),
        ("from_preset", 10),
        ("preset", 8),
        ("llama2c", 5),
        ("gguf", 8),
    ],
)
def test_mutated_files(seeds, tmp_path, kind, count):
    folder, known = seeds
    known = [seed for seed in known if seed["kind"] == kind]
    for number in range(count):
        seed = known[number * 7 % len(known)]
        case = fuzz.prepare(folder, seed, number, 1, tmp_path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = fuzz.attempt(seed, case, (folder / seed["folder"] / seed["file"]).read_bytes())
        assert result["outcome"] in ("loaded", "error"), (number, seed, result["text"])
        assert result["seconds"] < fuzz.SECONDS, (number, seed)
        assert fuzz.is_within_memory(result, case), (number, seed, result["megabytes"])
        assert result["outcome"] == "loaded" or result["place"] in fuzz.PLACES


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="this system does not tell which processes are whose")
def test_the_memory_of_a_case_is_that_of_its_own_processes():
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleep) as earlier, fuzz._Children() as children:
        time.sleep(0.2)
        assert children.megabytes == 0
        with subprocess.Popen(sleep) as own:
            ends = time.monotonic() + 30
            # a process begins with a page
            while children.megabytes <= 1 and time.monotonic() < ends:
                time.sleep(0.05)
            own.kill()
        earlier.kill()
    assert children.megabytes > 1
