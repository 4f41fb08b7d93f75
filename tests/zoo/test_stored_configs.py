"""Configurations of saved files: written as they were, and read. See tests/reference/configs.py."""

import importlib.util
import json
from pathlib import Path

import keras
import pytest

import zoo

_FILE = Path(__file__).parents[1] / "reference" / "configs.py"
_specification = importlib.util.spec_from_file_location("reference_configs", _FILE)
configs = importlib.util.module_from_spec(_specification)
_specification.loader.exec_module(configs)

STORED = json.loads(configs.FILE.read_text(encoding="utf-8"))
STORED_MODELS = json.loads(configs.MODELS_FILE.read_text(encoding="utf-8"))
# Their configurations are those of a whole model or of its text side, and have tests of their own.
WHOLE = (zoo.Backbone, zoo.tasks.Task, zoo.preprocessing.Preprocessor, zoo.tokenizers.Tokenizer)
OTHERS = {"SavedPreprocessor", "ReplyLikelihoods"}


# What Keras writes of a layer that has no `get_config` of its own: defaults.
DEFAULTS = {"activity_regularizer": None, "autocast": True}


def without_modules(value):
    """What is stored without the modules of our classes, which Keras finds by their registered names."""
    if isinstance(value, list):
        return [without_modules(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    is_ours = str(value.get("registered_name")).startswith("keras_transformer_zoo>")
    return {name: without_modules(entry) for name, entry in value.items() if name != "module" or not is_ours}


def agrees(stored, before):
    """Whether a stored object has all that was stored before, at each depth. Its arguments may be more."""
    return _agree(without_modules(stored), without_modules(before), are_arguments=False)


def _agree(now, before, are_arguments):
    if isinstance(before, list) and isinstance(now, list):
        return len(now) == len(before) and all(_agree(*pair, False) for pair in zip(now, before, strict=True))
    if not isinstance(before, dict) or not isinstance(now, dict):
        return now == before
    known = {
        name: value for name, value in before.items() if not are_arguments or (name, value) not in DEFAULTS.items()
    }
    if not (known.keys() <= now.keys() if are_arguments else known.keys() == now.keys()):
        return False
    return all(_agree(now[name], value, name == "config") for name, value in known.items())


def has_all(now, before):
    """Whether a configuration has all choices that it had before, at each depth. It may have more."""
    if isinstance(before, dict) and isinstance(now, dict):
        return all(name in now and has_all(now[name], value) for name, value in before.items())
    return now == before


@pytest.mark.parametrize("name", configs.CASES)
def test_written_as_before(name):
    assert agrees(configs.stored(configs.made(name)), STORED[name])


@pytest.mark.parametrize("name", configs.CASES)
def test_stored_object_loads(name):
    now = configs.stored(configs.made(name))
    for stored in (STORED[name], now):
        loaded = keras.saving.deserialize_keras_object(stored)
        assert type(loaded) is type(configs.made(name))
        assert configs.stored(loaded) == now


def test_every_class_has_a_case():
    known = {f"keras_transformer_zoo>{name.split()[0]}" for name in configs.CASES}
    for name, found in keras.saving.get_custom_objects().items():
        package, _, short = name.partition(">")
        if package != "keras_transformer_zoo" or not isinstance(found, type) or short in OTHERS:
            continue
        if found.__module__.partition(".")[0] not in ("layers", "zoo"):  # of another test
            continue
        if issubclass(found, (*WHOLE, keras.optimizers.Optimizer)):
            continue
        assert name in known, name


@pytest.mark.parametrize("name", configs.MODELS)
def test_model_is_built_as_before(name):
    config, layers = STORED_MODELS[name]
    loaded = zoo.config.config_from_dict(config)
    assert loaded == configs.MODELS[name]()
    assert has_all(json.loads(loaded.to_json()), config)
    built = configs.parts(loaded)
    assert len(built) == len(layers) and all(map(agrees, built, layers))


# class, an attribute that is changed after construction, its argument
CHANGED = [
    ("ClassificationHead", "dropout", "dropout"),
    ("DynamicTanh", "initial_alpha", "alpha"),
    ("FeedForward", "dropout", "dropout"),
    ("FeedForward", "gate_limit", "gate_limit"),
    ("LayerNorm", "epsilon", "epsilon"),
    ("LowRankUpdate", "alpha", "alpha"),
    ("LowRankUpdate", "dropout", "dropout"),
    ("MixtureOfExperts", "dropout", "dropout"),
    ("MultiHeadAttention", "dropout_rate", "dropout"),
    ("MultiHeadAttention", "scale", "scale"),
    ("RotaryEmbedding", "base", "base"),
    ("Router", "load_balance_weight", "load_balance_weight"),
    ("TransformerBlock", "drop_path", "drop_path"),
    ("TransformerBlock", "dropout_rate", "dropout"),
    ("TransformerBlock", "branch_scale", "branch_scale"),
]


@pytest.mark.parametrize(("name", "attribute", "argument"), CHANGED)
def test_changed_attribute_is_written(name, attribute, argument):
    changed = configs.made(name)
    setattr(changed, attribute, 0.625)
    assert changed.get_config() == {**configs.made(name).get_config(), argument: 0.625}
