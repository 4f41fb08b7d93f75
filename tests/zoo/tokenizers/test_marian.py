"""The tokenizer of Marian's models: ids are those of the sentencepiece package and a dictionary; files; both sides."""

import copy
import json

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
sentencepiece = pytest.importorskip("sentencepiece")

from zoo.preprocessing import Seq2SeqLMPreprocessor  # noqa: E402
from zoo.tokenizers import MarianTokenizer, Tokenizer, eager_graphs, load_huggingface, save_huggingface  # noqa: E402
from zoo.tokenizers.sentencepiece_training import train_sentencepiece  # noqa: E402

SOURCES = ["a small dog runs", "two dogs run fast", "the house is small", "run to the house"] * 3
TARGETS = ["ein kleiner Hund rennt", "zwei Hunde rennen schnell", "das Haus ist klein", "renn zum Haus"] * 3
TEXTS = ["a small dog", "", " the  house", ">>de<< a dog", ">>xx<<dog", "Hund x\u00df 7", "<pad> </s> dog", "a\ndog"]


def train(texts, size):
    proto = train_sentencepiece(
        texts,
        size,
        model_type="unigram",
        pad_token="<pad>",
        start_token="<s>",
        end_token="</s>",
        unknown_token="<unk>",
        special_tokens=(),
        character_coverage=1.0,
        byte_fallback=False,
        split_digits=False,
        normalization="identity",
        remove_extra_whitespaces=True,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=proto)


@pytest.fixture(scope="module")
def models():
    return train(SOURCES, 26), train(TARGETS, 30)


@pytest.fixture(scope="module")
def vocabulary(models):
    pieces = dict.fromkeys(model.id_to_piece(index) for model in models for index in range(4, len(model)))
    # a piece is missing, as some are in published vocabularies
    return ["</s>", "<unk>", *list(pieces)[:-1], ">>de<<", "\u00df", "<pad>"]


@pytest.fixture(scope="module")
def tokenizer(models, vocabulary):
    source, target = (model.serialized_model_proto() for model in models)
    return MarianTokenizer(vocabulary, source, target)


def expected_ids(model, vocabulary, text):
    code, rest = [], text
    if text.startswith(">>") and "<<" in text:
        end = text.index("<<") + 2
        code, rest = [text[:end]], text[end:]
    ids = {token: index for index, token in enumerate(vocabulary)}
    return [ids.get(piece, 1) for piece in code + model.encode(rest, out_type=str)]


def test_ids_of_both_sides(tokenizer, models, vocabulary, monkeypatch):
    monkeypatch.setattr(eager_graphs, "TRACED_CALL", 2)
    tokenizer = copy.deepcopy(tokenizer)  # that nobody has called
    for _ in range(3):  # calls that are no graph and calls that are
        for side, model in zip((tokenizer, tokenizer.of_targets), models, strict=True):
            expected = [expected_ids(model, vocabulary, text) for text in (*TEXTS, *SOURCES, *TARGETS)]
            assert side.tokenize([*TEXTS, *SOURCES, *TARGETS]).to_list() == expected
    assert tokenizer.of_targets is tokenizer.of_targets  # or each call would be the first
    assert vocabulary.index(">>de<<") in tokenizer.tokenize(">>de<< a dog").numpy()
    # what spells a special token is text
    assert not {0, len(vocabulary) - 1} & set(tokenizer.tokenize("<pad> </s> <pad>").numpy().tolist())


def test_offsets(tokenizer):
    texts = [text for text in TEXTS if text]
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    assert ids.to_list() == tokenizer.tokenize(texts).to_list()
    for text, row, first, last in zip(texts, ids.to_list(), starts.to_list(), ends.to_list(), strict=True):
        for token, begin, end in zip(row, first, last, strict=True):
            piece = tokenizer.id_to_token(token)
            if piece not in ("<unk>", "\u2581"):
                assert text[begin:end].strip() == piece.replace("\u2581", " ").strip(), (text, piece)


