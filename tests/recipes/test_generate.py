"""What `generate` makes of taggers; no model is trained."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import zoo
from recipes import generate
from recipes.common.config import parse
from zoo.tokenizers import SentencePieceTokenizer

TEXT = "Ada, of Rome"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What the recipe writes about a text, given the one tag that a tagger knows to give."""
    tokenizer = SentencePieceTokenizer.train([TEXT] * 9, 15)
    config = zoo.preset_config("encoder_tiny", num_layers=1, hidden_dim=16, vocabulary_size=tokenizer.vocabulary_size)

    def of(tag):
        folder = str(tmp_path_factory.mktemp("tagger") / "model")
        tagger = zoo.TokenClassifier(zoo.Backbone.from_config(config), tokenizer, labels=["O", tag])
        (bias,) = (weight for weight in tagger.weights if tuple(weight.shape) == (2,))
        bias.assign([0.0, 99.0])
        tagger.save_to_preset(folder)
        (row,) = generate.main(parse(generate.GenerateConfig, [folder, "--texts", TEXT]))
        return row["output"]

    return of


def test_spans_of_texts(outputs):
    found = outputs("B-PER")  # each word is one
    assert [(one["label"], one["text"], one["start"], one["end"]) for one in found] == [
        ("PER", "Ada", 0, 3),
        ("PER", ",", 3, 4),
        ("PER", "of", 5, 7),
        ("PER", "Rome", 8, 12),
    ]
    assert [one["score"] for one in found] == pytest.approx([1] * 4)


def test_words_with_tags(outputs):
    assert outputs("NOUN") == [["Ada", "NOUN"], [",", "NOUN"], ["of", "NOUN"], ["Rome", "NOUN"]]


def test_a_console_that_lacks_characters_gets_escapes_of_json_and_one_sentence(tmp_path):
    model = str(tmp_path / "model")
    tokenizer = SentencePieceTokenizer.train([TEXT] * 9, 15)
    config = zoo.preset_config("encoder_tiny", num_layers=1, hidden_dim=16, vocabulary_size=tokenizer.vocabulary_size)
    zoo.TextClassifier(zoo.Backbone.from_config(config), tokenizer, labels=2).save_to_preset(model)
    variables = {"PYTHONIOENCODING": "ascii:strict"}
    words = [sys.executable, "-m", "recipes.generate", model, "--texts", "31 M\u00e4rz \u4f4f"]
    done = subprocess.run(words, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT), **variables})
    assert done.returncode == 0 and done.stdout.isascii()
    assert json.loads(done.stdout)["text"] == "31 M\u00e4rz \u4f4f"
    (sentence,) = [line for line in done.stderr.splitlines() if b"encoding" in line]
    assert b"ascii, lacks are written as escapes" in sentence and b"Traceback" not in done.stderr


def test_a_locale_without_the_characters_of_the_text(tmp_path):
    variables = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [sys.executable, "-m", "recipes.generate", "model", "--texts", "31 M\u00e4rz".encode()]
    done = subprocess.run(words, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT), **variables})
    assert done.returncode == 2 and not done.stdout
    (line,) = done.stderr.splitlines()
    assert b"texts must be text" in line and line.endswith(b"PYTHONUTF8=1, Python reads words in UTF-8")
