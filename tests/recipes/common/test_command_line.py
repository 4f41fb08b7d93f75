import dataclasses

import pytest

from recipes.common import command_line
from recipes.common.config import setting
from recipes.common.errors import DataError


@dataclasses.dataclass(frozen=True)
class Config:
    """A config."""

    seed: int = setting(1, "Seed.")


def test_recipe_gets_the_config():
    seen = []
    command_line.run(seen.append, Config, "learn", ["--seed", "4"])
    assert seen == [Config(4)]


@pytest.mark.parametrize("arguments", [["--sead", "4"], []])
def test_mistake_of_the_user_is_one_message(capsys, arguments):
    def main(config):
        raise DataError("file not found: a.txt")

    with pytest.raises(SystemExit) as stop:
        command_line.run(main, Config, "learn", arguments)
    assert stop.value.code == 2
    message = "unknown key --sead; did you mean --seed?" if arguments else "file not found: a.txt"
    assert capsys.readouterr().err == f"recipes.learn: error: {message}\n"


def test_bug_keeps_its_traceback():
    def main(config):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        command_line.run(main, Config, "learn", [])
