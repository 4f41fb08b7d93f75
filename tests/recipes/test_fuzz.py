"""Mutated configurations and data files are read or refused in one line; `tests/fuzz_recipes.py` does more."""

import importlib.util
from pathlib import Path

import pytest

specification = importlib.util.spec_from_file_location("fuzz_recipes", Path(__file__).parents[1] / "fuzz_recipes.py")
fuzz_recipes = importlib.util.module_from_spec(specification)
specification.loader.exec_module(fuzz_recipes)


@pytest.mark.parametrize("kind", ["configuration", "data_file"])
def test_mutations(kind, capsys):
    results = [fuzz_recipes.attempt(getattr(fuzz_recipes, kind), 0, number) for number in range(150)]
    # both ends are met
    assert {"read", "refused"} == set(results)
