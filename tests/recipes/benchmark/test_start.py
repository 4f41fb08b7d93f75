"""The benchmark of the start: what is called how often, and what the table says."""

import json

import pytest

from recipes.benchmark import start
from recipes.benchmark.contestant import Turn
from recipes.common.errors import ConfigError


def test_each_process_starts_once(tmp_path, monkeypatch, capsys):
    begun = []

    class Process:
        def __init__(self, library, work, mode, python):
            assert mode == {"jit_compile": True}
            self.library, self.work = library, work

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def turn(self, calls):
            begun.append((self.library, self.work.job, self.work.new_tokens, self.work.num_layers, calls))
            # per call
            return Turn(len(begun) / calls, 3.0, 0)

    monkeypatch.setattr(start, "Contestant", Process)
    path = tmp_path / "start.json"
    results = start.main(start.Config(jit_compile=True, output=str(path)))
    works = [("train", 0, 6, 2), ("generate", 1, 6, 1), ("train", 0, 24, 2)]
    assert begun == [(library, *work) for work in works for _ in range(3) for library in ("zoo", "keras_hub")]
    assert results["two steps of training"]["zoo"] == {"seconds": 3.0, "processor_seconds": 6.0}
    assert results["one token"]["keras_hub"] == {"seconds": 10.0, "processor_seconds": 3.0}
    assert json.loads(path.read_text())["starts"] == results
    assert "| one token | zoo | 9.00 | 3.00 |" in capsys.readouterr().out


def test_a_library_that_there_is_not():
    with pytest.raises(ConfigError, match=r"libraries must be among .*, got \['hub'\]"):
        start.main(start.Config(libraries=["zoo", "hub"]))
