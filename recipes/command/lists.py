"""Which recipes, configs and presets there are, found without importing any of them."""

import ast
import importlib.util
import re
import textwrap
import tomllib
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1]
CONFIGS = FOLDER / "configs"


def recipes() -> dict[str, str]:
    """Returns the first line of what each recipe says of itself, by name, without importing any.

    Example:

    >>> recipes()["tag"]
    'Tag: words, or spans of raw texts, with their entities or parts of speech.'
    """
    files = [path for path in FOLDER.glob("*.py") if not path.name.startswith("__")]
    packages = [path for path in FOLDER.glob("*/__main__.py")]
    lines = {}
    for path in (*files, *packages):
        name = path.stem if path in files else path.parent.name
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines[name] = docstring.partition("\n")[0]
    return dict(sorted(lines.items()))


class ListedPreset(NamedTuple):
    """A preset that comes with the library: encoder, decoder, ..., its number of weights, and a sentence about it."""

    kind: str
    parameters: int
    summary: str


def presets() -> dict[str, ListedPreset]:
    """Returns the presets that come with the library, by name: the smallest of each kind first.

    Example:

    >>> presets()["gpt2_small"].parameters
    124439808
    """
    # where it is, without running it
    (folder,) = importlib.util.find_spec("zoo").submodule_search_locations
    kinds = tomllib.loads(Path(folder, "presets", "catalogue.toml").read_text(encoding="utf-8"))
    return {
        name: ListedPreset(kind, facts["parameters"], facts["description"])
        for kind, named in sorted(kinds.items())
        for name, facts in sorted(named.items(), key=lambda item: item[1]["parameters"])
    }


class ConfigFile(NamedTuple):
    """A config that comes with the recipes: its file, the recipe it is for, and the first sentence of its comment."""

    path: Path
    recipe: str
    summary: str


def configs() -> dict[str, ConfigFile]:
    """Returns the configs that come with the recipes, by name.

    Example:

    >>> configs()["multi30k_tiny"].recipe
    'translate'
    """
    found = {}
    for path in sorted(CONFIGS.glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        command = re.search(rf"python -m recipes\.(\w+) --config recipes/configs/{path.name}", text)
        if command is None:
            raise ValueError(f"{path} must say in a comment how it is run.")
        found[path.stem] = ConfigFile(path, command[1], _first_sentence(text))
    return found


def _first_sentence(text: str) -> str:
    """The first sentence of the comment that a config begins with, as much of it as fits a line."""
    paragraph = re.match(r"(?:# .*\n)+", text)[0].replace("# ", "").replace("\n", " ")
    return textwrap.shorten(re.split(r"(?<=\.) (?=[A-Z])", paragraph)[0], 120, placeholder=" ...")


def config_path(name: str) -> str:
    """Returns the file that `--config` names: that of a config which comes with the recipes, or one of the user's.

    Args:
        name: The name of such a config, or a path. A file of that name in the working directory comes first.

    Example:

    >>> config_path("multi30k_tiny").endswith("recipes/configs/multi30k_tiny.yaml")
    True
    """
    own = CONFIGS / f"{name}.yaml"
    return str(own) if re.fullmatch(r"\w+", name) and own.exists() and not Path(name).exists() else name
