"""Words of texts with their places, entities from tags and back."""

import itertools
import random

import pytest

tf = pytest.importorskip("tensorflow")

from zoo.preprocessing import decode_tags, encode_bio, split_words  # noqa: E402
from zoo.preprocessing.tags import character_spans  # noqa: E402

SPLIT = [
    ("Otto, the 2nd, met", ["Otto", ",", "the", "2nd", ",", "met"]),
    ("the U.S. e-mail", ["the", "U.S", ".", "e-mail"]),
    ("Don't pay 3.50 (or -4)!", ["Don't", "pay", "3.50", "(", "or", "-", "4", ")", "!"]),
    ("\u201eJ\u00f6rg\u201c, M\u00fcnchen\u2026", ["\u201e", "J\u00f6rg", "\u201c", ",", "M\u00fcnchen", "\u2026"]),
    # a letter and its accent apart, two scripts, a character of four bytes
    ("Rene\u0301e \u6771\u4eac\u3001 \U0001f600 x", ["Rene\u0301e", "\u6771", "\u4eac", "\u3001", "\U0001f600", "x"]),
    ("  \t\n", []),
    ("", []),
]


@pytest.mark.parametrize("split", ["punctuation", "space"])
def test_words_and_their_places(split):
    texts = [text for text, _ in SPLIT]
    words, starts, ends = (part.to_list() for part in split_words(tf.constant(texts), split))
    for row, (text, expected) in enumerate(SPLIT):
        expected = expected if split == "punctuation" else text.split()
        assert [word.decode() for word in words[row]] == expected
        data = text.encode()
        assert [data[start:end] for start, end in zip(starts[row], ends[row], strict=True)] == words[row]
        # the places of the words in characters, found one behind the other
        places, at = [], 0
        for word in expected:
            at = text.index(word, at)
            places.append((at, at := at + len(word)))
        assert character_spans(data, starts[row], ends[row]) == places


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        ("", []),
        ("O O", []),
        ("B-A", [("A", 0, 1)]),
        ("B-A I-A O B-B", [("A", 0, 2), ("B", 3, 4)]),
        ("B-A B-A I-A", [("A", 0, 1), ("A", 1, 3)]),
        # as the evaluation of CoNLL reads them: I- begins where nothing of its label goes on
        ("I-A I-A O I-B", [("A", 0, 2), ("B", 3, 4)]),
        ("B-A I-B I-A", [("A", 0, 1), ("B", 1, 2), ("A", 2, 3)]),
        ("B-A-1 I-A-1", [("A-1", 0, 2)]),
        # BIOES and BILOU
        ("B-A I-A E-A S-A S-A O", [("A", 0, 3), ("A", 3, 4), ("A", 4, 5)]),
        ("B-A L-A U-B I-A L-A", [("A", 0, 2), ("B", 2, 3), ("A", 3, 5)]),
    ],
)
def test_decoding(tags, entities):
    assert decode_tags(tags.split()) == entities


def test_all_short_rows_are_decoded_as_conlleval_does():
    """Beginnings and ends of chunks by the rules of that script, with those of BILOU as synonyms."""
    tags = ["O", *(f"{prefix}-{label}" for prefix in "BIESLU" for label in "XY")]
    same = str.maketrans("LU", "ES")
    for row in itertools.product(tags, repeat=4):
        pairs = [("O", ""), *((tag[0].translate(same), tag[2:]) for tag in row), ("O", "")]
        expected, start = [], None
        for place, ((before, last), (now, label)) in enumerate(itertools.pairwise(pairs)):
            ends = before in "ES" or (before in "BI" and now in "BSO") or (before != "O" and last != label)
            begins = now in "BS" or (now in "EI" and before in "ESO") or (now != "O" and last != label)
            if start is not None and ends:
                expected.append((last, start, place))
                start = None
            if begins:
                start = place
        assert decode_tags(row) == expected, row


def test_back_and_forth():
    generator = random.Random(0)
    for _ in range(100):
        cuts = sorted(generator.sample(range(12), 6))
        entities = [(generator.choice("AB"), *cuts[at : at + 2]) for at in (0, 2, 4)]
        assert decode_tags(encode_bio(entities, 12)) == entities


def test_what_is_no_tag():
    for tag in ("A", "B-", "X-A", "-A", "BI-A"):
        with pytest.raises(ValueError, match=rf"tags\[1\] must be 'O', or .* got '{tag}'"):
            decode_tags(["O", tag])
    for entities, message in (
        ([("A", 2, 2)], r"0 <= start < end <= 3, got \('A', 2, 2\)"),
        ([("A", 0, 4)], "end <= 3"),
        ([("A", 0, 2), ("B", 1, 3)], r"\('B', 1, 3\) overlaps"),
    ):
        with pytest.raises(ValueError, match=message):
            encode_bio(entities, 3)
