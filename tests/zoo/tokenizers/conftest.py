import gzip
import os
import random
from pathlib import Path

import pytest

from zoo.tokenizers import ByteLevelBPETokenizer, SentencePieceTokenizer, WordPieceTokenizer

AWKWARD_TEXTS = [
    b"",
    b" ",
    b"     ",
    " \u200b\u00a0\u3000\ufeff".encode(),
    b"  two  leading and  trailing  ",
    b"tab\tand\nnewline\r\n",
    "emoji \U0001f642 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea".encode(),
    "composed \u00e9 and combining e\u0301 z\u0335\u0321\u0352".encode(),
    b"control \x01\x02\x1b\x7f and nul \x00 inside",
    "reserved \u2581 \u2585 \u2047 \ufffd".encode(),
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u4f60\u597d \u3053\u3093\u306b\u3061\u306f".encode(),
    "full width \uff21\uff22\uff23 ligature \ufb01 \u00bd".encode(),
    b"<pad> <sos> <eos> <unk> <s> </s> <mask> <0x41>",
    b"invalid \xff\xfe",
    b"cut \xc3",
    b"\xf0\x9f\x99",
    b"surrogate \xed\xa0\x80 overlong \xc0\xaf end",
    b"x" * 100_000,
    ("a small dog runs over the gr\u00fcn field. " * 2600).encode(),
]


@pytest.fixture(scope="session")
def awkward_texts():
    return AWKWARD_TEXTS


@pytest.fixture(scope="session")
def sentences():
    """600 made-up sentences of two languages with a few digits and rare characters."""
    generator = random.Random(0)
    subjects = "the dog,a small child,an old woman,der Hund,ein kleines M\u00e4dchen,two men,der B\u00e4cker".split(",")
    verbs = "runs over,looks at,sits near,plays with,l\u00e4uft \u00fcber,schaut auf,spielt mit".split(",")
    objects = "the grass,a red ball,the river,das gr\u00fcne Feld,eine Stra\u00dfe,12 houses,7 B\u00fccher".split(",")
    choices = (subjects, verbs, objects, [".", "!", "?"])
    return ["{} {} {}{}".format(*(generator.choice(choice) for choice in choices)) for _ in range(600)]


@pytest.fixture(scope="session")
def trained(sentences):
    """Tokenizers of different kinds, by name."""
    return {
        "unigram": SentencePieceTokenizer.train(sentences, 72, character_coverage=1.0, special_tokens=["<mask>"]),
        "bpe": SentencePieceTokenizer.train(sentences, 150, model_type="bpe", character_coverage=1.0),
        "bytes": SentencePieceTokenizer.train(
            sentences,
            400,
            model_type="bpe",
            byte_fallback=True,
            split_digits=True,
            normalization="identity",
            remove_extra_whitespaces=False,
        ),
    }


# Characters on which implementations tend to differ.
ODD_ALPHABET = (
    "abcdeh ABstLV'  \t\n\r\u00fc\u00e9e\u0301.!?1234567\u00b2\u2028\u00a0\u3000\U0001f642\u4f60\u597d\uac00"
    "\ufeff\x00\x1c\x85\u200d<>_\u2581/\u017f\u0130\u03a3\u0301\ud7a3#[]"
)


@pytest.fixture(scope="session")
def odd_texts(sentences, awkward_texts):
    """Valid text of all sorts: what is not UTF-8 in the awkward texts is U+FFFD here."""
    generator = random.Random(2)
    made_up = ["".join(generator.choices(ODD_ALPHABET, k=generator.randrange(40))) for _ in range(1500)]
    awkward = [text.decode("utf-8", "replace") for text in awkward_texts if len(text) < 10_000]
    return [*sentences[:100], *awkward, *made_up]


@pytest.fixture(scope="session")
def wordpiece(sentences):
    accents = ["d\u00e9j\u00e0 vu #[]!?.,' \u4f60\u597d"] * 3
    return WordPieceTokenizer.train([*sentences, *accents], 220, lowercase=True, special_tokens=["<end>"])


@pytest.fixture(scope="session")
def byte_level(sentences):
    return ByteLevelBPETokenizer.train(sentences, 420, special_tokens=["<|im_start|>", "<|im_end|>"])


@pytest.fixture(scope="session")
def data_directory():
    if "ZOO_DATA" not in os.environ:
        pytest.skip("ZOO_DATA names no directory of data sets")
    return Path(os.environ["ZOO_DATA"])


@pytest.fixture(scope="session")
def multi30k_lines(data_directory):
    lines = []
    for name in ("val.en.gz", "val.de.gz", "val.fr.gz", "test_2016_flickr.en.gz", "test_2016_flickr.de.gz"):
        with gzip.open(data_directory / "multi30k" / name, "rt", encoding="utf-8", newline="\n") as file:
            lines += file.read().split("\n")
    return lines
