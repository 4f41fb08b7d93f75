"""Steps before a SentencePiece model, and tokens that are whole words, against the `tokenizers` library.

Run as a program for more texts:

    python tests/zoo/tokenizers/test_text_steps.py --texts 100000
"""

import argparse
import json
import random
import tempfile

import pytest
import tokenizers
from sentencepiece import sentencepiece_model_pb2

from zoo.tokenizers import SentencePieceTokenizer, Tokenizer, load_huggingface, save_huggingface
from zoo.tokenizers.text_steps import STEPS, TextSteps

normalizers, pre_tokenizers = tokenizers.normalizers, tokenizers.pre_tokenizers
# no marks behind letters: the library and SentencePiece disagree on what a compiled normalization does with these
PLAIN = (
    "abcdeghilnoorstu   \t\n\r\u00a0\u3000\u00fc\u00e9\u00c4DER.!?,12'`\"\u2581_\ufb01\u2460\u4f60\U0001f642<>\u0130"
)
MARKS = PLAIN + "\u0301\u0308\u0327\u1e69\u0323\u0307\uac00\u1100\u1161"
SENTENCES = [
    "the dog runs over the grass.",
    "an old woman looks at a red ball!",
    "der B\u00e4cker l\u00e4uft \u00fcber die Stra\u00dfe",
    'the "child" sits near 12 houses',
] * 20


def texts_of(alphabet, count, seed):
    generator = random.Random(seed)
    words = [*alphabet, *(word for sentence in SENTENCES[:4] for word in sentence.split()), "``", "''", "  ", "\n", " "]
    return ["".join(generator.choices(words, k=generator.randrange(14))) for _ in range(count)]


def metaspace(with_split=False):
    parts = [pre_tokenizers.WhitespaceSplit()] * with_split
    return pre_tokenizers.Sequence([*parts, pre_tokenizers.Metaspace(prepend_scheme="always", split=True)])


def regex(pattern):
    return normalizers.Replace(tokenizers.Regex(pattern), " ")


def albert(charsmap):
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    accents = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    return [*quotes, *accents, normalizers.Precompiled(charsmap)], metaspace(True)


# as the classes of the Transformers library make them, by their names there
KINDS = {
    "albert": albert,
    "albert_cased": lambda charsmap: (albert(charsmap)[0][:2] + [normalizers.Precompiled(charsmap)], metaspace(True)),
    "xlnet": lambda charsmap: (albert(charsmap)[0][:4], metaspace(True)),
    "deberta": lambda charsmap: (
        [regex(r"\s{2,}|[\n\r\t]"), normalizers.NFC(), normalizers.Strip(left=False, right=True)],
        metaspace(),
    ),
    "mbart": lambda charsmap: ([], metaspace(True)),
    "pegasus": lambda charsmap: ([normalizers.Precompiled(charsmap), regex(" {2,}")], metaspace()),
    "pegasus_without": lambda charsmap: ([regex(r"\n"), regex(" {2,}")], metaspace()),
    "nfkc": lambda charsmap: ([normalizers.NFKC()], metaspace(True)),
    "nfkc_spaces": lambda charsmap: ([normalizers.NFKC(), regex(" {2,}")], metaspace()),
    "plain": lambda charsmap: ([], metaspace()),
    "charsmap": lambda charsmap: ([normalizers.Precompiled(charsmap)], metaspace()),
    "strip": lambda charsmap: ([normalizers.Strip(), normalizers.Lowercase()], metaspace()),
}


def train():
    # sorted: in another order, two segmentations of ''' may have equal scores, which the libraries choose differently
    texts = [*SENTENCES, *texts_of("".join(sorted(set(MARKS) - set("\u2581 \n\r\t\u00a0\u3000"))), 200, 10)]
    return SentencePieceTokenizer.train(texts, 150, character_coverage=1.0, normalization="nmt_nfkc")


