"""What recipes do behind the training must not fail on data that one can train on, and loses nothing where it fails."""

from types import SimpleNamespace

import pytest
import tensorflow as tf

import zoo
from recipes import finetune, pretrain_masked_lm, tag, translate
from recipes.common import training

pytestmark = pytest.mark.usefixtures("eagerly")

CONFIG = zoo.TransformerConfig(
    "encoder",
    vocabulary_size=64,
    hidden_dim=8,
    num_layers=1,
    max_length=24,
    attention=zoo.AttentionConfig(num_heads=1),
    feed_forward=zoo.FeedForwardConfig(8),
)


class Served:
    """Stands in the place of a SavedModel: the endpoints of a task, run eagerly."""

    def __init__(self, task):
        for name, endpoint in task.endpoints().items():
            setattr(self, name, lambda texts, function=endpoint.function: function(tf.constant(texts)))


def test_words_that_are_several_as_text(tiny_tokenizer):
    task = zoo.TokenClassifier(zoo.Backbone.from_config(CONFIG), tiny_tokenizer, labels=["O", "B-PER"])
    sentences = [["alpha", "'s", "beta"], ["@gamma", "...", "10%"]]
    rows = list(tag.try_export(task, sentences, Served(task)))
    assert [text for text, *_ in rows] == ["alpha 's beta", "@gamma ... 10%"]
    # ' and s, @, three full stops, and %
    assert [len(tags) for _, tags, _ in rows] == [4, 7]
    assert all(tags == expected for _, tags, expected in rows)


@pytest.mark.parametrize(("length", "place"), [(9, 4), (40, 20), (400, 12)])
def test_a_gap_where_the_model_sees_it(texts, length, place):
    from zoo.tokenizers import SentencePieceTokenizer

    tokenizer = SentencePieceTokenizer.train(texts, vocabulary_size=27, special_tokens=["<mask>"])
    tokenizer = SentencePieceTokenizer.from_config({**tokenizer.get_config(), "mask_token": "<mask>"})
    task = zoo.MaskedLM(zoo.Backbone.from_config(CONFIG), tokenizer, truncate=True)
    text = pretrain_masked_lm.with_gap(task, " ".join(["alpha"] * length))
    assert len(text.split()) == length
    assert text.split().index("<mask>") == place
    assert len(task.fill_mask([text])[0]) == 1


def test_empty_messages_are_no_prompts(tiny_tokenizer):
    messages = [[{"content": text}, {"content": "yes"}] for text in ("", "alpha", " ", "beta", "gamma", "iota")]
    conversations = [finetune.Conversation(pair, "") for pair in messages]
    texts = finetune.texts_to_continue(SimpleNamespace(tokenizer=tiny_tokenizer), conversations)
    assert texts == ["alpha", "beta", "gamma"]


def test_a_picture_of_an_output_that_is_longer_as_text(untrained, tmp_path, monkeypatch):
    monkeypatch.setattr(untrained, "generate", lambda *arguments, **options: "alpha " * 99)
    drawn = []
    monkeypatch.setattr(translate, "plot_attention", lambda *arguments, **options: drawn.append(arguments))
    translate.draw_seq2seq(SimpleNamespace(plots=tmp_path), untrained, "alpha beta")
    ((weights, written, read, _),) = drawn
    assert len(written) == 32 and read[:3] == [" alpha", " beta", "<eos>"]
    assert weights.shape == (32, len(read))


def test_a_model_is_saved_before_anything_that_can_fail(tmp_path, monkeypatch):
    events = []

    def plot_curves(*arguments, **options):
        raise OSError("no space")

    class Task:
        def fit(self, *arguments, **options):
            events.append("fit")
            return SimpleNamespace(history={"loss": [1.0], "val_loss": [1.0]})

        def save_to_preset(self, directory):
            events.append(directory)

    monkeypatch.setattr(training, "plot_curves", plot_curves)
    monkeypatch.setattr(training, "average_weights", lambda paths, model: events.append("average"))
    run = SimpleNamespace(path=tmp_path, plots=tmp_path, folder=lambda name: tmp_path / name)
    batches = SimpleNamespace(dataset=None, number_of_batches=1)
    with pytest.raises(OSError, match="no space"):
        training.train(Task(), run, training.TrainingConfig(), batches, None, curves={"training": "loss"})
    assert events == ["fit", "average", tmp_path / "model"]
