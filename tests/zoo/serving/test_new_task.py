"""The new task of the guide, ordinal regression: what is declared, and what follows from it up to the server."""

import importlib.util
import json
from pathlib import Path

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
for name in ("msgpack", "starlette", "uvicorn", "httpx", "prometheus_client", "pydantic"):
    pytest.importorskip(name, reason="the extra serve is not installed")

import httpx  # noqa: E402
from page_code import python_blocks  # noqa: E402

import zoo  # noqa: E402
from zoo.tasks import registry  # noqa: E402

PAGE = Path(__file__).parents[3] / "docs/guides/extending.md"
LABELS = ["bad", "fair", "good", "great"]
TEXTS = ["dull", "so so", "a good one", "the best of all"]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def code():
    """The block that declares the task, and the imports of the page."""
    first, *others = [block.code for block in python_blocks(PAGE)]
    (declared,) = (block for block in others if "class OrdinalRegressor" in block)
    return first, declared


@pytest.fixture(scope="module")
def task_class(code):
    names = {"__name__": "guide"}
    known = dict(registry._TASKS)
    for part in code:
        exec(part, names)
    yield names["OrdinalRegressor"]
    registry._TASKS.clear()
    registry._TASKS.update(known)


@pytest.fixture(scope="module")
def task(task_class):
    keras.utils.set_random_seed(0)
    tokenizer = zoo.tokenizers.ByteLevelBPETokenizer.train(TEXTS, 270, end_token="<|end|>")
    config = zoo.TransformerConfig(
        "encoder",
        tokenizer.vocabulary_size,
        hidden_dim=16,
        num_layers=1,
        max_length=24,
        attention=zoo.AttentionConfig(num_heads=2),
        feed_forward=zoo.FeedForwardConfig(16),
        dropout=0.0,
    )
    task = task_class(zoo.Backbone.from_config(config), tokenizer, labels=LABELS)
    task.compile(keras.optimizers.Adam(0.01))
    history = task.fit(TEXTS * 8, LABELS * 8, batch_size=8, epochs=12, verbose=0).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    assert history["rank_error"][-1] < 0.5 < history["rank_error"][0]
    return task


@pytest.fixture(scope="module")
def logits(task):
    """Those of each text alone, in float64."""
    inputs = [task.preprocessor([text]) for text in TEXTS]
    rows = [{name: np.asarray(value) for name, value in each.items()} for each in inputs]
    return np.concatenate([np.array(task(row, training=False), "float64") for row in rows])


@pytest.fixture(scope="module")
def expected(logits):
    """Probabilities and expected ranks, by their definition."""
    at_least = np.pad(1 / (1 + np.exp(-logits)), [(0, 0), (1, 1)], constant_values=[(0, 0), (1, 0)])
    probabilities = at_least[:, :-1] - at_least[:, 1:]
    return {"probabilities": probabilities, "ranks": probabilities @ np.arange(4)}


def check(found, expected):
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(np.asarray(found[name]), value, **CLOSE)


def test_it_is_short(code):
    lines = [line for line in code[1].splitlines() if line.strip()]
    assert len(lines) <= 80, len(lines)


def test_thresholds_ascend(logits):
    assert (np.diff(logits) < 0).all()


def test_loss_and_metric(task, logits):
    truth = np.array([3, 0, 1, 1])
    above = truth[:, None] > np.arange(3)
    losses = np.log1p(np.exp(np.where(above, -logits, logits))).sum(axis=1)
    errors = np.abs((logits > 0).sum(axis=1) - truth)
    names = [LABELS[label] for label in truth]
    found = task.evaluate(TEXTS, names, verbose=0, return_dict=True)
    np.testing.assert_allclose([found["loss"], found["rank_error"]], [losses.mean(), errors.mean()], rtol=1e-4)


def test_predicts(task, expected):
    check(task.predict(TEXTS), expected)
    assert (expected["ranks"].round() == np.arange(4)).all()
    assert {name: value.shape for name, value in task.predict([]).items()} == {"probabilities": (0, 4), "ranks": (0,)}


