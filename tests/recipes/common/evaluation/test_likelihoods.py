"""Likelihoods of texts and replies: what they are of, and which ones are tested against each other."""

import dataclasses
import math
import re

import keras
import numpy as np
import pytest

import zoo
from recipes import evaluate
from recipes.common.data.chat_files import Conversation
from recipes.common.errors import ConfigError, DataError
from recipes.common.evaluation.intervals import compare_models
from recipes.common.evaluation.likelihoods import (
    cut_into_pieces,
    evaluate_language_model,
    evaluate_masked_lm,
    evaluate_replies,
)
from zoo.tokenizers import ByteLevelBPETokenizer, SentencePieceTokenizer

TEXT = "the cat sat on the mat, and the dog ran over the hill.\n" * 12
TALKS = [
    Conversation(
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "The cat sat" + " there" * number}], "a:1"
    )
    for number in range(6)
]


def made(task, vocabulary_size, **options):
    """A small model with a tokenizer of its own."""
    keras.utils.set_random_seed(0)
    tokenizer = ByteLevelBPETokenizer.train(
        [TEXT],
        vocabulary_size,
        end_token="<|im_end|>",
        special_tokens=["<|im_start|>", "<mask>"],
        mask_token="<mask>",
    )
    config = zoo.TransformerConfig(
        "encoder" if task is zoo.MaskedLM else "decoder",
        tokenizer.vocabulary_size,
        hidden_dim=8,
        num_layers=1,
        max_length=options.pop("max_length", 64),
        attention=zoo.AttentionConfig(num_heads=1),
        feed_forward=zoo.FeedForwardConfig(8),
    )
    return task(zoo.Backbone.from_config(config), tokenizer.with_chat_format("chatml"), **options)


@pytest.fixture(scope="module")
def models(eagerly_throughout):
    return {size: made(zoo.CausalLM, size) for size in (264, 290)}


@pytest.fixture(scope="module")
def eagerly_throughout():
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def verdicts(found):
    return {each["score"]: each["verdict"] for each in compare_models(found, resamples=100)[1]}


def test_pieces_are_the_whole_text():
    documents = [TEXT, "", "x" * 200, "ä b"]
    pieces = cut_into_pieces(documents)
    assert ["".join(each) for each in pieces] == documents
    assert len(pieces[0]) > 15 and not any(re.match(r"\S", piece) for piece in pieces[0][1:])


def check_sums(evaluation, documents, tokens):
    total = sum(row["nll"] for row in evaluation.outputs)
    assert sum(row["tokens"] for row in evaluation.outputs) == evaluation.scores["tokens"] == tokens
    bits = total / math.log(2) / sum(map(len, documents))
    assert evaluation.scores["bits_per_character"] == pytest.approx(bits, abs=1e-3)
    assert evaluation.scores["nll_per_token"] == pytest.approx(total / tokens, abs=1e-3)


def numpy_likelihood(model, rows):
    """Negative log-likelihood per token of rows of ids, without the first ones, by the formula of the softmax."""
    total = 0.0
    for ids in rows:
        fed = np.array([ids[:-1]])
        hidden = model.backbone({"token_ids": fed, "padding_mask": np.ones_like(fed, "bool")})
        logits = keras.ops.convert_to_numpy(model.backbone.logits(hidden))[0].astype("float64")
        exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
        probabilities = exponentials / exponentials.sum(axis=-1, keepdims=True)
        total -= np.log(probabilities[np.arange(len(ids) - 1), ids[1:]]).sum()
    return total / sum(len(ids) - 1 for ids in rows)


@pytest.mark.parametrize("packed", [False, True])
def test_likelihoods_are_those_of_the_formula(models, packed):
    model, documents = models[264], [TEXT[:80], "a hill"]
    ids = model.tokenizer.tokenize(documents)
    if packed:  # each by itself, in windows of 16, with its end
        end = model.tokenizer.end_id
        rows = [np.append(row.numpy(), end) for row in ids]
    else:
        rows = [ids.values.numpy()]
    rows = [row[begin : begin + 17] for row in rows for begin in range(0, len(row) - 1, 16)]
    found = evaluate_language_model(model, documents, length=16, packed=packed)
    assert found.scores["nll_per_token"] == pytest.approx(numpy_likelihood(model, rows), abs=1e-3)


