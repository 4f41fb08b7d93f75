"""SavedModels of language models in a process that knows nothing of this project: the texts that `generate` gives."""

import dataclasses
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo import (  # noqa: E402
    AttentionConfig,
    Backbone,
    CausalLM,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    Sample,
    TransformerConfig,
)
from zoo.generation import MinimumLength, NoRepeatNGram, RepetitionPenalty  # noqa: E402
from zoo.tokenizers import WordPieceTokenizer  # noqa: E402

CLIENT = """
import json, sys

import numpy as np
import tensorflow as tf
import tensorflow_text
from served_rows import write_in_rows


def chosen(seed, most=0):
    return map(tf.constant, (np.int64(seed), most, -1.0, -1, -1.0, [""]))


request = json.load(sys.stdin)
results = []
for directory in request["exports"]:
    model = tf.saved_model.load(directory)
    result = {}
    texts = tf.constant(request["texts"], tf.string)
    few = texts[:3]
    for name, call in {
        "serve": lambda: model.serve(texts),
        "generate": lambda: model.generate(few, *chosen(request["seed"])),
        "signature": lambda: model.signatures["serve"](texts=few)["texts"],
        "default": lambda: model.signatures["serving_default"](texts=few)["texts"],
    }.items():
        result[name] = [text.decode("utf-8", "replace") for text in call().numpy()]
    result["none"] = model.serve(texts[:0]).numpy().tolist()
    prompts, scored = map(tf.constant, request["pairs"])
    result["score"] = model.score(prompts, scored).numpy().tolist()
    scores = model.signatures["score"](prompts=prompts, texts=scored)["log_likelihoods"]
    assert scores.numpy().tolist() == result["score"]
    forward = {name: tf.constant(value) for name, value in request["forward"].items()}
    result["forward"] = model.forward(**forward).numpy().tolist()
    result["other"] = [text.decode("utf-8", "replace") for text in model.generate(
        few, *chosen(2**32 - 1, 4)).numpy()]
    result["signatures"] = sorted(model.signatures)
    if "advance" in model.signatures:
        tokens = model.signatures["tokens"](texts=texts)
        few_tokens = tokens["token_ids"][:9]
        found = model.signatures["score_tokens"](token_ids=few_tokens, alternatives=tf.constant(3))
        result["tokens"] = [few_tokens.numpy().tolist(), {name: each.numpy().tolist() for name, each in found.items()}]
        added = write_in_rows(model, directory, tokens, "continuation", "texts", request["seed"])
        result["rows"] = [(a + b).decode("utf-8", "replace") for a, b in zip(texts.numpy(), added)]
    result["errors"] = []
    for call in (lambda: model.serve(tf.concat([texts[:-1], [request["long"]]], axis=0)),
                 lambda: model.score(prompts[:1], tf.constant([request["long"]])),
                 lambda: model.generate(few, *chosen(-1))):
        try:
            result["cut"] = [text.decode("utf-8", "replace") for text in call().numpy()]
            result["errors"].append("none")
        except tf.errors.InvalidArgumentError as error:
            result["errors"].append(error.message)
    results.append(result)
assert not {"keras_hub", "sentencepiece", "zoo", "layers"} & set(sys.modules)
print(json.dumps(results))
"""

HELPERS = Path(__file__).parents[2] / "helpers"
RULES = [RepetitionPenalty(1.3), NoRepeatNGram(3), MinimumLength(2)]
EXPORTS = {
    "greedy": {
        **{"processors": RULES, "stop": ["eta", [9, 10]], "strip_prompt": True},
        **{"jit_compile": False, "max_new_tokens": 10},
    },
    # a prompt that is cut leaves room by itself
    "sample": {"sampler": Sample(1.2, top_k=12), "seed": 5, "jit_compile": False, "stop": ["lambda"], "truncate": True},
    # beams: test_seq2seq_export.py, and the functions as they are in test_text_generation.py
}
LONG = ["iota", "beta", "omega", "theta"] * 10


