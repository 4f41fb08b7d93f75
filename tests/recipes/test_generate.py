"""What `generate` makes of taggers; no model is trained."""

import pytest

import zoo
from recipes import generate
from recipes.common.config import parse
from zoo.tokenizers import SentencePieceTokenizer

TEXT = "Ada, of Rome"


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
    assert all(one["score"] == 1 for one in found)


def test_words_with_tags(outputs):
    assert outputs("NOUN") == [["Ada", "NOUN"], [",", "NOUN"], ["of", "NOUN"], ["Rome", "NOUN"]]
