"""Runs of a recipe that differ in a few choices and in the seed: choices, commands, and the numbers that came out."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recipes.common import config as configs
from recipes.common.config_sources import read_word
from recipes.common.errors import ConfigError, shown
from recipes.common.processes import python_command
from recipes.common.run_folder import changes, find_run, read_metrics, validation_unit

# the result that a recipe is known by: the first of these that it has
MAIN_METRICS = (
    *("sacreBLEU", "rougeL", "validation_bits_per_character", "validation_nll_per_hidden_token", "ndcg@10"),
    *("ndcg@10 after", "spearman", "micro_f1", "entity_f1", "span_f1", "f1", "accuracy", "test_reward_accuracy"),
    *("exact_match", "validation_nll_per_token"),
)
_LONGEST_NAME = 100


class Choice(NamedTuple):
    """Values of the keys that are varied, what pictures call them, and the name of their folder."""

    values: dict[str, Any]
    label: str
    folder: str


def read_choices(vary: Sequence[str]) -> list[Choice]:
    """Returns all combinations of values.

    Args:
        vary: `KEY=VALUE,VALUE,...` each; values are YAML, so that they may be numbers, lists, mappings or null.

    Raises:
        ConfigError: If something is of another form, or a key or a value is given twice.

    Example:

    >>> [choice.label for choice in read_choices(["model.pooling=mean,first", "training.seed=1"])]
    ['mean, 1', 'first, 1']
    """
    varied: dict[str, list[Any]] = {}
    for text in vary:
        name, equals, values = text.partition("=")
        if not name or not equals:
            raise ConfigError(f"vary must be KEY=VALUE,VALUE, got {shown(text)}")
        if name in varied:
            raise ConfigError(f"vary: {name} is given twice; one list takes all values")
        found = read_word(f"[{values}]", f"vary: {name}")
        if not isinstance(found, list) or not found:
            raise ConfigError(f"vary: {name} must have values separated by commas, got {shown(values)}")
        if len({json.dumps(value, sort_keys=True) for value in found}) < len(found):
            raise ConfigError(f"vary: {name} has a value twice: {shown(values)}")
        varied[name] = found
    return [_choice(dict(zip(varied, values, strict=True))) for values in itertools.product(*varied.values())]


def written(value: Any) -> str:
    """Returns a value as tables, pictures and names of folders show it: no two are written alike.

    Args:
        value: A value of YAML.

    Example:

    >>> written("rotary"), written(1), written("1")
    ('rotary', '1', '"1"')
    """
    if isinstance(value, str) and "," not in value:
        with contextlib.suppress(ConfigError):
            if read_word(value, "") == value:
                return value
    return json.dumps(value)


def _choice(values: dict[str, Any]) -> Choice:
    as_texts = {name: written(value) for name, value in values.items()}
    label = ", ".join(as_texts.values()) or "as it is"
    exact = ",".join(f"{name}={value}" for name, value in as_texts.items()) or "as_it_is"
    name = re.sub(r"[^\w.,=+-]+", "_", exact)[:_LONGEST_NAME]
    if name != exact:
        name += "-" + hashlib.sha256(exact.encode()).hexdigest()[:8]
    return Choice(values, label, name)


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A run of a recipe: one choice, one seed.

    Args:
        module: The recipe, as `python -m` takes it.
        config: Its config, with a folder of its own.
        choice: The choice.
        seed: The seed.
        folder: Folder of all runs, for the log and the file of the config.
    """

    module: str
    config: Any
    choice: Choice
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        """What tells it from the other runs; a path below their folder."""
        return f"{self.choice.folder}/seed_{self.seed}"

    @property
    def log(self) -> Path:
        """The file of what it prints."""
        return self.folder / "logs" / f"{self.name}.log"

    @property
    def unit(self) -> str:
        """What the rows of its curves are: epochs, or rounds of `training.evaluate_every` batches."""
        return validation_unit(self.config.training)

    @property
    def steps(self) -> int:
        """Epochs of the whole run."""
        return getattr(self.config.training, "epochs", 1)

    def steps_done(self) -> int:
        """Returns the epochs that it has been trained."""
        # an epoch may have several validations
        return min(len(self.curves()), self.steps)

    def command(self) -> list[str]:
        """Returns the command, which reads the config from a file that is written now."""
        path = self.folder / "configs" / f"{self.name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        configs.save(self.config, path)
        return python_command(self.module, "--config", str(path))

    def curves(self) -> list[dict[str, str]]:
        """Returns the rows of its `metrics.csv`, one for each validation, see `unit`."""
        return read_metrics(Path(self.config.run_folder))

    def has_ended(self) -> bool:
        """Returns whether it has results and no final step has failed, see `StoredRun`."""
        run = find_run(self.config.run_folder)
        return run is not None and run.has_ended

    def numbers(self) -> dict[str, float] | None:
        """Returns the numbers among its results; None where no run with this config has any."""
        run = find_run(self.config.run_folder)
        if run is None or run.results is None or changes(run.config_yaml, self.config, may_change=True):
            return None
        return numbers_of(run.results)


def numbers_of(results: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Returns the numbers among results by name; scores of a group have the group's name before theirs.

    Args:
        results: What a recipe writes to `results.json`.
        prefix: What names begin with.

    Example:

    >>> numbers_of({"sacreBLEU": {"value": 30.1, "signature": "..."}, "<2de>": {"exact_match": 0.5}})
    {'sacreBLEU': 30.1, '<2de>.exact_match': 0.5}
    """
    numbers: dict[str, float] = {}
    for name, value in results.items():
        if isinstance(value, Mapping):
            inner = numbers_of(value, f"{prefix}{name}.")
            single = inner.pop(f"{prefix}{name}.value", None)
            numbers.update(inner if single is None else {f"{prefix}{name}": single, **inner})
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            numbers[prefix + name] = value
    return numbers


def main_metric(runs: Sequence[Mapping[str, float]]) -> str | None:
    """Returns the name of the result that a recipe is known by, one that all runs have if there is any.

    Args:
        runs: The numbers of each run.

    Returns:
        The name; None if no run has one of those that are known here.
    """
    for has in (all, any):
        for name in MAIN_METRICS:
            if runs and has(name in numbers for numbers in runs):
                return name
    return None