def library_of(kind, trained):
    model = sentencepiece_model_pb2.ModelProto.FromString(trained.proto)
    result = tokenizers.Tokenizer(
        tokenizers.models.Unigram([(piece.piece, piece.score) for piece in model.pieces], unk_id=3)
    )
    steps, result.pre_tokenizer = KINDS[kind](model.normalizer_spec.precompiled_charsmap)
    if steps:
        result.normalizer = normalizers.Sequence(steps)
    result.decoder = tokenizers.decoders.Metaspace(prepend_scheme="always")
    result.add_special_tokens(["<pad>", "<sos>", "<eos>", "<unk>"])
    result.encode_special_tokens = True
    return result


def texts_for(kind, count, seed):
    has_charsmap = kind in ("albert", "albert_cased", "pegasus", "charsmap")
    return texts_of(PLAIN if has_charsmap else MARKS, count, seed)


@pytest.fixture(scope="module")
def unigram():
    return train()


@pytest.mark.parametrize("kind", KINDS)
def test_ids_equal_the_library(unigram, tmp_path, kind):
    library = library_of(kind, unigram)
    library.save(str(tmp_path / "tokenizer.json"))
    ours, texts = load_huggingface(tmp_path), texts_for(kind, 400, 1)
    expected = [encoding.ids for encoding in library.encode_batch(texts, add_special_tokens=False)]
    for text, one, other in zip(texts, ours.tokenize(texts).to_list(), expected, strict=True):
        assert one == other, repr(text)
    ids, starts, ends = ours.tokenize_with_offsets(texts)
    assert ids.to_list() == expected
    for text, begin, end in zip(texts, starts.to_list(), ends.to_list(), strict=True):
        assert all(0 <= a <= b <= len(text) for a, b in zip(begin, end, strict=True)), repr(text)
        assert begin == sorted(begin)
    # written for that library, and as we store it
    save_huggingface(ours, tmp_path / "written")
    again = tokenizers.Tokenizer.from_file(str(tmp_path / "written" / "tokenizer.json"))
    again.encode_special_tokens = True
    assert [encoding.ids for encoding in again.encode_batch(texts, add_special_tokens=False)] == expected
    assert load_huggingface(tmp_path / "written").tokenize(texts).to_list() == expected
    ours.save(tmp_path / "stored")
    assert Tokenizer.load(tmp_path / "stored").tokenize(texts).to_list() == expected


def test_positions(unigram, tmp_path):
    library_of("albert", unigram).save(str(tmp_path / "tokenizer.json"))
    ours = load_huggingface(tmp_path)
    text = "The \u00dcber  ``DOG''\ufb01"
    ids, starts, ends = (part.numpy().tolist() for part in ours.tokenize_with_offsets(text))
    assert "".join(map(ours.id_to_token, ids)).replace("\u2581", " ").strip() == 'the uber "dog"fi'
    quotes = [(text[a:b]) for index, a, b in zip(ids, starts, ends, strict=True) if '"' in ours.id_to_token(index)]
    assert [quote.strip() for quote in quotes] == ["``", "''"]
    assert ends[-1] == len(text)
    library_of("nfkc", unigram).save(str(tmp_path / "tokenizer.json"))
    ours = load_huggingface(tmp_path)
    ids, starts, ends = (part.numpy().tolist() for part in ours.tokenize_with_offsets("e\u0301 \ufb01 u"))
    assert {(a, b) for a, b in zip(starts, ends, strict=True)} >= {(0, 2), (5, 6)} or ends[0] == 2


