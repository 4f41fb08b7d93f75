"""SavedModels in a process that knows nothing of this project: the strings that `generate` gives."""

import json
import subprocess
import sys

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo import Beam, Greedy, Sample  # noqa: E402

# Reads texts and directories, writes what the endpoints give.
CLIENT = """
import json, sys
import tensorflow as tf
import tensorflow_text

request = json.load(sys.stdin)
texts, pairs = request["texts"], request["pairs"]
results = []
for directory, counts in request["exports"]:
    model = tf.saved_model.load(directory)
    result = {"serve": {}}
    for count in counts:
        served = model.serve(tf.constant(texts[:count], tf.string, shape=(count,)))
        result["serve"][count] = [text.decode() for text in served.numpy()]
    result["score"] = model.score(*map(tf.constant, pairs)).numpy().tolist()
    result["no_scores"] = model.score(*[tf.constant([], tf.string)] * 2).numpy().tolist()
    forward = {name: tf.constant(value) for name, value in request["forward"].items()}
    result["forward"] = model.forward(**forward).numpy().tolist()
    signatures = model.signatures
    result["signatures"] = sorted(signatures)
    for name in ("serve", "serving_default"):
        served = signatures[name](texts=tf.constant(texts))["texts"].numpy()
        assert [text.decode() for text in served] == result["serve"][len(texts)]
    sources, targets = map(tf.constant, pairs)
    scores = signatures["score"](sources=sources, targets=targets)["log_likelihoods"].numpy().tolist()
    assert scores == result["score"]
    logits = signatures["forward"](**forward)["logits"].numpy().tolist()
    assert logits == result["forward"]
    few = texts[:3]
    result["other"] = [text.decode() for text in model.generate(
        tf.constant(few), tf.constant(2**31, tf.int64), *map(tf.constant, (4, -1.0, -1, -1.0, [""]))).numpy()]
    result["errors"] = []
    for call in (lambda: model.serve(tf.constant([*texts[:-1], request["long"]])),
                 lambda: model.score(tf.constant([texts[0]]), tf.constant([request["long"]]))):
        try:
            result["cut"] = [text.decode() for text in call().numpy()]
            result["errors"].append("none")
        except tf.errors.InvalidArgumentError as error:
            result["errors"].append(error.message)
    results.append(result)
assert not {"keras_hub", "sentencepiece", "zoo", "layers"} & set(sys.modules)
print(json.dumps(results))
"""

EXPORTS = {
    "greedy": {"sampler": "greedy", "jit_compile": True},
    "beam": {"sampler": Beam(num_beams=3), "jit_compile": False, "max_length": 20},
    "sample": {"sampler": Sample(temperature=1.5), "jit_compile": False, "seed": 5, "truncate": True},
}
COUNTS = (0, 1, 3, 13)


def counts_of(name):
    # XLA compiles for each size of batch
    return COUNTS[-1:] if EXPORTS[name]["jit_compile"] else COUNTS


@pytest.fixture(scope="module")
def request_texts(texts, copied):
    return [*copied[:8], "", "omega  theta ", "unknown w\u00f6rds \u4f60", "alpha " * 20, texts[100]]


@pytest.fixture(scope="module")
def forward_inputs():
    generator = np.random.default_rng(0)
    return {
        "encoder_token_ids": generator.integers(0, 26, (3, 6)).astype("int32"),
        "encoder_padding_mask": np.arange(6) < np.array([[6], [3], [5]]),
        "decoder_token_ids": generator.integers(0, 26, (3, 4)).astype("int32"),
        "decoder_padding_mask": np.arange(4) < np.array([[2], [4], [4]]),
    }


@pytest.fixture(scope="module")
def answers(trained, request_texts, forward_inputs, tmp_path_factory):
    """What the endpoints of each export answer in a fresh process, by the name of the export."""
    folder = tmp_path_factory.mktemp("exports")
    for name, options in EXPORTS.items():
        trained.export(folder / name, **options)
    request = {
        "texts": request_texts,
        "pairs": [request_texts, request_texts[::-1]],
        "forward": {name: value.tolist() for name, value in forward_inputs.items()},
        "long": "theta " * 40,
        "exports": [(str(folder / name), counts_of(name)) for name in EXPORTS],
    }
    result = subprocess.run(
        [sys.executable, "-c", CLIENT], input=json.dumps(request), capture_output=True, text=True, cwd=folder
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return dict(zip(EXPORTS, json.loads(result.stdout), strict=True))


@pytest.mark.parametrize("name", EXPORTS)
def test_serves_what_generate_gives(trained, request_texts, answers, name):
    options = EXPORTS[name]
    assert len(request_texts) == max(COUNTS)
    for count in counts_of(name):
        served = answers[name]["serve"][str(count)]
        assert len(served) == count
        assert served == trained.generate(request_texts[:count], **{**options, "jit_compile": False})
    assert name == "sample" or answers[name]["serve"]["13"][:8] == request_texts[:8]


def test_scores(trained, request_texts, answers):
    expected = trained.score(request_texts, request_texts[::-1])
    for answer in answers.values():
        np.testing.assert_allclose(answer["score"], expected, rtol=1e-4)
        assert answer["no_scores"] == []


def test_forward(trained, forward_inputs, answers):
    expected = trained(forward_inputs)
    # float32 logits of a size up to 20
    np.testing.assert_allclose(answers["greedy"]["forward"], expected, atol=1e-4, rtol=1e-4)


def test_signatures(answers):
    assert answers["greedy"]["signatures"] == ["forward", "generate", "score", "serve", "serving_default"]


@pytest.mark.parametrize("name", EXPORTS)
def test_seed_and_number_of_tokens_are_inputs(trained, request_texts, answers, name):
    options = {**EXPORTS[name], "jit_compile": False, "max_new_tokens": 4, "seed": 2**31}
    assert answers[name]["other"] == trained.generate(request_texts[:3], **options)


def test_text_longer_than_the_model(answers):
    for name, answer in answers.items():
        served, scored = answer["errors"]
        assert "A text has more tokens than the model takes (32)" in scored
        assert "A text has more tokens than the model takes (32)" in served or (name == "sample" and served == "none")


def test_text_that_is_cut_leaves_the_others_alone(trained, request_texts, answers):
    served = answers["sample"]["cut"]
    assert served[:-1] == answers["sample"]["serve"]["13"][:-1]
    assert served == trained.generate([*request_texts[:-1], "theta " * 40], **EXPORTS["sample"])


def fail(*arguments, **options):
    raise OSError(28, "No space left on device")


def test_interrupted_export_leaves_the_old_one(untrained, tmp_path, monkeypatch):
    directory = tmp_path / "export"
    directory.mkdir()
    (directory / "saved_model.pb").write_text("old")
    (directory / "signature.json").write_text("{}")
    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        untrained.export(directory, sampler=Greedy())
    assert (directory / "saved_model.pb").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_never_overwrites_something_else(untrained, tmp_path, monkeypatch):
    (tmp_path / "precious.bin").write_text("data")
    monkeypatch.setattr(tf.saved_model, "save", lambda *arguments, **options: None)
    with pytest.raises(FileExistsError, match="exists and .* it will not be overwritten"):
        untrained.export(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.bin"]


def test_wrong_arguments(untrained, tmp_path):
    with pytest.raises(ValueError, match="max_length must be an integer from 1 to 32, got 33"):
        untrained.export(tmp_path / "export", max_length=33)
    assert not list(tmp_path.iterdir())