def test_joined(tokenizer):
    for side, texts in ((tokenizer, SOURCES[:4]), (tokenizer.of_targets, TARGETS[:4])):
        known = [text for text in texts if tokenizer.unknown_id not in side.tokenize(text).numpy()]
        assert known and [text.decode() for text in tokenizer.detokenize(side.tokenize(known)).numpy()] == known
    assert tokenizer.detokenize([[1, tokenizer.pad_id, 0, 3]]).numpy() == b"<unk>"


def test_in_files_and_in_a_graph(tokenizer, vocabulary, tmp_path):
    tokenizer.save(tmp_path / "own")
    save_huggingface(tokenizer, tmp_path / "theirs", after=["</s>"], max_length=512)
    assert json.loads((tmp_path / "theirs" / "vocab.json").read_text())["<pad>"] == len(vocabulary) - 1
    for loaded in (
        Tokenizer.load(tmp_path / "own"),
        load_huggingface(tmp_path / "theirs"),
        MarianTokenizer.from_config(tokenizer.get_config()),
    ):
        assert (loaded.pad_id, loaded.end_id, loaded.unknown_id) == (len(vocabulary) - 1, 0, 1)
        assert loaded.tokenize(TEXTS).to_list() == tokenizer.tokenize(TEXTS).to_list()
        found = tf.function(loaded.of_targets.tokenize)(tf.constant(TARGETS))
        assert found.to_list() == tokenizer.of_targets.tokenize(TARGETS).to_list()
    with pytest.raises(ValueError, match="puts '</s>' behind a text and nothing else"):
        save_huggingface(tokenizer, tmp_path / "other", before=["</s>"])


def test_targets_of_a_preprocessor(tokenizer):
    preprocessor = Seq2SeqLMPreprocessor(tokenizer, sequence_length=20, decoder_start_token="<pad>")
    inputs, labels, _ = preprocessor(SOURCES[:2], TARGETS[:2])
    assert inputs["encoder_token_ids"][0].numpy().tolist()[:5] == tokenizer.tokenize(SOURCES[0]).numpy().tolist()[:5]
    ids = tokenizer.of_targets.tokenize(TARGETS[0]).numpy().tolist()
    row = np.asarray(labels[0]).tolist()
    assert row[: len(ids) + 1] == [*ids, 0]
    assert np.asarray(inputs["decoder_token_ids"][0]).tolist()[: len(ids) + 1] == [tokenizer.pad_id, *ids]


def test_damaged(tokenizer, vocabulary, models):
    with pytest.raises(ValueError, match="source.spm: "):
        MarianTokenizer(vocabulary, b"nothing", tokenizer.target_proto)
    with pytest.raises(ValueError, match="end_token.*'</t>'"):
        MarianTokenizer(vocabulary, tokenizer.source_proto, tokenizer.target_proto, end_token="</t>")


def test_with_a_model_in_files_of_transformers(tokenizer, tmp_path):
    import dataclasses
    from pathlib import Path

    import zoo
    from zoo.huggingface import read_config

    config = read_config(Path(__file__).parents[2] / "reference" / "huggingface" / "marian")
    config = dataclasses.replace(config, vocabulary_size=tokenizer.vocabulary_size)
    preprocessor = Seq2SeqLMPreprocessor(tokenizer, decoder_start_token="<pad>")
    task = zoo.Seq2SeqLM(zoo.Backbone.from_config(config), preprocessor)
    task.save_to_huggingface(tmp_path / "model", model_type="marian")
    loaded = zoo.Seq2SeqLM.from_preset(tmp_path / "model")
    assert loaded.preprocessor.decoder_start_id == tokenizer.pad_id
    options = {"max_new_tokens": 4, "sampler": "greedy", "jit_compile": False}
    assert loaded.generate(SOURCES[:2], **options) == task.generate(SOURCES[:2], **options)
