"""WordPieceTokenizer against the `tokenizers` library."""

import pytest
import tensorflow as tf
import tokenizers

from zoo.tokenizers import Tokenizer, WordPieceTokenizer


def library(tokenizer, **options):
    """The same tokenizer of the library."""
    vocabulary = {token: index for index, token in enumerate(tokenizer.get_vocabulary())}
    result = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    result.normalizer = tokenizers.normalizers.BertNormalizer(**options)
    result.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    result.decoder = tokenizers.decoders.WordPiece()
    return result


@pytest.mark.parametrize(
    "lowercase, strip_accents, clean_text, split_ideographs",
    [(True, None, True, True), (False, None, True, True), (True, False, False, True), (False, True, True, False)],
)
def test_equals_the_library(wordpiece, odd_texts, lowercase, strip_accents, clean_text, split_ideographs):
    ours = WordPieceTokenizer(
        wordpiece.get_vocabulary(),
        lowercase=lowercase,
        strip_accents=strip_accents,
        clean_text=clean_text,
        split_ideographs=split_ideographs,
    )
    theirs = library(
        ours,
        lowercase=lowercase,
        strip_accents=strip_accents,
        clean_text=clean_text,
        handle_chinese_chars=split_ideographs,
    )
    expected = theirs.encode_batch(odd_texts)
    ids, starts, ends = ours.tokenize_with_offsets(odd_texts)
    decoded = ours.detokenize(ids).numpy()
    rows = zip(odd_texts, expected, ids.to_list(), starts.to_list(), ends.to_list(), decoded, strict=True)
    for text, encoding, row, begin, end, string in rows:
        assert row == encoding.ids, text
        assert list(zip(begin, end, strict=True)) == encoding.offsets, text
        assert string.decode("utf-8") == theirs.decode(row, skip_special_tokens=False), text
    assert ours.tokenize(odd_texts).to_list() == ids.to_list()


def test_every_character_of_the_first_planes(wordpiece):
    """Cleaning, accents, case and splitting at each character, seen by a vocabulary of single characters."""
    points = [*range(1, 0x3100), *range(0x3100, 0xD800, 37), *range(0xE000, 0xF900, 500), *range(0xF900, 0x1F800, 3)]
    theirs = library(wordpiece, lowercase=True)
    texts = [f"a{chr(point)}a" for point in points]
    normal = theirs.normalizer.normalize_str
    words = [[word for word, _ in theirs.pre_tokenizer.pre_tokenize_str(normal(text))] for text in texts]
    vocabulary = {"[UNK]": None, "a": None, "##a": None}
    for row in words:
        for word in row:
            vocabulary.update(dict.fromkeys([word[0], *(f"##{part}" for part in word[1:])]))
    ours = WordPieceTokenizer(
        list(vocabulary), lowercase=True, pad_token=None, start_token=None, end_token=None, mask_token=None
    )
    ids = {token: index for index, token in enumerate(vocabulary)}
    expected = [[ids[word[0]] for word in row] for row in words]
    is_first = tf.constant([not token.startswith("##") for token in vocabulary])
    rows = ours.tokenize(texts)
    firsts = tf.ragged.boolean_mask(rows, tf.gather(is_first, rows)).to_list()
    different = {points[place] for place, row in enumerate(expected) if row != firsts[place] or ids["[UNK]"] in row}
    # Letters whose case Unicode 15 and later define, unknown to the Python that tabulates it.
    assert len(different) < 80, sorted(map(hex, different))
    assert all(0x1C89 <= point for point in different)


def test_long_words_and_long_texts(wordpiece):
    theirs = library(wordpiece, lowercase=True)
    texts = ["a" * 100, "a" * 101, "\u00e9" * 100, "b" * 100_000, "the dog " * 12_500, "!" * 5000]
    assert wordpiece.tokenize(texts).to_list() == [encoding.ids for encoding in theirs.encode_batch(texts)]
    assert wordpiece.tokenize("a" * 101).numpy().tolist() == [wordpiece.unknown_id]


