"""What tokens add to texts: put together behind a text, spellings are what the tokens of it detokenize to."""

import random
import re

import pytest
import tensorflow as tf

from zoo.tokenizers import SentencePieceTokenizer, Tokenizer, WordPieceTokenizer

KINDS = ["unigram", "bpe", "bytes", "byte_level", "wordpiece"]


@pytest.fixture(scope="module")
def tokenizers(trained, sentences):
    wordpiece = WordPieceTokenizer.train(sentences, 200, lowercase=False)
    return {**trained, "wordpiece": wordpiece}


def texts_behind(tokenizer, first, rows):
    """The bytes that rows of tokens add to the text of the first token."""
    before, *texts = tokenizer.detokenize([[first], *([first, *row] for row in rows)]).numpy().tolist()
    assert all(text.startswith(before) for text in texts)
    return [text.removeprefix(before) for text in texts]


def test_spellings_put_together_are_texts(tokenizers):
    generator = random.Random(0)
    for name, tokenizer in tokenizers.items():
        spellings = tokenizer.spellings
        assert len(spellings) == tokenizer.vocabulary_size, name
        spelled = [index for index, spelling in enumerate(spellings) if spelling]
        assert len(spelled) > 0.5 * len(spellings), name
        first = next(index for index in spelled if spellings[index].strip().isalpha())
        rows = [generator.choices(spelled, k=generator.randint(1, 12)) for _ in range(200)]
        expected = [b"".join(spellings[index] for index in row) for row in rows]
        for got, joined in zip(texts_behind(tokenizer, first, rows), expected, strict=True):
            # bytes that are no UTF-8 are replaced, some of them together
            assert re.sub("\ufffd+", "?", got.decode()) == re.sub("\ufffd+", "?", joined.decode(errors="replace")), name


def test_control_tokens_and_the_unknown_one_spell_nothing(tokenizers):
    for name, tokenizer in tokenizers.items():
        silent = {tokenizer.token_to_id(token) for token in tokenizer.special_tokens} | {tokenizer.unknown_id}
        assert not any(tokenizer.spellings[index] for index in silent - {None}), name


def test_bytes_of_characters(tokenizers):
    spellings = tokenizers["bytes"].spellings
    assert {bytes([value]) for value in range(256)} <= set(spellings)
    assert any(spelling.startswith(b" ") and len(spelling) > 1 for spelling in spellings)


def test_pieces_that_no_text_has():
    """Control, unknown and unused pieces of a model."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    piece = model.SentencePiece
    kinds = [
        ("<unk>", piece.UNKNOWN),
        ("</s>", piece.CONTROL),
        *((f"<0x{value:02X}>", piece.BYTE) for value in range(256)),
        ("\u2581a", piece.NORMAL),
        ("<user>", piece.USER_DEFINED),
        ("gone", piece.UNUSED),
        ("नम", piece.NORMAL),
    ]
    for text, kind in kinds:
        model.pieces.add(piece=text, score=-1.0, type=kind)
    model.trainer_spec.byte_fallback = True
    tokenizer = SentencePieceTokenizer(model.SerializeToString())
    every_byte = [bytes([value]) for value in range(256)]
    assert tokenizer.spellings == [b"", b"", *every_byte, b" a", b"<user>", b"", "नम".encode()]


class LetterTokenizer(Tokenizer, kind="letters_for_spellings"):
    """Says nothing of spellings; one of its tokens is a part of a character."""

    def _detokenize(self, ids):
        pieces = tf.gather(tf.constant([b"", b"a", b" b", b"\xef\xbf\xbd"]), ids)
        return tf.strings.reduce_join(pieces, axis=1)


def test_a_tokenizer_of_users():
    def make():
        return LetterTokenizer(["<end>", "a", "b", "part"], end_token="<end>")

    assert make().spellings == [b"", b"a", b" b", b""]

    @tf.function
    def traced():
        return tf.constant(make().spellings)

    assert traced().numpy().tolist() == [b"", b"a", b" b", b""]
