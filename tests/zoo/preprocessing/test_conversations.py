"""Conversations to learn from: what is learned, and that packed ones are learned as single ones are."""

import numpy as np
import pytest

import zoo
from zoo.preprocessing.conversations import whole_rows
from zoo.tokenizers import ByteLevelBPETokenizer, tokenize_chat
from zoo.training import TokenNegativeLogLikelihood

TALKS = [
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2 plus 3"},
        {"role": "assistant", "content": "5"},
    ],
    [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "A dog and a cat, together."}],
    [
        {"role": "user", "content": "1 plus 1"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "Yes."},
    ],
]


@pytest.fixture(scope="module")
def model():
    tokenizer = ByteLevelBPETokenizer.train(
        ["a"], 259, special_tokens=["<|im_start|>"], end_token="<|im_end|>"
    ).with_chat_format("chatml")
    config = zoo.TransformerConfig(
        "decoder",
        tokenizer.vocabulary_size,
        hidden_dim=8,
        num_layers=2,
        max_length=240,
        attention=zoo.AttentionConfig(num_heads=2),
        feed_forward=zoo.FeedForwardConfig(8),
        position=zoo.PositionConfig("rotary"),
    )
    model = zoo.CausalLM(zoo.Backbone.from_config(config), tokenizer)
    model.compile(weighted_metrics=[TokenNegativeLogLikelihood(name="nll")], run_eagerly=True)
    return model


def test_rows_of_whole_sequences():
    assert whole_rows([5, 3, 4, 2, 3], length=8) == [[0, 1], [2, 4], [3]]
    lengths = np.random.default_rng(0).integers(1, 40, 500)
    rows = whole_rows(lengths, 64)
    assert sorted(number for row in rows for number in row) == list(range(500))
    assert max(lengths[row].sum() for row in rows) <= 64 and len(rows) <= lengths.sum() / 64 * 1.02 + 1
    with pytest.raises(ValueError, match="lengths must be at most length=8, got 9"):
        whole_rows([9], 8)


@pytest.mark.parametrize("loss_on", ["replies", "all"])
def test_what_is_learned(model, loss_on):
    tokenizer, talk = model.tokenizer, TALKS[2]
    preprocessor = model.preprocessor.replace(loss_on=loss_on)
    inputs, labels, weights = preprocessor.collate(*preprocessor.examples([talk])[:3])
    ids = tokenize_chat(tokenizer, talk, add_reply=False)
    count = len(ids) - 1
    np.testing.assert_array_equal(inputs["token_ids"][0, :count], ids[:-1])
    assert int(inputs["padding_mask"].numpy().sum()) == count and not weights.numpy()[0, count:].any()
    learned = [tokenizer.id_to_token(token) for token in labels.numpy()[0][weights.numpy()[0] > 0]]
    replies = ["2", "<|im_end|>", *"Yes.", "<|im_end|>"]
    assert learned == (replies if loss_on == "replies" else [tokenizer.id_to_token(token) for token in ids[1:]])


def test_packed_conversations_are_learned_as_single_ones(model):
    alone = model.evaluate(TALKS, return_dict=True, verbose=0)["nll"]
    # the first two share a row
    packed = model.evaluate(TALKS, packed=120, return_dict=True, verbose=0)["nll"]
    assert packed == pytest.approx(alone, rel=1e-5)
    dataset = model.preprocessor.packed_dataset(TALKS, length=120, shuffle=False)
    inputs, _, weights = next(iter(dataset))
    assert inputs["token_ids"].shape == (2, 120) and weights.shape == (2, 120)
    assert sorted(set(inputs["sequence_ids"].numpy()[0])) == [-1, 0, 1]
    weighted = model.evaluate(TALKS, sample_weight=[0, 1, 0], packed=120, return_dict=True, verbose=0)["nll"]
    assert weighted == pytest.approx(model.evaluate(TALKS[1:2], return_dict=True, verbose=0)["nll"], rel=1e-5)


def test_fit(model):
    before = model.evaluate(TALKS, return_dict=True, verbose=0)["nll"]
    history = model.fit(TALKS * 2, epochs=2, batch_size=3, packed=120, validation_data=TALKS, verbose=0)
    assert history.history["val_nll"][-1] < before
    # raw rows, which are generated from
    assert model._fit_inputs.for_predict([talk[:-1] for talk in TALKS])[1]


def test_replies_that_are_cut_off_are_counted(model):
    preprocessor = model.preprocessor.replace(sequence_length=40, truncate=True)
    with pytest.warns(UserWarning, match="1 of 3 conversations in x are cut before what is learned: nothing is"):
        preprocessor.examples([TALKS[0], *TALKS[1:]])
    with pytest.raises(ValueError, match="1 of 1 conversations in x are cut before what is learned: shorten them"):
        preprocessor.examples(TALKS[:1])


def test_errors_name_the_conversation(model):
    for talks, message in (
        (TALKS[0], "x must be a list of conversations, got one conversation: put it in a list"),
        ([TALKS[0], TALKS[1][:1]], r"x\[1\] must hold a message of 'assistant' to learn"),
        ([[{"role": "bot", "content": "a"}]], r"x\[0\]\[0\]\['role'\] must be one of"),
        (
            [TALKS[1], [{"role": "assistant", "content": "a" * 300}]],
            r"x\[1\] has \d+ tokens .* max_length=240 .*, or pass truncate=True to the preprocessor to cut its end",
        ),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            model.fit(talks, packed=240)
    with pytest.raises(ValueError, match="loss_on must be one of"):
        model.preprocessor.replace(loss_on="users")
    plain = zoo.CausalLM(model.backbone, model.tokenizer.with_chat_format(None))
    with pytest.raises(ValueError, match="needs a tokenizer with a chat format"):
        plain.fit(TALKS)