def test_windows_of_long_texts(task, task_class):
    """The logits of a text are the mean over those of its windows."""
    long = task_class(task.backbone, task.tokenizer, labels=LABELS, sequence_length=12, stride=2)
    long.head.set_weights(task.head.get_weights())
    text = "the best of all and a good one so so dull"
    inputs = {name: np.asarray(value) for name, value in long.preprocessor([text]).items()}
    assert len(inputs["token_ids"]) > 1
    above = 1 / (1 + np.exp(-np.asarray(long(inputs, training=False)).mean(axis=0)))
    np.testing.assert_allclose(long.predict([text, "dull"])["ranks"][0], above.sum(), **CLOSE)
    served = long.endpoints()["serve"].function(tf.constant([text, "dull"]))
    np.testing.assert_allclose(served["ranks"][0], above.sum(), **CLOSE)


def test_errors_name_the_row(task):
    with pytest.raises(ValueError, match=r"y\[1\] must be one of \['bad', .* got 'poor'"):
        task.fit(TEXTS[:2], ["good", "poor"])
    with pytest.raises(ValueError, match=r"x\[1\] has \d+ tokens"):
        task.predict(["dull", "dull " * 40])


def test_saved_and_loaded(task, task_class, expected, tmp_path):
    task.save_to_preset(tmp_path / "preset")
    for kind in (task_class, zoo.Task):
        loaded = kind.from_preset(tmp_path / "preset")
        assert type(loaded) is task_class and loaded.labels.strings == LABELS
        check(loaded.predict(TEXTS), expected)
    task.save(tmp_path / "model.keras")
    check(keras.models.load_model(tmp_path / "model.keras").predict(TEXTS), expected)


def test_inspected(task, expected):
    found = task.inspect(TEXTS[0], top_k=4)
    assert found.task == "OrdinalRegressor" and found.attention.shape[:2] == (1, 2) and found.rows == ("label",)
    order = np.argsort(-expected["probabilities"][0])
    assert [label for label, _ in found.top(0)] == [LABELS[label] for label in order]
    np.testing.assert_allclose([value for _, value in found.top(0)], expected["probabilities"][0][order], **CLOSE)


def test_numbers_of_other_runtimes(task, expected, tmp_path):
    forward = task.token_endpoints()["forward"]
    inputs = task.preprocessor(TEXTS)
    check(forward.function(*(inputs[field.name] for field in forward.inputs)), expected)
    assert forward.properties["labels"] == LABELS
    if any(importlib.util.find_spec(name) is None for name in ("tf2onnx", "onnxruntime", "onnxruntime_extensions")):
        return
    task.export(tmp_path / "onnx", format="onnx")
    assert json.loads((tmp_path / "onnx/signature.json").read_text())["endpoints"]["forward"]["outputs"][1]["name"] == (
        "ranks"
    )


@pytest.mark.slow
def test_routes_of_the_server(task, expected, run_server, tmp_path):
    folder = tmp_path / "models/stars/1"
    task.export(folder, examples=TEXTS[:2], attention=True)
    served = tf.saved_model.load(folder)
    check(served.serve(tf.constant(TEXTS)), expected)
    card = (folder / "model_card.md").read_text()
    assert "# OrdinalRegressor" in card and "`ranks` float32 (batch)" in card and "so so" in card
    assert "* `ranks`: expected label, counted from 0" in card
    with run_server(tmp_path / "models") as address, httpx.Client(base_url=address, timeout=300) as client:
        answer = client.post("/v1/models/stars:predict", json={"inputs": {"texts": TEXTS}}).json()["outputs"]
        check(answer, expected)
        body = {"examples": [{"texts": text} for text in TEXTS]}
        rows = client.post("/v1/models/stars:classify", json=body).json()["result"]
        assert [[label for label, _ in row] for row in rows] == [LABELS] * 4
        found = [[score for _, score in row] for row in rows]
        np.testing.assert_allclose(found, expected["probabilities"], **CLOSE)