def test_each_step():
    import tensorflow as tf

    cases = {
        "collapse_white_space": ("a\u00a0b \u3000c\td ", "a\u00a0b c d "),
        "line_feeds": ("a\n\nb\r", "a  b\r"),
        "lowercase": ("A\u00c4\u0130", "a\u00e4i\u0307"),
        "nfc": ("e\u0301\ufb01", "\u00e9\ufb01"),
        "nfkc": ("e\u0301\ufb01", "\u00e9fi"),
        "outer_spaces": ("  a b\n ", "a b\n"),
        "quotes": ("'' ``` '''' '`", '" "` "" \'`'),
        "several_spaces": ("a   b  ", "a b "),
        "strip_accents": ("\u00e9\u1e69\ufb01\u0301", "esfi"),
        "strip_left": ("\n \u3000a ", "a "),
        "strip_right": (" a \n\u3000", " a"),
        "words": (" a\u00a0\n\u3000b \u2581c\n", "a b\u2581c"),
    }
    assert set(cases) == set(STEPS)
    for name, (text, expected) in cases.items():
        # in a batch as alone, whatever is beside it
        changed = TextSteps([name]).texts(tf.constant(["", text, " ", text, "'"])).numpy()
        assert changed[1] == changed[3] == expected.encode(), name
    with pytest.raises(ValueError, match="steps must be among .* got 'upper'"):
        TextSteps(["upper"])
    with pytest.raises(ValueError, match="steps must not hold 'charsmap'"):
        TextSteps(["charsmap"])


@pytest.mark.parametrize("kind", ["wordpiece", "byte_level", "unigram"])
def test_tokens_that_are_whole_words(request, tmp_path, kind):
    base = request.getfixturevalue(kind)
    save_huggingface(base, tmp_path)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for content, options in {
        "d\u00f6g": {"single_word": True},
        "<x>": {"single_word": True, "lstrip": True},
        "cat": {"single_word": True},
        "ox": {"rstrip": True},
    }.items():
        library.add_tokens([tokenizers.AddedToken(content, normalized=False, **options)])
    library.encode_special_tokens = True
    library.save(str(tmp_path / "tokenizer.json"))
    ours = load_huggingface(tmp_path)
    assert ours.single_words == ("d\u00f6g", "<x>", "cat")
    generator = random.Random(0)
    parts = ["d\u00f6g", "cat", "<x>", "ox", " ", "  ", "a", "_", "\u0e31", "\u0663", "\u24b6", "-", "\u200d", "\u4f60"]
    texts = ["".join(generator.choices(parts, k=generator.randrange(9))) for _ in range(600)]
    texts += ["d\u00f6g", "the d\u00f6g.", "d\u00f6gs", "d\u00f6gd\u00f6g", "x<x>", "a  <x>b", "cat  a"]
    expected = [encoding.ids for encoding in library.encode_batch(texts, add_special_tokens=False)]
    for text, one, other in zip(texts, ours.tokenize(texts).to_list(), expected, strict=True):
        assert one == other, repr(text)
    save_huggingface(ours, tmp_path / "written")
    written = {
        entry["content"]: entry
        for entry in json.loads((tmp_path / "written/tokenizer.json").read_text())["added_tokens"]
    }
    assert written["cat"]["single_word"] and not written["ox"]["single_word"]
    ours.save(tmp_path / "stored")
    assert Tokenizer.load(tmp_path / "stored").tokenize(texts).to_list() == expected


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=20_000)
    arguments = parser.parse_args()
    trained = train()
    for kind in KINDS:
        library = library_of(kind, trained)
        with tempfile.TemporaryDirectory() as folder:
            library.save(f"{folder}/tokenizer.json")
            ours = load_huggingface(folder)
        wrong = 0
        for seed in range(-(-arguments.texts // 10_000)):
            texts = texts_for(kind, min(10_000, arguments.texts), seed)
            expected = [encoding.ids for encoding in library.encode_batch(texts, add_special_tokens=False)]
            for text, one, other in zip(texts, ours.tokenize(texts).to_list(), expected, strict=True):
                wrong += one != other
                if one != other and wrong < 4:
                    print(repr(text), one, other)
        print(f"{kind}: {wrong} of {arguments.texts} texts with other ids")


if __name__ == "__main__":
    main()
