"""Words at spaces against rules written in Python, and the tables of words that are one token."""

import random
import re

import pytest
import sentencepiece
import tensorflow as tf
from sentencepiece import sentencepiece_model_pb2

from zoo.tokenizers import ByteLevelBPETokenizer, SentencePieceTokenizer
from zoo.tokenizers.byte_level_bpe import _APART
from zoo.tokenizers.known_words import KnownWords
from zoo.tokenizers.sentencepiece_words import splits_at_spaces
from zoo.tokenizers.spaced_words import words_at_spaces


def rows_of(texts, **options):
    found = words_at_spaces(tf.constant(texts, tf.string, shape=[len(texts)]), _APART, **options)
    words = [word.decode() for word in tf.gather(found.words, found.places).numpy()]
    splits = found.row_splits.numpy()
    return [words[first:last] for first, last in zip(splits[:-1], splits[1:], strict=True)], found


def odd_spacing(count):
    generator = random.Random(3)
    return [
        "".join(
            generator.choices("ab \t\n\u00e9\u00a0\u3000\x00", [4, 2, 6, 1, 1, 1, 1, 1, 1], k=generator.randrange(16))
        )
        for _ in range(count)
    ]


def test_words_begin_at_single_spaces():
    texts = ["", " ", "  ", "a", " a", "a ", "a b", " a b ", "a  b c d", *odd_spacing(800)]
    rows, found = rows_of(texts, with_starts=True)
    # a piece whose other end is white space is not split from its neighbours, so Python's rule may split more often
    for text, words in zip(texts, rows, strict=True):
        assert "".join(words) == text and "" not in words
        at_most = re.split(r"(?<=\S)(?= \S)", text)
        borders = {sum(map(len, at_most[:count])) for count in range(1, len(at_most))} | {0, len(text)}
        assert {sum(map(len, words[:count])) for count in range(len(words))} <= borders, text
        if re.fullmatch(r" ?\S+( \S+)*", text):
            assert words == at_most, text
    starts = [sum(map(len, words[:count])) for words in rows for count in range(len(words))]
    assert found.starts.numpy().tolist() == starts


def test_words_without_their_space():
    texts = ["", " ", "a", " a", "a ", "b a b", "b  a", *odd_spacing(300)]
    rows, found = rows_of(texts, keeps_space=False)
    assert [" ".join(words) for words in rows] == texts
    assert len({*found.words.numpy()}) == len(found.words)


def test_known_words():
    known = KnownWords([b"a", b"", b"b"], [5, 6, 7])
    asked = []

    def others(places):
        asked.append(places.numpy().tolist())
        return tf.ragged.constant([[1, 2, 3], []], dtype=tf.int32)

    words = tf.constant(["b", "x", "", "y", "a", "b"])
    assert known.tokenize(words, others).to_list() == [[7], [1, 2, 3], [6], [], [5], [7]]
    assert asked == [[1, 3]]


def test_characters_that_stand_for_others():
    """The splitter reads U+0000 as U+0001; what it finds there must not be taken for the token of U+0001."""
    tokenizer = ByteLevelBPETokenizer.train(["\x01\x01 a\x01 b\x00"] * 9, 270)
    texts = ["\x00", " \x00", "\x01", "a\x00", "\x00\x00 \x01\x01", "x\x00.\x01"]
    ids = tokenizer.tokenize(texts)
    assert [text.decode() for text in tokenizer.detokenize(ids).numpy()] == texts


def model_of(pieces, **changes):
    model = sentencepiece_model_pb2.ModelProto()
    piece = model.SentencePiece
    model.pieces.add(piece="<unk>", type=piece.UNKNOWN)
    for byte in range(256):
        model.pieces.add(piece=f"<0x{byte:02X}>", type=piece.BYTE)
    for rank, text in enumerate(pieces):
        model.pieces.add(piece=text, score=-rank)
    model.trainer_spec.model_type = model.trainer_spec.BPE
    model.trainer_spec.byte_fallback = True
    model.trainer_spec.bos_id = model.trainer_spec.eos_id = -1
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.remove_extra_whitespaces = False
    for name, value in changes.items():
        specification = model.trainer_spec if hasattr(model.trainer_spec, name) else model.normalizer_spec
        setattr(specification, name, value)
    return model


PIECES = [
    "\u2581",
    "a",
    "b",
    "\u2581\u2581",
    "ab",
    "\u2581a",
    "\u2581ab",
    "aa",
    "\u2581b",
    "abab",
    "\u2581\u2581\u2581",
]


@pytest.mark.parametrize("add_dummy_prefix", [True, False])
def test_sentencepiece_of_words_equals_the_package(add_dummy_prefix):
    model = model_of(PIECES, add_dummy_prefix=add_dummy_prefix)
    tokenizer = SentencePieceTokenizer(model.SerializeToString())
    assert splits_at_spaces(model) and len(tokenizer.trackables) == 2
    generator = random.Random(4)
    texts = [
        "".join(generator.choices("ab \u2581\t\u00e9", [5, 5, 6, 1, 1, 1], k=generator.randrange(14)))
        for _ in range(1500)
    ]
    package = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.proto)
    assert tokenizer.tokenize(texts).to_list() == package.encode(texts)
    assert tokenizer.tokenize_with_offsets(texts)[0].to_list() == package.encode(texts)


def test_tokens_that_hold_the_end_of_a_word_are_not_split():
    model = model_of([*PIECES, "b\u2581", "b\u2581a"])
    tokenizer = SentencePieceTokenizer(model.SerializeToString())
    assert not splits_at_spaces(model)
    package = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.proto)
    assert tokenizer.tokenize(["ab ab a"]).to_list() == package.encode(["ab ab a"])
    for changes in ({"byte_fallback": False}, {"remove_extra_whitespaces": True}, {"escape_whitespaces": False}):
        assert not splits_at_spaces(model_of(PIECES, **changes))
    unigram = sentencepiece_model_pb2.TrainerSpec.UNIGRAM
    assert not splits_at_spaces(model_of(PIECES, model_type=unigram))
