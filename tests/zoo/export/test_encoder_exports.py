"""SavedModels of the tasks on one stack: a process that knows only TensorFlow answers as Python does."""

import json
import subprocess
import sys
import unicodedata

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.tasks import MaskedLM, TextClassifier, TextEmbedder, TokenClassifier  # noqa: E402

LABELS = ["bad", "good", "so-so"]

# Reads directories and texts, writes what the endpoints give.
CLIENT = """
import base64, json, sys
import tensorflow as tf
import tensorflow_text
from tensorflow.core.protobuf import saved_model_pb2

request = json.load(sys.stdin)
texts = {name: [base64.b64decode(text) for text in some] for name, some in request["texts"].items()}

def plain(output):
    if isinstance(output, dict):
        return {name: plain(value) for name, value in output.items()}
    values = output.numpy()
    if output.dtype == tf.string:
        return [plain_string(value) for value in values]
    return values.tolist()

def plain_string(value):
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return [plain_string(part) for part in value]

def error(call):
    try:
        call()
    except tf.errors.InvalidArgumentError as problem:
        return problem.message
    return "none"

results = {}
for name, directory in request["directories"].items():
    model = tf.saved_model.load(directory)
    some = texts["masked" if name == "masked_lm" else "odd"]
    columns = [some, some[::-1]] if name == "pairs" else [some]
    arguments = [tf.constant(column) for column in columns]
    served = model.serve(*arguments)
    result = {"serve": plain(served), "signatures": sorted(model.signatures)}
    names = ("first_texts", "second_texts") if len(columns) == 2 else ("texts",)
    signed = model.signatures["serving_default"](**dict(zip(names, arguments)))
    if not isinstance(served, dict):
        served, signed = {"output": served}, {"output": next(iter(signed.values()))}
    assert served.keys() == signed.keys()
    for key in served:
        assert plain(served[key]) == plain(signed[key])
    result["empty"] = plain(model.serve(*[tf.constant([], tf.string)] * len(columns)))
    if hasattr(model, "label_names"):
        result["label_names"] = [value.decode() for value in model.label_names().numpy()]
    if hasattr(model, "tag_words"):
        words = tf.constant([["alpha", "kap ex"], ["beta", ""], ["", ""]])
        result["tag_words"] = plain(model.tag_words(words, tf.constant([2, 1, 0])))
    long = tf.constant(["alpha", "alpha <mask> " * 40])
    result["error"] = error(lambda: model.serve(*[long] * len(columns)))
    with open(directory + "/saved_model.pb", "rb") as file:
        graph = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs[0].graph_def
    result["programs"] = sum(function.attr["_XlaMustCompile"].b for function in graph.library.function)
    results[name] = result
assert not {"keras_hub", "keras_nlp", "sentencepiece", "zoo", "layers"} & set(sys.modules)
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def tasks(make_task):
    return {
        "classifier": make_task(TextClassifier, labels=LABELS),
        "pairs": make_task(TextClassifier, labels=2, problem="regression", pairs=True, seed=1, truncate=True),
        "several": make_task(TextClassifier, labels=LABELS, problem="multi_label", pooling="mean", seed=2),
        "tagger": make_task(TokenClassifier, labels=["O", "B-X", "I-X"], seed=3),
        "embedder": make_task(TextEmbedder, seed=4),
        "masked_lm": make_task(MaskedLM, seed=5),
    }


@pytest.fixture(scope="module")
def inputs(odd_texts):
    """200 texts, and 200 with one to three masks; the longest fit the model."""
    odd = [text.encode() if isinstance(text, str) else text for text in odd_texts]
    masked = [b" ".join([b"<mask>", *[b"beta <mask>"] * (row % 3), text[:12]]) for row, text in enumerate(odd)]
    return {"odd": odd, "masked": masked}


@pytest.fixture(scope="module")
def answers(tasks, inputs, tmp_path_factory):
    import base64

    folder = tmp_path_factory.mktemp("exports")
    exported = [name for name in tasks if name != "several"]
    for name in exported:
        tasks[name].export(folder / name)
    request = {
        "texts": {name: [base64.b64encode(text).decode() for text in texts] for name, texts in inputs.items()},
        "directories": {name: str(folder / name) for name in exported},
    }
    result = subprocess.run(
        [sys.executable, "-c", CLIENT], input=json.dumps(request), capture_output=True, text=True, cwd=folder
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", ["classifier", "tagger", "embedder", "masked_lm"])
def test_plain_operations_only(answers, name):
    """What `fit` and `predict` compile, one program for each shape, stays out of an export."""
    assert answers[name]["programs"] == 0


def decoded(values):
    import base64

    return base64.b64decode(values).decode("utf-8", "replace") if isinstance(values, str) else [*map(decoded, values)]


def close(one, other):
    # float32 with other paddings
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_classifier(tasks, inputs, answers):
    served = answers["classifier"]["serve"]
    expected = tasks["classifier"].predict(inputs["odd"])
    assert len(expected) == 200
    close(served["probabilities"], expected)
    assert decoded(served["label"]) == tasks["classifier"].classify(inputs["odd"])
    assert np.ptp(expected, axis=0).max() > 1e-2 and answers["classifier"]["label_names"] == LABELS


def test_pairs(tasks, inputs, answers):
    close(answers["pairs"]["serve"]["values"], tasks["pairs"].predict((inputs["odd"], inputs["odd"][::-1])))


def test_several_labels(tasks, inputs, answers):
    # the function of an export, run as it is
    served = tasks["several"].endpoints()["serve"].function(tf.constant(inputs["odd"]))
    expected = tasks["several"].predict(inputs["odd"])
    close(served["probabilities"], expected)
    np.testing.assert_array_equal(served["has_label"], served["probabilities"].numpy() >= 0.5)


def test_tagger(tasks, inputs, answers):
    tagger, served = tasks["tagger"], answers["tagger"]["serve"]
    expected = tagger.predict(inputs["odd"])
    tags = tagger.tag(inputs["odd"])
    for row in range(200):
        count = len(expected[row])
        close(np.reshape(served["probabilities"][row][:count], (-1, 3)), expected[row])
        assert decoded(served["tags"][row]) == tags[row] + [""] * (len(served["tags"][row]) - count)
        assert not np.any(served["probabilities"][row][count:])
        text = inputs["odd"][row]
        words = [word for word in decoded(served["words"][row]) if word]
        places = zip(served["starts"][row], served["ends"][row], strict=True)
        found = [text[start:end].decode("utf-8", "replace") for start, end in list(places)[: len(words)]]
        assert [word.replace("\x01", "\x00") for word in words] == found
        # invisible characters between words belong to none
        assert _visible("".join(found)) == "".join(_visible(text.decode("utf-8", "replace")).split())
    assert np.ptp(np.concatenate(expected), axis=0).max() > 1e-2
    words = [["alpha", "kap ex"], ["beta"], []]
    given = answers["tagger"]["tag_words"]
    assert [row[: len(part)] for row, part in zip(decoded(given["tags"]), words, strict=True)] == tagger.tag(words)


def _visible(text):
    return "".join(character for character in text if unicodedata.category(character) != "Cf")


def test_embedder(tasks, inputs, answers):
    close(answers["embedder"]["serve"], tasks["embedder"].embed(inputs["odd"]))


def test_masked_lm(tasks, inputs, answers):
    served = answers["masked_lm"]["serve"]
    filled = tasks["masked_lm"].fill_mask(inputs["masked"])
    tokens = decoded(served["tokens"])
    for row, expected in enumerate(filled):
        for mask, best in enumerate(expected):
            assert tokens[row][mask] == [token for token, _ in best]
            close(served["probabilities"][row][mask], [probability for _, probability in best])
        assert not np.any(served["probabilities"][row][len(expected) :])
        assert {token for mask in tokens[row][len(expected) :] for token in mask} <= {""}
    assert [len(row) for row in filled[:3]] == [1, 2, 3]


def test_signatures_and_no_texts(answers):
    for name, answer in answers.items():
        extra = {"embedder": ["embed_tokens", "tokens"]}
        extra |= dict.fromkeys(["classifier", "pairs"], ["label_names", "tokens"])
        extra["tagger"] = ["aggregate", "entities", "label_names", "tag_words"]
        assert answer["signatures"] == sorted(["serve", "serving_default", *extra.get(name, [])])
        empty = answer["empty"]
        assert all(part == [] for part in (empty.values() if isinstance(empty, dict) else [empty]))


def test_long_texts(answers):
    for name, answer in answers.items():
        # one of the tasks cuts them
        expected = (
            "none" if name == "pairs" else "A text has more tokens than the model takes (24); rows and their tokens"
        )
        assert expected in answer["error"]


def test_wrong_arguments(tasks, tmp_path):
    with pytest.raises(ValueError, match="top_k must be an integer from 1 to 27, got 28"):
        tasks["masked_lm"].export(tmp_path / "export", top_k=28)
    task = type(tasks["embedder"])(tasks["embedder"].backbone)
    with pytest.raises(ValueError, match=r"export\(\) needs a tokenizer: TextEmbedder\(backbone, tokenizer\)"):
        task.export(tmp_path / "export")
    (tmp_path / "precious").write_text("data")
    with pytest.raises(FileExistsError, match="it will not be overwritten"):
        tasks["embedder"].export(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
