"""Packed documents: every token once, batches by seed and epoch, and no document in the loss of another."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from recipes import language_model
from recipes.common.batching import PackedDocuments
from recipes.common.config import parse
from recipes.common.errors import ConfigError, DataError

DOCUMENTS = ["abcd", "bca", "dddcba", "a", "cab"]


@pytest.fixture(scope="module")
def config():
    options = '{"num_layers": 1, "hidden_dim": 16, "feed_forward": {"intermediate_dim": 16}}'
    arguments = ["--data.packing", "documents", "--model.options", options, "--training.length", "8"]
    arguments += ["--training.batches_per_epoch", "3", "--training.batch_size", "2", "--training.warmup_steps", "1"]
    return parse(language_model.LanguageModelConfig, arguments)


@pytest.fixture(scope="module")
def task(config, tmp_path_factory):
    keras.utils.set_random_seed(0)
    run = SimpleNamespace(tokenizer=tmp_path_factory.mktemp("run") / "tokenizer", start=None)
    return language_model.make_model(config, run, DOCUMENTS)


def batches_of(packed, epoch=0, skip=0):
    packed.start_epoch(epoch, skip)
    return [(inputs, labels.numpy(), weights.numpy()) for inputs, labels, weights in packed.dataset]


def texts_of(batches, tokenizer):
    """What is predicted, as one text, end tokens as full stops."""
    labels = np.concatenate([labels[weights > 0] for _, labels, weights in batches])
    return "".join("." if token == tokenizer.end_id else tokenizer.id_to_token(token) for token in labels)


def test_every_token_of_every_document_is_predicted_once(task):
    packed = PackedDocuments(task, DOCUMENTS, length=4, batch_size=3)
    batches = batches_of(packed)
    assert texts_of(batches, task.tokenizer) == "".join(f"{document}." for document in DOCUMENTS)
    assert packed.number_of_tokens == 22 and packed.number_of_batches == len(batches) == 2


def test_a_training_is_a_stream_of_passes(task):
    options = {"length": 4, "batch_size": 3, "batches_per_epoch": 3, "seed": 1}
    packed = PackedDocuments(task, DOCUMENTS, **options)
    epochs = [batches_of(packed, epoch) for epoch in range(4)]
    assert [len(epoch) for epoch in epochs] == [3] * 4
    stream = [batch for epoch in epochs for batch in epoch]
    passes = [texts_of(stream[start : start + 2], task.tokenizer) for start in range(0, 12, 2)]
    for text in passes:
        assert sorted(text.split(".")) == sorted([*DOCUMENTS, ""])
    assert len(set(passes)) > 3
    # the same whatever was read before, and in the middle of an epoch
    packed = PackedDocuments(task, DOCUMENTS, **options)
    for epoch, skip in ((3, 0), (2, 1)):
        again = batches_of(packed, epoch, skip)
        for (_, labels, _), (_, expected, _) in zip(again, epochs[epoch][skip:], strict=True):
            np.testing.assert_array_equal(labels, expected)
    other = batches_of(PackedDocuments(task, DOCUMENTS, **{**options, "seed": 2}))
    assert texts_of(other, task.tokenizer) != texts_of(epochs[0], task.tokenizer)


@pytest.mark.parametrize("packing", ["documents", "windows"])
def test_whether_a_document_is_in_the_loss_of_another(task, config, packing):
    """A change of the first document leaves the losses of the second as they are, where documents are packed."""
    data = language_model.DataConfig(packing=packing)
    config = language_model.LanguageModelConfig(data=data, training=config.training)
    losses = []
    for first in ("abc", "dda"):
        _, validation = language_model.make_batches(config, task, ["abcd" * 8], [first, "cab"])
        inputs, labels, weights = batches_of(validation)[0]
        (row,) = keras.losses.sparse_categorical_crossentropy(labels, task(inputs), from_logits=True).numpy()[:1]
        losses.append(row[weights[0] > 0])
    # the start token, where there is one, is not predicted: `cab` and the end token, or `ab` without it
    second = slice(4, 8) if packing == "documents" else slice(3, 5)
    assert len(losses[0][second]) == (4 if packing == "documents" else 2)
    assert np.abs(losses[0][:3] - losses[1][:3]).max() > 1e-3
    if packing == "documents":
        # the same numbers in the same places of the same products
        np.testing.assert_array_equal(losses[0][second], losses[1][second])
    else:
        assert np.abs(losses[0][second] - losses[1][second]).max() > 1e-3


def test_errors(task, config, tmp_path):
    with pytest.raises(DataError, match="no token that could be predicted"):
        PackedDocuments(task, [], length=4, batch_size=1)
    with pytest.raises(ConfigError, match="batches_per_epoch must be at least 1, got 0"):
        PackedDocuments(task, DOCUMENTS, length=4, batch_size=1, batches_per_epoch=0)
    options = ["--model.options", '{"max_length": 32}', "--training.length", "33"]
    with pytest.raises(ConfigError, match="training.length must be at most the model's max_length=32, got 33"):
        run = SimpleNamespace(tokenizer=tmp_path / "tokenizer", start=None)
        language_model.make_model(parse(language_model.LanguageModelConfig, options), run, DOCUMENTS)


def test_prompts_that_the_model_cannot_continue(task):
    for prompts, message in (
        (["ab", "abcdabcd"], "prompts must have 1 to 7 tokens each, got 'abcdabcd' with 9"),
        ([], "prompts must hold at least one text"),
    ):
        with pytest.raises(ConfigError, match=message):
            language_model.check_prompts(prompts, task)
    language_model.check_prompts(["abc", ""], task)


def test_samples_begin_as_lines_of_the_validation_text_do():
    lines = ["The film was good.\nI left.\n\n  Why?  It was dull.\n", "No.\nSo it goes.\n"]
    assert language_model.first_words(lines, 64) == ["The film", "Why? It", "So it"]
    assert language_model.first_words(["長い行" * 20], 64) == ["長い行" * 5]
    assert language_model.first_words(["word"], 4) == ["w"]