@pytest.fixture(scope="module")
def model(tiny_tokenizer):
    keras.utils.set_random_seed(0)
    config = TransformerConfig(
        "decoder",
        vocabulary_size=tiny_tokenizer.vocabulary_size,
        hidden_dim=16,
        num_layers=2,
        max_length=32,
        # caches of a window are there too
        attention=AttentionConfig(num_heads=2, window=(5, 0), window_layers=(True, False)),
        feed_forward=FeedForwardConfig(32),
        norm=NormConfig(placement="pre"),
        position=PositionConfig("rotary"),
        dropout=0.0,
        initializer_range=0.7,
    )
    return CausalLM(Backbone.from_config(config), tiny_tokenizer)


@pytest.fixture(scope="module")
def prompts():
    """200 random prompts, some with words and characters that the tokenizer does not know."""
    generator = random.Random(1)
    words = "alpha beta gamma kappa iota lambda omega theta alp ka \u4f60 w\u00f6rd eta  xyz".split(" ")
    return ["", " ", *(" ".join(generator.choices(words, k=generator.randint(1, 5))) for _ in range(198))]


@pytest.fixture(scope="module")
def forward_inputs():
    generator = np.random.default_rng(0)
    return {
        "token_ids": generator.integers(0, 26, (3, 6)).astype("int32"),
        "padding_mask": np.arange(6) < np.array([[6], [3], [5]]),
    }


