"""Strings in for ONNX: the operators of onnxruntime-extensions give the ids of our tokenizers, or are refused."""

import json
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
for package in ("onnx", "onnxruntime", "onnxruntime_extensions", "tf2onnx"):
    pytest.importorskip(package, reason="the extra onnx is not installed")

from zoo import Backbone, TextClassifier, TextEmbedder, TransformerConfig  # noqa: E402
from zoo.export.onnx_tokenizers import OnnxTokenizer  # noqa: E402
from zoo.export.run_model import ExportedModel  # noqa: E402
from zoo.export.sample_texts import SAMPLE_TEXTS  # noqa: E402
from zoo.preprocessing import TextClassifierPreprocessor  # noqa: E402
from zoo.tasks.exporting import text_inputs  # noqa: E402
from zoo.tokenizers import ByteLevelBPETokenizer, SentencePieceTokenizer, WordPieceTokenizer  # noqa: E402

CLIENT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from run_model import ExportedModel
outputs = ExportedModel(threads=1)("serve", texts=json.load(sys.stdin))
print(json.dumps({name: value.tolist() for name, value in outputs.items()}))
"""


@pytest.fixture(scope="module")
def real_texts():
    """Sentences of this project's pages."""
    root = Path(__file__).parents[3]
    lines = (root / "README.md").read_text(encoding="utf-8").splitlines()
    lines += (root / "docs/guides/data.md").read_text(encoding="utf-8").splitlines()
    return [line[:140] for line in lines if re.search(r"\w+ \w+", line) and "<|" not in line]


@pytest.fixture(scope="module")
def tokenizers(real_texts):
    training = [*real_texts, *SAMPLE_TEXTS[1:]] * 2
    return {
        "sentencepiece": SentencePieceTokenizer.train(training, vocabulary_size=800),
        "uncased": WordPieceTokenizer.train(training, 900, lowercase=True),
        "cased": WordPieceTokenizer.train(training, 900, lowercase=False),
        "bytes": ByteLevelBPETokenizer.train(training, 600),
    }


def classifier(preprocessor, task_class=TextClassifier, **options):
    """A task with a preprocessor, or with its own one for a tokenizer."""
    keras.utils.set_random_seed(0)
    tokenizer = getattr(preprocessor, "tokenizer", preprocessor)
    config = TransformerConfig("encoder", tokenizer.vocabulary_size, hidden_dim=16, num_layers=1, max_length=96)
    return task_class(Backbone.from_config(config), preprocessor, **options)


def served(folder, texts):
    """What a process without TensorFlow gives for texts: outputs, or the end of the error."""
    result = subprocess.run(
        [sys.executable, "-c", CLIENT, str(folder)], input=json.dumps(texts), capture_output=True, text=True
    )
    return json.loads(result.stdout) if result.returncode == 0 else result.stderr[-1000:]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["sentencepiece", "cased", "bytes"])
def test_strings_give_what_python_gives(tokenizers, real_texts, tmp_path, kind):
    tokenizer = tokenizers[kind]
    texts = [text[:100] for text in real_texts] + ["word and " * 300]
    # WordPiece of the operator knows fewer marks than Unicode has, and that of GPT-2 makes a token of a text that
    # spells one: texts of the language at hand are compared
    strings = True if kind == "sentencepiece" else real_texts
    assert OnnxTokenizer(tokenizer, texts).tokenize(texts) == tokenizer.tokenize(texts).to_list()
    task = classifier(tokenizer, labels=["bad", "good"], truncate=True)
    task.export(tmp_path / "export", format="onnx", strings=strings)
    # float32 with another padding
    found = served(tmp_path / "export", texts)["probabilities"]
    np.testing.assert_allclose(found, task.predict(texts), rtol=1e-4, atol=1e-5)
    model = ExportedModel(tmp_path / "export", threads=1)
    assert list(model.endpoints) == ["forward", "serve"]
    with pytest.raises(RuntimeError, match="run it in a process that has not imported TensorFlow"):
        model("serve", texts=texts)


def test_a_text_that_is_too_long_is_an_error(tokenizers, tmp_path):
    task = classifier(tokenizers["sentencepiece"], TextEmbedder)
    task.export(tmp_path / "export", format="onnx", strings=True, weights="int8")
    assert np.shape(served(tmp_path / "export", ["a word"])["embeddings"]) == (1, 16)
    assert "indices element out of data bounds" in served(tmp_path / "export", ["a word", "word and " * 300])


def test_tokenizers_that_are_refused(tokenizers, tmp_path):
    other = ByteLevelBPETokenizer.train(SAMPLE_TEXTS[1:], 400, split="llama3")
    for tokenizer, reason in (
        (other, r"its operator has split=\['gpt2'\] alone, this one has \['llama3'\]"),
        (type(other)(other.get_vocabulary(), other.merges, added_tokens=["ab"]), "its added tokens, such as 'ab'"),
        (tokenizers["bytes"], r"onnxruntime-extensions gives other ids for the text '\[CLS\] special .*<\|endoftext"),
        (tokenizers["uncased"], "onnxruntime-extensions gives other ids for the text 'P\u0159\u00edli\u0161"),
    ):
        task = classifier(tokenizer, labels=2)
        with pytest.raises(ValueError, match=f"strings must be False for this tokenizer: {reason}"):
            task.export(tmp_path / "export", format="onnx", strings=True)
    with pytest.raises(ValueError, match="strings must be False for the format 'litert', which has no operators"):
        text_inputs(classifier(tokenizers["cased"], labels=2), "litert", True)
    assert not list(tmp_path.iterdir())


def test_preprocessors_of_ones_own_are_compared(tokenizers):
    """What the file does not hold would give other numbers without a word."""

    class Capitals(TextClassifierPreprocessor):
        def tokens(self, x):
            return super().tokens(tf.strings.upper(x))

    class Renamed(TextClassifierPreprocessor):
        """Makes the same rows."""

    class Both(TextClassifierPreprocessor):
        text_names = ("titles", "bodies")

    tokenizer, texts = tokenizers["cased"], ["Sentences of this page.", "and a second one"]
    for kind, reason in (
        (Capitals, "its preprocessor, a Capitals, makes another row of 'Sentences of this page.' than the operators"),
        (Both, "rows of two texts"),
    ):
        with pytest.raises(ValueError, match=f"strings must be False for this TextClassifier: {reason}"):
            text_inputs(classifier(kind(tokenizer, labels=["a", "b"])), "onnx", texts)
    assert "serve" in text_inputs(classifier(Renamed(tokenizer, labels=["a", "b"])), "onnx", texts)
