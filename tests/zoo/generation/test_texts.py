"""From tokens to texts: characters are never split, stop strings cut exactly, spaces at the seam."""

import itertools
import random

import pytest

tf = pytest.importorskip("tensorflow")

from zoo.generation.texts import PieceWriter, continuations, cut_at_stops  # noqa: E402
from zoo.tokenizers import ByteLevelBPETokenizer, SentencePieceTokenizer, WordPieceTokenizer  # noqa: E402

TEXT = "a caf\u00e9, \u4f60\u597d \U0001f469\u200d\U0001f680 e\u0301 END of it"


@pytest.mark.parametrize("stops", [(), ("END",), ("\u597d", "it"), ("END of the",)], ids=str)
def test_pieces_of_bytes(stops):
    """Byte by byte and in larger steps: the pieces joined are the text, and none ends within a character."""
    whole = TEXT.encode()
    expected = cut_at_stops(tf.constant([whole]), stops).numpy()[0].decode()
    for step in (1, 2, 5):
        writer, pieces = PieceWriter(stops), []
        for end in range(0, len(whole), step):
            cut = cut_at_stops(tf.constant([whole[:end]]), stops).numpy()[0]
            if len(cut) < end:
                break
            pieces.append(writer.add(cut))
        pieces.append(writer.finish(cut_at_stops(tf.constant([whole]), stops).numpy()[0]))
        assert "".join(pieces) == expected
        assert not any("\ufffd" in piece for piece in pieces)
        for shown in itertools.accumulate(pieces):
            assert expected.startswith(shown)


def test_invalid_bytes_become_replacement_characters():
    writer = PieceWriter()
    pieces = [writer.add(b"a\xe4"), writer.add(b"a\xe4b"), writer.finish(b"a\xe4b\xf0\x9f")]
    assert pieces == ["a", "\ufffdb", "\ufffd"]


def test_replacement_characters_wait():
    """A tokenizer may write bytes without their neighbours as the replacement character, and take it back later."""
    writer = PieceWriter()
    steps = ["a\ufffd", "a\ufffd\ufffd", "a\u4f60", "a\u4f60\ufffdb"]
    assert [writer.add(step.encode()) for step in steps] == ["a", "", "\u4f60", "\ufffdb"]


@pytest.mark.parametrize(
    "text, stops, expected",
    [
        (b"one two", ("tw", "ne"), b"o"),
        (b"one two", ("x",), b"one two"),
        (b"a.b\nc", (".b\n",), b"a"),
        (b"axb", (".",), b"axb"),
        (b"a\xffSTOP\xfe\xff\n", ("STOP",), b"a\xff"),
        ("caf\u00e9 \u4f60 \u597d".encode(), ("\u4f60",), "caf\u00e9 ".encode()),
        (b"", ("a",), b""),
        (b"a(b[c\\d", ("[c\\",), b"a(b"),
    ],
)
def test_cut_at_stops(text, stops, expected):
    cut = tf.function(lambda texts: cut_at_stops(texts, stops))
    assert cut(tf.constant([text, b"", text])).numpy().tolist() == [expected, b"", expected]


def test_continuations():
    lines = ["the caf\u00e9 is old", "the old man is there", "there is the man"]
    tokenizer = SentencePieceTokenizer.train(lines * 20, vocabulary_size=278, byte_fallback=True)
    start, end = tokenizer.start_id, tokenizer.end_id
    cases = [
        ([start, *tokenizer.tokenize("the old").numpy()], tokenizer.tokenize("man is").numpy(), " man is"),
        ([start], tokenizer.tokenize("man is").numpy(), "man is"),
        ([start, *tokenizer.tokenize("old").numpy(), end, start], tokenizer.tokenize("man").numpy(), " man"),
        ([start, *tokenizer.tokenize("old").numpy()], [], ""),
    ]
    prompts, generated = (tf.ragged.constant([list(case[part]) for case in cases], tf.int32) for part in (0, 1))
    texts = tf.function(lambda a, b: continuations(tokenizer, a, b))(prompts, generated)
    assert [text.decode() for text in texts.numpy()] == [case[2] for case in cases]


LINES = [
    "the caf\u00e9 is old",
    "the old man is there, there",
    "don't say \u4f60\u597d!",
    "un-do: e\u0301 - \U0001f600",
] * 20


def trained(kind):
    if kind == "sentencepiece":
        return SentencePieceTokenizer.train(LINES, vocabulary_size=290, byte_fallback=True)
    if kind == "bytes":
        return ByteLevelBPETokenizer.train(LINES, vocabulary_size=300)
    return WordPieceTokenizer.train(LINES, vocabulary_size=70, lowercase=False)


@pytest.mark.parametrize("kind", ["sentencepiece", "bytes", pytest.param("wordpiece", marks=pytest.mark.slow)])
def test_texts_only_grow(kind):
    """Any tokens, also bytes that make no character: pieces of a stream joined are the text."""
    tokenizer, generator = trained(kind), random.Random(0)
    assert tokenizer.unstable_tokens == 0
    special = {tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id}
    ids = [token for token in range(tokenizer.vocabulary_size) if token not in special]
    rows = [generator.choices(ids, k=12) for _ in range(150)]
    prompts = [tokenizer.tokenize(generator.choice(LINES)).numpy().tolist()[: generator.randint(0, 5)] for _ in rows]
    grown = []
    for count in range(13):
        some = [row[:count] for row in rows]
        ragged = (tf.ragged.constant(part, tf.int32, ragged_rank=1) for part in (prompts, some))
        grown.append(continuations(tokenizer, *ragged).numpy())
    for row in range(len(rows)):
        writer = PieceWriter()
        pieces = [writer.add(texts[row]) for texts in grown[:-1]]
        pieces.append(writer.finish(grown[-1][row]))
        assert "".join(pieces) == grown[-1][row].decode("utf-8", "replace")
