"""Entities from tags and back."""

import random

import pytest

from zoo.preprocessing import decode_bio, encode_bio


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
    ],
)
def test_decoding(tags, entities):
    assert decode_bio(tags.split()) == entities


def test_back_and_forth():
    generator = random.Random(0)
    for _ in range(100):
        cuts = sorted(generator.sample(range(12), 6))
        entities = [(generator.choice("AB"), *cuts[at : at + 2]) for at in (0, 2, 4)]
        assert decode_bio(encode_bio(entities, 12)) == entities


def test_what_is_no_tag():
    for tag in ("A", "B-", "E-A", "-A"):
        with pytest.raises(ValueError, match=rf"tags\[1\] must be 'O', or .* got '{tag}'"):
            decode_bio(["O", tag])
    for entities, message in (
        ([("A", 2, 2)], r"0 <= start < end <= 3, got \('A', 2, 2\)"),
        ([("A", 0, 4)], "end <= 3"),
        ([("A", 0, 2), ("B", 1, 3)], r"\('B', 1, 3\) overlaps"),
    ):
        with pytest.raises(ValueError, match=message):
            encode_bio(entities, 3)