def test_invalid_utf8_is_read_as_python_reads_it(wordpiece, awkward_texts):
    expected = wordpiece.tokenize([text.decode("utf-8", "replace") for text in awkward_texts]).to_list()
    assert wordpiece.tokenize(awkward_texts).to_list() == expected


@pytest.mark.parametrize("texts", [[], ["", " \t"]])
def test_no_tokens(wordpiece, texts):
    ids, starts, ends = wordpiece.tokenize_with_offsets(texts)
    assert ids.to_list() == starts.to_list() == ends.to_list() == [[]] * len(texts)
    assert wordpiece.detokenize(ids).numpy().tolist() == [b""] * len(texts)


def test_saved_and_loaded(wordpiece, sentences, tmp_path):
    wordpiece.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert type(loaded) is WordPieceTokenizer and loaded.get_config() == wordpiece.get_config()
    assert loaded.tokenize(sentences).to_list() == wordpiece.tokenize(sentences).to_list()
    assert loaded.special_tokens == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<end>"]
    roles = [loaded.pad_id, loaded.unknown_id, loaded.start_id, loaded.end_id, loaded.mask_id]
    assert roles == [0, 1, 2, 3, 4]


def test_vocabulary_file(wordpiece, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join([*wordpiece.get_vocabulary(), ""]).encode())
    loaded = WordPieceTokenizer.from_file(path, lowercase=True)
    assert loaded.get_vocabulary() == wordpiece.get_vocabulary()
    path.write_bytes(b"[UNK]\n\xff\n")
    with pytest.raises(ValueError, match="vocab.txt: line 2 must be UTF-8"):
        WordPieceTokenizer.from_file(path, lowercase=True)
    path.write_text("[UNK]\na\n\nb\n")
    without = dict.fromkeys(("pad_token", "start_token", "end_token", "mask_token"))
    with pytest.raises(ValueError, match=r"vocab.txt.*vocabulary\[2\] must have 1 to"):
        WordPieceTokenizer.from_file(path, lowercase=True, **without)


def test_errors():
    WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##" + "a" * 256], lowercase=True)
    with pytest.raises(ValueError, match=r"vocabulary\[5\] must have at most 256 bytes"):
        WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a" * 257], lowercase=True)
    with pytest.raises(ValueError, match="unknown_token must be a token, got None"):
        WordPieceTokenizer(
            ["a"],
            lowercase=True,
            pad_token=None,
            start_token=None,
            end_token=None,
            mask_token=None,
            unknown_token=None,
        )
    with pytest.raises(ValueError, match=r"mask_token must be in the vocabulary .*, got '\[MASK\]'"):
        WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]"], lowercase=True)


def test_golden_cases_of_bert(data_directory):
    folder = data_directory / "tokenizers"
    ours = WordPieceTokenizer.from_file(folder / "bert_base_uncased_vocab.txt", lowercase=True)
    texts = (folder / "golden" / "ggml-vocab-bert-bge.gguf.inp").read_bytes().split(b"\n__ggml_vocab_test__\n")
    lines = (folder / "golden" / "ggml-vocab-bert-bge.gguf.out").read_text().split("\n")
    assert ours.tokenize(texts).to_list() == [[int(word) for word in line.split()] for line in lines[: len(texts)]]


@pytest.mark.parametrize("case", ["cased", "uncased"])
def test_real_vocabulary_on_real_text(data_directory, multi30k_lines, case):
    ours = WordPieceTokenizer.from_file(
        data_directory / "tokenizers" / f"bert_base_{case}_vocab.txt", lowercase=case == "uncased"
    )
    theirs = library(ours, lowercase=case == "uncased")
    lines = [*multi30k_lines, *(data_directory / "wikitext2" / "valid.txt").read_text("utf-8").split("\n")[:1000]]
    assert ours.tokenize(lines).to_list() == [encoding.ids for encoding in theirs.encode_batch(lines)]
