"""Training of SentencePiece models: what comes out, that it repeats, and what bad input gives."""

import pytest
import sentencepiece

from zoo.tokenizers import SentencePieceTokenizer


def train(texts, vocabulary_size=70, **options):
    return SentencePieceTokenizer.train(texts, vocabulary_size, **options)


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_repeats_exactly(sentences, model_type):
    first = train(iter(sentences), model_type=model_type)
    second = train((sentence.encode() for sentence in sentences), model_type=model_type)
    assert first.proto == second.proto
    assert first.vocabulary_size == 70
    assert first.proto != train(sentences[:300], model_type=model_type).proto


def test_trained_model_is_the_packages_own(sentences):
    """The model is an ordinary one, that the package loads and that spells the training text without unknowns."""
    tokenizer = train(sentences, character_coverage=1.0)
    reference = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.proto)
    assert [reference.pad_id(), reference.bos_id(), reference.eos_id(), reference.unk_id()] == [0, 1, 2, 3]
    for sentence in sentences[:50]:
        ids = reference.encode(sentence)
        assert tokenizer.unknown_id not in ids
        assert reference.decode(ids) == sentence


def test_names_of_special_tokens(sentences):
    tokenizer = train(
        sentences,
        pad_token="[PAD]",
        start_token="[BOS]",
        end_token="[EOS]",
        unknown_token="[UNK]",
        special_tokens=["<a,b>", "[MASK]"],
    )
    assert tokenizer.get_vocabulary()[:6] == ["[PAD]", "[BOS]", "[EOS]", "[UNK]", "<a,b>", "[MASK]"]
    assert [tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id] == [0, 1, 2, 3]
    assert 4 in tokenizer.tokenize("the dog<a,b>runs").numpy()


def test_byte_fallback_spells_unknown_characters(sentences):
    tokenizer = train(sentences, 330, byte_fallback=True)
    ids = tokenizer.tokenize("\u4f60").numpy().tolist()
    assert [tokenizer.id_to_token(index) for index in ids[-3:]] == ["<0xE4>", "<0xBD>", "<0xA0>"]
    assert tokenizer.detokenize(ids).numpy().decode() == "\u4f60"


def test_split_digits(sentences):
    dates = [f"{year}-{month:02}" for year in range(1990, 2030) for month in range(1, 13)]
    whole = train(dates, 30, character_coverage=1.0)
    split = train(dates, 16, character_coverage=1.0, split_digits=True)
    assert len(whole.tokenize("2001-12").numpy()) < 7
    assert [split.id_to_token(index) for index in split.tokenize("2001-12").numpy()[-7:]] == list("2001-12")


def test_normalization(sentences):
    folded = train(sentences, normalization="nmt_nfkc_cf")
    assert folded.detokenize(folded.tokenize("THE Dog")).numpy() == b"the dog"
    kept = train(sentences, normalization="identity", remove_extra_whitespaces=False)
    assert kept.detokenize(kept.tokenize(" the  dog ")).numpy() == b" the  dog "


def test_no_sentence_is_lost(sentences):
    """The trainer itself drops sentences over 4,192 bytes and those that hold U+2585, without an error."""
    long = train([*sentences, "zq " * 3000], character_coverage=1.0)
    reserved = train([*sentences, "\u2585 zq"], character_coverage=1.0)
    for tokenizer in (long, reserved):
        assert tokenizer.unknown_id not in tokenizer.tokenize("zq").numpy()


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_vocabulary_size_that_the_text_does_not_allow(sentences, model_type):
    with pytest.raises(ValueError, match=r"vocabulary_size=50000 is too large .* at most (\d+)") as error:
        train(sentences[:20], 50000, model_type=model_type)
    allowed = int(str(error.value).rstrip(".").split()[-1])
    assert train(sentences[:20], allowed, model_type=model_type).vocabulary_size == allowed
    with pytest.raises(ValueError, match=r"vocabulary_size must be at least (\d+) .*, got 10"):
        train(sentences, 10, model_type=model_type)


@pytest.mark.parametrize("texts", [[], [""], ["", "  ", "\t\n"], iter(())])
@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_no_text(texts, model_type):
    with pytest.raises(ValueError, match="texts holds no text"):
        train(texts, model_type=model_type)


@pytest.mark.parametrize(
    "texts, error, message",
    [
        (["a", None], TypeError, r"texts\[1\] must be str or bytes, got None"),
        (["a", b"b\xff"], ValueError, r"texts\[1\] is not valid UTF-8"),
        (["a", "\ud800"], ValueError, r"texts\[1\] is not valid UTF-8"),
        ("a single text", TypeError, "single str"),
    ],
)
def test_bad_texts(texts, error, message):
    with pytest.raises(error, match=message):
        train(texts)


def test_an_error_of_the_iterator_comes_through(sentences):
    def texts():
        yield from sentences
        raise KeyError("disk")

    with pytest.raises(KeyError, match="disk"):
        train(texts())


@pytest.mark.parametrize(
    "options, message",
    [
        ({"model_type": "word"}, "model_type must be one of .*, got 'word'"),
        ({"normalization": "nfd"}, "normalization must be one of .*, got 'nfd'"),
        ({"character_coverage": 0.5}, "character_coverage must be .*, got 0.5"),
        ({"character_coverage": 1.1}, "character_coverage must be .*, got 1.1"),
        ({"special_tokens": ["<pad>"]}, "must be given once, got '<pad>'"),
        ({"special_tokens": ["<x>", "<x>"]}, "must be given once, got '<x>'"),
        ({"special_tokens": [""]}, "''"),
        ({"special_tokens": ["a b"]}, "must not be empty or hold white space, got 'a b'"),
        ({"vocabulary_size": 4}, "vocabulary_size must be above 4, .*, got 4"),
        ({"vocabulary_size": 200, "byte_fallback": True}, "vocabulary_size must be above 260, .*, got 200"),
    ],
)
def test_bad_options(sentences, options, message):
    with pytest.raises(ValueError, match=message):
        train(sentences, **options)
