"""Rows of the tables of weights: each names layers that a model of the Transformers library has."""

import collections
import json
from pathlib import Path

from zoo import Backbone
from zoo.huggingface import read_config
from zoo.huggingface.family import all_families, get_family
from zoo.huggingface.weights import named_layers, numbers_of
from zoo.storage.deferred import shapes_only

REFERENCE = Path(__file__).parents[2] / "reference" / "huggingface"


def rows_without_layers(table, layers):
    """What a table says of layers that are not there."""
    for ours, theirs in table.items():
        names = (ours,) if isinstance(ours, str) else ours
        numbers = numbers_of(names[0], layers)
        if not any({name.replace("{}", number) for name in names} <= set(layers) for number in numbers):
            yield names, getattr(theirs, "name", theirs)


def test_each_row_names_a_layer_of_some_model():
    unused, families = collections.Counter(), collections.Counter()
    for case in sorted(REFERENCE.iterdir()):
        family = get_family(json.loads((case / "config.json").read_text())["model_type"])
        config = read_config(case)
        with shapes_only():
            layers = named_layers(Backbone.from_config(config))
        table = family.table_of(config)
        left = set(rows_without_layers(table, layers))
        # families share tables, of which each has a part
        for ours, theirs in table.items():
            row = ((ours,) if isinstance(ours, str) else ours, getattr(theirs, "name", theirs))
            unused[row] += row not in left
        families[family.model_type] += 1
    assert [row for row, count in unused.items() if not count] == []
    assert set(families) == {family.model_type for family in all_families()}


def test_a_row_without_a_layer_is_found():
    layers = {"token_embedding": None, "encoder.0.norm": None, "encoder.1.norm": None}
    table = {"token_embedding": "wte", "encoder.{}.norm": "h.{}.ln", "encoder.{}.nrom": "h.{}.ln_2"}
    assert list(rows_without_layers(table, layers)) == [(("encoder.{}.nrom",), "h.{}.ln_2")]
