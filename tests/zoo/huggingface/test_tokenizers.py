"""Tokenizers of saved tasks: what Transformers puts around texts, and back. See tests/reference/tokenizers.py."""

import dataclasses
import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tokenizers

tf = pytest.importorskip("tensorflow")

import zoo  # noqa: E402
from zoo.tasks import CausalLM, MaskedLM, Seq2SeqLM, TextClassifier  # noqa: E402
from zoo.tokenizers import (  # noqa: E402
    ByteLevelBPETokenizer,
    SentencePieceTokenizer,
    WordPieceTokenizer,
    load_huggingface,
)

BART = Path(__file__).parents[2] / "reference" / "tokenizers" / "bart"
SMALL = {"hidden_dim": 16, "num_layers": 1, "max_length": 40}
LINES = ["the small dog runs over 12 fields.", "two men, a dog; der B\u00e4cker", "  spaces   and \u4f60\u597d ", ""]


@pytest.fixture(scope="module")
def wordpiece():
    return WordPieceTokenizer.train(LINES * 5, 120, lowercase=True)


@pytest.fixture(scope="module")
def byte_level():
    return ByteLevelBPETokenizer.train(LINES * 5, 300)


@pytest.fixture(scope="module")
def unigram():
    return SentencePieceTokenizer.train(LINES[:3] * 5, 40, character_coverage=1.0)


@pytest.fixture(scope="module")
def bytes_bpe():
    options = {"byte_fallback": True, "normalization": "identity", "remove_extra_whitespaces": False}
    return SentencePieceTokenizer.train(LINES[:3] * 5, 300, model_type="bpe", **options)


def make(task_class, preset, tokenizer, **options):
    keras.utils.set_random_seed(0)
    config = zoo.preset_config(preset)
    scale = config.embedding.output_scale and SMALL["hidden_dim"] ** -0.5
    config = dataclasses.replace(
        config,
        vocabulary_size=tokenizer.vocabulary_size,
        attention=dataclasses.replace(config.attention, num_heads=2, head_dim=None, num_key_value_heads=None),
        embedding=dataclasses.replace(config.embedding, output_scale=scale),
        feed_forward=dataclasses.replace(config.feed_forward, intermediate_dim=24),
        **SMALL,
    )
    return task_class(zoo.Backbone.from_config(config), tokenizer, **options)


ROBERTA_HEAD = {"pooling": "first", "hidden_activation": "tanh", "inner_bias": True, "pair_separators": 2}
CASES = {
    "bert": (TextClassifier, "bert_base_uncased", "wordpiece", {"labels": 2, "pairs": True}),
    "roberta": (TextClassifier, "roberta_base", "bart", {**ROBERTA_HEAD, "labels": 2, "pairs": True}),
    "roberta masked": (MaskedLM, "roberta_base", "bart", {}),
    "gpt2": (CausalLM, "gpt2_small", "byte_level", {}),
    "llama": (CausalLM, "llama_shakespeare", "bytes_bpe", {}),
    "t5": (Seq2SeqLM, "t5_small", "unigram", {"decoder_start_token": "<pad>"}),
    "bart": (Seq2SeqLM, "bart_base", "bart", {"decoder_start_token": "</s>"}),
}


@pytest.fixture
def case(request):
    task_class, preset, kind, options = CASES[request.param]
    if kind == "bart":
        tokenizer = load_huggingface(BART)
    else:
        tokenizer = request.getfixturevalue(kind)
    return request.param.split()[0], make(task_class, preset, tokenizer, **options)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, indirect=True)
def test_saved_tokenizers(case, tmp_path):
    name, task = case
    folder = tmp_path / name
    assert task.save_to_huggingface(folder, model_type=name) == name
    loaded = type(task).from_preset(folder)
    original = task.tokenizer
    assert loaded.tokenizer.tokenize(LINES).to_list() == original.tokenize(LINES).to_list()
    assert loaded.preprocessor.special_tokens() == task.preprocessor.special_tokens()
    special = task.preprocessor.special_tokens()
    around = [[] if special[role] is None else [special[role]] for role in ("start_id", "end_id")]
    rows = original.tokenize(LINES).to_list()
    expected = [{"texts": [LINES], "ids": [[*around[0], *row, *around[1]] for row in rows]}]
    separators = task.options().get("pair_separators")
    if separators is not None:
        pairs = zip(rows, rows[::-1], strict=True)
        ids = [[*around[0], *one, *(around[1] * separators), *two, *around[1]] for one, two in pairs]
        expected.append({"texts": [LINES, LINES[::-1]], "ids": ids})
    (folder / "expected.json").write_text(json.dumps(expected))
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for check in expected:
        inputs = check["texts"][0] if len(check["texts"]) == 1 else list(zip(*check["texts"], strict=True))
        assert [encoding.ids for encoding in library.encode_batch(inputs)] == check["ids"]
    if isinstance(task, Seq2SeqLM):
        assert loaded.preprocessor.decoder_start_id == task.preprocessor.decoder_start_id
        assert loaded.score(["two men"], ["a dog"]) == pytest.approx(task.score(["two men"], ["a dog"]), rel=1e-4)


def test_bart_begins_texts_as_published(tmp_path):
    """Golden ids of Transformers: sources, labels and what the decoder is given."""
    golden = json.loads((BART / "golden.json").read_text("utf-8"))
    saved = make(Seq2SeqLM, "bart_base", load_huggingface(BART), decoder_start_token="</s>")
    saved.save_to_huggingface(tmp_path / "bart", model_type="bart")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BART / name, tmp_path / "bart" / name)
    model = Seq2SeqLM.from_preset(tmp_path / "bart")
    assert model.preprocessor.text_ids(tf.constant(golden["texts"])).to_list() == golden["ids"]
    inputs, labels, weights = model.preprocessor.training_batch(
        tf.constant(golden["texts"]), tf.constant(golden["targets"])
    )
    width = len(golden["labels"][0])
    real = np.array(weights)[:, :width] > 0
    assert np.array(labels)[:, :width].tolist() == golden["labels"] and not np.array(weights)[:, width:].any()
    np.testing.assert_array_equal(
        np.array(inputs["decoder_token_ids"])[:, :width][real], np.array(golden["decoder_input_ids"])[real]
    )
    assert real.sum(1).tolist() == [
        sum(label != model.preprocessor.pad_id for label in row) for row in golden["labels"]
    ]
