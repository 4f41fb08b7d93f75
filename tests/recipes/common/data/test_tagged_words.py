import pytest

from recipes.common.data import tagged_words
from recipes.common.data.data_sets import Source, open_part
from recipes.common.data.tagged_words import TAGGED, read_conll, read_tagged
from recipes.common.errors import BadLines, ConfigError, DataError


def read(tmp_path, text, name="a.conll", on_error="raise", **columns):
    (tmp_path / name).write_text(text, encoding="utf-8")
    bad = BadLines(on_error)
    return [(s.words, s.tags) for s in read_conll(tmp_path / name, bad, **columns)], bad


def test_sentences_end_at_empty_lines(tmp_path):
    sentences, _ = read(tmp_path, "Al\tB-PER\ncame\tO\n\n\nyes\tO\n")
    assert sentences == [(("Al", "came"), ("B-PER", "O")), (("yes",), ("O",))]


def test_spaces_where_there_is_no_tab(tmp_path):
    assert read(tmp_path, "Al NNP B-PER\n", tag_column=3)[0] == [(("Al",), ("B-PER",))]


def test_conllu(tmp_path):
    text = "# text = don't go\n1-2\tdon't\t_\t_\n1\tdo\tdo\tAUX\n2\tn't\tnot\tPART\n2.1\t_\t_\t_\n3\tgo\tgo\tVERB\n\n"
    sentences, _ = read(tmp_path, text, "a.conllu", word_column=2, tag_column=4)
    assert sentences == [(("do", "n't", "go"), ("AUX", "PART", "VERB"))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tO\nb\n", r"a\.conll:2: wrong number of columns: 1, needed are 2"),
        ("a\tO\nb\t \n", r"a\.conll:2: no word or no tag"),
        ("\n\n", "holds no sentence"),
    ],
)
def test_bad_lines_name_their_place(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, text)


def test_a_sentence_with_a_bad_line_is_left_out_whole(tmp_path):
    sentences, bad = read(tmp_path, "a\tO\nb\nc\tO\n\nd\tO\n", on_error="skip")
    assert sentences == [(("d",), ("O",))]
    assert bad.total == 1


def test_generated_sentences_are_well_tagged():
    for sentence in TAGGED["date_parts"]().test:
        assert len(sentence.words) == len(sentence.tags)
        assert [tag for tag in sentence.tags if tag.startswith("B-")].__len__() == 3
    with pytest.raises(DataError, match="did you mean 'wnut17'"):
        open_part(["wnut"], "train", Source(TAGGED, read_tagged), "raise")
    with pytest.raises(ConfigError, match="data.tag_column must be a number of at least 1, got 0"):
        read_tagged(["a.conll"], BadLines("raise"), tag_column=0)


@pytest.mark.parametrize(
    ("name", "sizes", "words", "tags"),
    [("ud_english_ewt", (12544, 2001), 204_577, 17), ("wnut17", (3394, 1009), 62_730, 13)],
)
def test_real_data(data_folder, name, sizes, words, tags):
    splits = TAGGED[name]()
    assert (len(splits.train), len(splits.validation)) == sizes
    assert sum(len(sentence.words) for sentence in splits.train) == words
    assert len({tag for sentence in splits.train for tag in sentence.tags}) == tags


def test_sources_are_pinned():
    for file in (*tagged_words.UD_ENGLISH_EWT.values(), *tagged_words.WNUT17.values()):
        assert len(file.commit) == 40 and len(file.sha256) == 64
