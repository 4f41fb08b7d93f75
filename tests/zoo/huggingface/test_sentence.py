"""Models as Sentence Transformers 6 saves them: read with equal vectors and scores, and written back."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import zoo  # noqa: E402

REFERENCE = Path(__file__).parents[2] / "reference" / "sentence"
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
# options that the files say
EMBEDDERS = {
    "mean": {"pooling": "mean", "normalize": True, "sequence_length": 10, "default_prompt": "query"},
    "cls": {"pooling": "first", "projections": [{"units": 5, "activation": "tanh", "use_bias": True}]},
    "max": {"pooling": "max", "normalize": False, "projections": [], "truncate": True},
    "sqrt": {
        "pooling": "mean_sqrt",
        "normalize": True,
        "projections": [{"units": units, "activation": "identity", "use_bias": False} for units in (12, 6)],
    },
    "weighted": {
        "pooling": "weighted_mean",
        "projections": [{"units": 4, "activation": "gelu", "use_bias": True}],
        "prompts": {"query": "", "document": ""},
    },
    "last": {"pooling": "last", "normalize": True, "sequence_length": 24},
}
SCORERS = {"sigmoid": ("multi_label", 1), "identity": ("regression", 1), "classes": ("single_label", 3)}


def golden(case):
    return json.loads((REFERENCE / case / "golden.json").read_text())


def write(model, folder, expected):
    """Writes what `tests/reference/sentence.py FOLDER` reads."""
    model.save_to_huggingface(folder / "model")
    (folder / "expected.json").write_text(json.dumps(expected))


def same_settings(case, folder):
    """The files of modules hold what that library wrote, but for its versions."""
    for file in sorted((REFERENCE / case).rglob("*.json")):
        name = file.relative_to(REFERENCE / case)
        if str(name) in ("config.json", "golden.json") or name.name.startswith("tokenizer"):
            continue
        theirs, ours = (json.loads(path.read_text()) for path in (file, folder / name))
        if isinstance(theirs, dict):
            theirs.pop("__version__", None)
        assert ours == theirs, name


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", EMBEDDERS)
def test_embedders(case, tmp_path):
    expected = golden(case)
    model = zoo.Task.from_preset(REFERENCE / case)
    assert isinstance(model, zoo.TextEmbedder) and EMBEDDERS[case].items() <= model.options().items()
    np.testing.assert_allclose(model.embed(expected["texts"]), expected["vectors"], **TOLERANCE)
    if "documents" in expected:
        vectors = model.embed(expected["texts"], prompt="document")
        np.testing.assert_allclose(vectors, expected["documents"], **TOLERANCE)
    write(model, tmp_path, expected)
    same_settings(case, tmp_path / "model")
    again = zoo.Task.from_preset(tmp_path / "model")
    assert again.options() == model.options()
    np.testing.assert_array_equal(again.embed(expected["texts"]), model.embed(expected["texts"]))


@pytest.mark.slow
def test_projections_are_kept_and_trained(tmp_path):
    model = zoo.Task.from_preset(REFERENCE / "cls")
    texts = golden("cls")["texts"][:3]
    assert model.embed(texts).shape == (3, 5) and model.width == 5
    before = np.array(model.projections[0].kernel)
    model.compile("sgd")
    model.fit((texts, texts[::-1]), verbose=0)
    assert np.abs(np.array(model.projections[0].kernel) - before).max() > 0
    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "model.keras")
    import keras

    for again in (zoo.Task.from_preset(tmp_path / "preset"), keras.saving.load_model(tmp_path / "model.keras")):
        np.testing.assert_allclose(again.embed(texts), model.embed(texts), **TOLERANCE)
    model.enable_lora(2)
    with pytest.raises(ValueError, match="projections of a TextEmbedder .* got 1"):
        model.save_adapter(tmp_path / "adapter")
    with pytest.raises(ValueError, match="activation of a projection must be one of .*, got 'none'"):
        zoo.TextEmbedder(model.backbone, projections=[{"units": 3, "activation": "none"}])
    with pytest.raises(ValueError, match="units of a projection must be from 1 to .*, got 0"):
        zoo.TextEmbedder(model.backbone, projections=[{"units": 0}])


@pytest.mark.parametrize("case", SCORERS)
def test_cross_encoders(case, tmp_path):
    expected = golden(case)
    model = zoo.Task.from_preset(REFERENCE / case)
    problem, count = SCORERS[case]
    options = model.options()
    assert isinstance(model, zoo.TextClassifier)
    assert (options["problem"], options["labels"], options["pairs"]) == (problem, count, True)
    first, second = map(list, zip(*expected["pairs"], strict=True))
    found = model.predict((first, second))
    if problem == "single_label":  # the library leaves the softmax to its caller
        scores = np.exp(expected["scores"])
        np.testing.assert_allclose(found, scores / scores.sum(-1, keepdims=True), **TOLERANCE)
    else:
        np.testing.assert_allclose(np.ravel(found), expected["scores"], **TOLERANCE)
    write(model, tmp_path, expected)
    same_settings(case, tmp_path / "model")
    again = zoo.Task.from_preset(tmp_path / "model")
    assert again.options() == options
    np.testing.assert_array_equal(again.predict((first, second)), found)


@pytest.mark.parametrize(
    ("case", "file", "changes", "message"),
    [
        ("mean", "1_Pooling/config.json", {"pooling_mode": ["mean", "cls"]}, "pooling_mode must be one of .* got"),
        ("mean", "1_Pooling/config.json", {"pooling_mode": "median"}, "pooling_mode must be one of .*, got 'median'"),
        ("mean", "2_Normalize/config.json", {"module_input_name": "x"}, "module_input_name must be .*, got 'x'"),
        ("cls", "2_Dense/config.json", {"use_residual": True}, "use_residual must be false, got True"),
        (
            "cls",
            "2_Dense/config.json",
            {"activation_function": "os.system"},
            "activation_function must be .*'os.system",
        ),
        ("cls", "2_Dense/config.json", {"module_output_name": "x"}, "module_output_name must be .*, got 'x'"),
        (
            "cls",
            "2_Dense/config.json",
            {"out_features": 4},
            "2_Dense/model.safetensors: .*linear.weight has shape .5, 8",
        ),
        ("cls", "2_Dense/config.json", {"bias": False}, "linear.bias .* the model has no place for it"),
        ("sigmoid", "config_sentence_transformers.json", {"activation_fn": "torch.nn.Tanh"}, "activation_fn .* 'Tanh'"),
        ("sigmoid", "config_sentence_transformers.json", {"activation_fn": 3}, "activation_fn must be a text"),
    ],
)
def test_what_is_refused(case, file, changes, message, tmp_path):
    shutil.copytree(REFERENCE / case, tmp_path / case)
    path = tmp_path / case / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ValueError, match=f"(?s){message}"):
        zoo.Task.from_preset(tmp_path / case)


def test_prompts_of_cross_encoders_are_named(tmp_path):
    shutil.copytree(REFERENCE / "sigmoid", tmp_path / "model")
    path = tmp_path / "model" / "config_sentence_transformers.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "prompts": {"query": "find : "}}))
    with pytest.warns(UserWarning, match="prompts, which a TextClassifier does not put before texts: .*find : "):
        zoo.Task.from_preset(tmp_path / "model")