def test_bits_per_character_are_tested_whatever_the_tokens(models, capsys):
    documents = [TEXT, "a hill"]
    found = {size: evaluate_language_model(model, documents, length=16) for size, model in models.items()}
    for size, evaluation in found.items():
        check_sums(evaluation, documents, models[size].tokenizer.tokenize(documents).values.shape[0] - 1)
    assert verdicts(found)["nll_per_token"] == "not tested"
    assert verdicts(found)["bits_per_character"] in ("higher", "lower", "noise")
    evaluate.check_rows(found)
    assert "290 guesses other tokens than 264: nll_per_token: not tested" in capsys.readouterr().out


def test_lost_characters_make_a_lower_bound(models):
    lossless = models[264]
    lossy = zoo.CausalLM(lossless.backbone, SentencePieceTokenizer.train([TEXT], 25))
    documents = [TEXT, "a hill \u72ac\u5c71 \U0001f600"]
    assert lossy.tokenizer.lost_characters(documents).tolist() == [0, 3]
    assert lossless.tokenizer.lost_characters([*documents, "\x00 \xe9"]).tolist() == [0, 0, 0]
    found = {
        "lossless": evaluate_language_model(lossless, documents, length=16),
        "lossy": evaluate_language_model(lossy, documents, length=16),
    }
    scores = found["lossy"].scores
    assert "bits_per_character" not in scores and scores["lost_characters"] == 3
    assert 0 < scores["bits_per_character_at_least"]
    assert "lost_characters" not in found["lossless"].scores
    assert "bits_per_character" not in {name for name, verdict in verdicts(found).items() if verdict != "not tested"}


def test_the_end_of_a_packed_document_belongs_to_it(models):
    documents = ["a hill", "a"]
    evaluation = evaluate_language_model(models[264], documents, length=16, packed=True)
    # there is no start token, so the first token is not predicted; the end token is
    assert [row["tokens"] for row in evaluation.outputs] == [6, 1]
    check_sums(evaluation, documents, 7)


def test_windows_of_another_length_are_said(models, capsys):
    found = {length: evaluate_language_model(models[264], [TEXT], length=length) for length in (16, 32)}
    evaluate.check_rows(found)
    assert "32 reads windows of 32 tokens, 16 of 16; --length sets one for all" in capsys.readouterr().out
    assert verdicts(found)["nll_per_token"] != "not tested"
    with pytest.raises(ConfigError, match="length must be at most the model's max_length=64, got 65"):
        evaluate_language_model(models[264], [TEXT], length=65)


def test_replies_of_other_tokens_are_compared_by_characters(models, monkeypatch):
    monkeypatch.setattr(zoo.CausalLM, "generate", lambda self, asked, **options: ["The cat sat"] * len(asked))
    found = {size: evaluate_replies(model, TALKS) for size, model in models.items()}
    assert verdicts(found) == {
        "exact_match": "noise",
        "nll_per_reply_token": "not tested",
        "bits_per_character": verdicts(found)["bits_per_character"],
    }
    of_first = found[264]
    characters = sum(len(talk.messages[-1]["content"]) for talk in TALKS)
    bits = of_first.scores["nll_per_reply_token"] * of_first.scores["reply_tokens"] / math.log(2) / characters
    assert of_first.scores["bits_per_character"] == pytest.approx(bits, abs=1e-3)
    assert verdicts({"a": of_first, "b": dataclasses.replace(of_first)})["nll_per_reply_token"] == "noise"
    shorter = evaluate_replies(models[290], TALKS, max_length=32)
    with pytest.raises(DataError, match=r"b was given other rows than a, \d \(\d too long\) and 6 \(0 too long\)"):
        evaluate.check_rows({"a": of_first, "b": shorter})


def test_hidden_tokens_of_other_tokenizers_are_not_tested():
    texts = TEXT.splitlines()[:4]
    found = {size: evaluate_masked_lm(made(zoo.MaskedLM, size), texts) for size in (264, 290)}
    assert verdicts(found) == {"nll_per_hidden_token": "not tested", "token_accuracy": "not tested"}
    assert np.isfinite(found[264].scores["perplexity"])
