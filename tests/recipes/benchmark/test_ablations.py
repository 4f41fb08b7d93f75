"""The benchmark of mechanisms for speed, on the model that needs no weights."""

import json

import pytest

from recipes.benchmark import ablations
from recipes.benchmark.libraries.real_models import MECHANISMS, MODELS
from recipes.common.config import parse
from recipes.common.errors import ConfigError


@pytest.mark.slow
def test_a_row_for_each_mechanism(tmp_path, capsys):
    path = tmp_path / "a.json"
    words = ["--models", "train translation", "--mechanisms", "Adam by one kernel", "--rounds", "1", "--calls", "1"]
    (row,) = ablations.main(parse(ablations.Config, [*words, "--output", str(path)]))
    assert (row["model"], row["without"]) == ("train translation", "Adam by one kernel")
    assert all(row[name] > 0 for name in ("first", "seconds", "processor", "memory"))
    assert json.loads(path.read_text())["rows"] == [row]
    assert "| train translation | Adam by one kernel |" in capsys.readouterr().out


@pytest.mark.slow
def test_every_mechanism_is_where_it_is_left_out():
    """In a process of its own, as parts of the library are replaced."""
    import subprocess
    import sys

    program = "from recipes.benchmark.libraries.real_models import MECHANISMS; [f() for f in MECHANISMS.values()]"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0
    assert set(ablations.WITHOUT_USE) == set(MODELS)
    assert set(ablations.MECHANISMS) == set(MECHANISMS)
    assert {name for names in ablations.WITHOUT_USE.values() for name in names} <= set(MECHANISMS)


@pytest.mark.parametrize("name", ["models", "mechanisms"])
def test_names_are_checked(name):
    with pytest.raises(ConfigError, match=f"{name}.*none of these"):
        ablations.main(ablations.Config(**{name: ["none of these"]}))