@pytest.fixture(scope="module")
def answers(model, prompts, forward_inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    for name, options in EXPORTS.items():
        model.export(folder / name, **options)
    request = {
        "texts": prompts,
        "pairs": [prompts[:9], prompts[9:18]],
        "forward": {name: value.tolist() for name, value in forward_inputs.items()},
        "long": " ".join(LONG),
        "seed": EXPORTS["sample"]["seed"],
        "exports": [str(folder / name) for name in EXPORTS],
    }
    result = subprocess.run(
        [sys.executable, "-c", CLIENT],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(HELPERS)},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return dict(zip(EXPORTS, json.loads(result.stdout), strict=True))


@pytest.mark.parametrize("name", EXPORTS)
def test_generates_what_python_generates(model, prompts, answers, name):
    expected = model.generate(prompts, **{**EXPORTS[name], "jit_compile": False}, batch_size=256)
    assert len(set(expected)) > 60
    assert answers[name]["serve"] == expected
    for way in ("generate", "signature", "default"):
        assert answers[name][way] == expected[: len(answers[name][way])] and len(answers[name][way]) >= 3
    assert answers[name]["none"] == []
    other = {**EXPORTS[name], "jit_compile": False, "max_new_tokens": 4, "seed": 2**32 - 1}
    if name != "sample":  # its prompts are cut for the export's number of tokens
        assert answers[name]["other"] == model.generate(prompts[: len(answers[name]["other"])], **other)


def test_scores_and_logits(model, prompts, forward_inputs, answers):
    expected = model.score(prompts[9:18], prompts=prompts[:9])
    logits = model(forward_inputs)
    for answer in answers.values():
        # sums of up to ten log-probabilities of a size up to 20
        np.testing.assert_allclose(answer["score"], expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(answer["forward"], logits, rtol=1e-4, atol=1e-4)


def test_rows_write_what_python_generates(model, prompts, answers):
    assert answers["greedy"]["signatures"] == ["forward", "generate", "score", "serve", "serving_default"]
    rows = ["advance", "begin", "continuation", "score_tokens", "spellings", "tokens"]
    assert answers["sample"]["signatures"] == sorted([*answers["greedy"]["signatures"], *rows])
    assert answers["sample"]["rows"] == model.generate(prompts, **EXPORTS["sample"], batch_size=256)


def test_each_token_has_the_probability_that_the_logits_give_it(model, answers):
    ids, scored = answers["sample"]["tokens"]
    ids = np.array(ids)
    is_token = ids >= 0
    assert not is_token.all()
    logits = np.asarray(model({"token_ids": np.maximum(ids, 0), "padding_mask": is_token}), "float64")[:, :-1]
    expected = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    known = is_token[:, 1:]
    chosen = np.take_along_axis(expected, np.maximum(ids[:, 1:, None], 0), axis=-1)[:, :, 0]
    assert [row[0] for row in scored["log_probabilities"]] == [0.0] * len(ids)
    values = np.array(scored["log_probabilities"])[:, 1:]
    np.testing.assert_allclose(values, np.where(known, chosen, 0), rtol=1e-4, atol=1e-4)
    best, scores = (np.array(scored[f"alternative_{name}"])[:, 1:] for name in ("ids", "log_probabilities"))
    order = np.argsort(-expected, axis=-1, kind="stable")[:, :, :3]
    np.testing.assert_array_equal(best, np.where(known[:, :, None], order, -1))
    kept = np.where(known[:, :, None], np.take_along_axis(expected, order, axis=-1), 0)
    np.testing.assert_allclose(scores, kept, rtol=1e-4, atol=1e-4)


def test_prompt_longer_than_the_model(answers):
    assert "A prompt must have at least 1 token and leave room for another below 32" in answers["greedy"]["errors"][0]
    assert answers["sample"]["errors"][0] == "none"
    for answer in answers.values():
        assert "A text has more tokens than the model takes (32)" in answer["errors"][1]
        assert "seed must be an integer from 0 to 2**32 - 1" in answer["errors"][2]


def test_prompt_that_is_cut(model, prompts, answers):
    """A quarter of the 32 tokens is left free; the start token and the last 23 words stay. Other rows are as before."""
    served = answers["sample"]["cut"]
    assert served[:-1] == answers["sample"]["serve"][:-1]
    whole, end = " ".join(LONG), " ".join(LONG[-23:])
    options = {**EXPORTS["sample"], "truncate": False, "batch_size": 256}
    expected = model.generate([*prompts[:-1], end], **options)[-1]
    assert expected.startswith(end) and len(expected) > len(end)
    assert served[-1] == whole + expected[len(end) :]


def test_spellings_of_a_tokenizer_that_does_not_say_them(model):
    tokenizer = WordPieceTokenizer.train(["alpha beta 你好 नमस्ते"], 60, lowercase=False)
    config = dataclasses.replace(model.backbone.config, vocabulary_size=tokenizer.vocabulary_size + 2)
    endpoint = CausalLM(Backbone.from_config(config), tokenizer).endpoints(max_new_tokens=2)["spellings"]
    # traced as an export does
    found = tf.function(endpoint.function)(tf.range(config.vocabulary_size)).numpy().tolist()
    assert found == [*tokenizer.spellings, b"", b""] and {b" a", "你".encode(), b" beta"} & set(found)


def test_wrong_arguments(model, tmp_path):
    with pytest.raises(ValueError, match="max_length must be an integer from 2 to 32, got 33"):
        model.export(tmp_path / "export", max_length=33)
    (tmp_path / "precious.bin").write_text("data")
    with pytest.raises(FileExistsError, match="will not be overwritten"):
        model.export(tmp_path)


def test_what_a_server_has_to_know_of_texts(tiny_llama, untrained):
    """Drawn texts depend on their place in a batch, and those of decoders begin with their prompts."""

    def properties(model, **options):
        endpoints = model.endpoints(max_new_tokens=4, **options)
        chosen = dict(endpoints["generate"].properties)
        # a request may ask for a temperature where nothing else draws, but of a search for the best
        is_greedy = "sampler" not in options
        assert chosen.pop("may_draw", False) is is_greedy and chosen == endpoints["serve"].properties
        return chosen

    assert properties(tiny_llama) == {"begins_with_prompt": True}
    assert properties(tiny_llama, sampler="sample") == {"begins_with_prompt": True, "draws": True}
    assert properties(tiny_llama, sampler="sample", strip_prompt=True) == {"draws": True}
    assert properties(tiny_llama, sampler={"name": "beam", "num_beams": 2}, strip_prompt=True) == {}
    assert properties(untrained) == {} and properties(untrained, sampler="sample") == {"draws": True}
