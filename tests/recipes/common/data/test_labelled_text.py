import pytest

from recipes.common.data import dates, labelled_text
from recipes.common.data.data_sets import Source, open_part
from recipes.common.data.labelled_text import (
    LABELLED,
    columns_of,
    is_in_range,
    read_examples,
    require_known_labels,
)
from recipes.common.errors import ConfigError, DataError


def open_file(tmp_path, text, name="a.tsv", **options):
    (tmp_path / name).write_text(text, encoding="utf-8")
    on_error, highest = options.pop("on_error", "raise"), options.pop("highest", None)
    check = None if highest is None else lambda example, bad: is_in_range(example, bad, highest)
    file = str(tmp_path / name)
    source = Source(LABELLED, lambda files, bad: read_examples(files, bad, **options), check)
    return open_part([file], "train", source, on_error)


def test_names_numbers_and_lists_of_labels(tmp_path):
    examples, bad = open_file(tmp_path, "a dog \t pos\n")
    assert examples[0][:2] == (("a dog",), "pos") and bad.total == 0
    assert open_file(tmp_path, "a\t4.5\n", numeric=True)[0][0].label == 4.5
    assert open_file(tmp_path, "a\tx; y\nb\t\n", label_separator=";")[0][0].label == ["x", "y"]
    assert open_file(tmp_path, "a\tx; y\nb\t\n", label_separator=";")[0][1].label == []


def test_pairs(tmp_path):
    examples, _ = open_file(tmp_path, "1\ta\tb\n0\tc\td\n", text_columns=["2", "3"], label_column="1")
    assert columns_of(examples) == ((["a", "c"], ["b", "d"]), ["1", "0"])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a\tx\n \ty\n", {}, r"a\.tsv:2: no text"),
        ("a\tx\nb\t \n", {}, r"a\.tsv:2: no label: the field must hold a name, got ' '"),
        ("a\t1\nb\tmany\n", {"numeric": True}, r"a\.tsv:2: no label: the field must hold a number, got 'many'"),
        ("a\t1\nb\tnan\n", {"numeric": True}, r"a\.tsv:2: no label: the field must hold a number, got 'nan'"),
        ("a\t1\nb\t7\n", {"numeric": True, "highest": 5.0}, r"a\.tsv:2: number out of range: 7.0 is not from 0 to 5"),
        ("a\tx\n", {"text_columns": ["1", "2", "3"]}, "one column or two"),
        ("a\t1\nb\t" + "9" * 400 + "\n", {"numeric": True}, r"a\.tsv:2: no label"),
    ],
)
def test_bad_rows_name_their_place(tmp_path, text, options, message):
    with pytest.raises((ConfigError, DataError), match=message):
        open_file(tmp_path, text, **options)


def test_skipped_rows_are_counted_whatever_is_wrong(tmp_path):
    examples, bad = open_file(tmp_path, "a\tx\nb\n \ty\n", on_error="skip")
    assert len(examples) == 1
    assert dict(bad.counts) == {"no text": 1, "wrong number of columns": 1}


@pytest.mark.parametrize(
    ("field", "options", "needed"),
    [
        ("null", {}, "a name, got null"),
        ('["x"]', {}, r"a name, got \['x'\]"),
        ("null", {"label_separator": ","}, "a name, got null"),
        ("true", {"numeric": True}, "a number, got true"),
        ("7", {}, None),
        ("[]", {"label_separator": ","}, None),
    ],
)
def test_labels_of_json(tmp_path, field, options, needed):
    columns = {"name": "a.jsonl", "text_columns": ["text"], "label_column": "label", **options}
    text = '{"text": "a", "label": "1"}\n{"text": "b", "label": ' + field + "}\n"
    if needed is None:
        assert len(open_file(tmp_path, text, **columns)[0]) == 2
        return
    with pytest.raises(DataError, match=f"a.jsonl:2: no label: the field must hold {needed}"):
        open_file(tmp_path, text, **columns)
    examples, bad = open_file(tmp_path, text, on_error="skip", **columns)
    assert len(examples) == 1 and bad.report().startswith("skipped 1: no label 1 (")


def test_labels_that_the_validation_lacks_are_said(capsys):
    require_known_labels(["x", "y", "z"], [(["y"], "a:1"), ([], "a:2")])
    assert "validation: no row has ['x', 'z']" in capsys.readouterr().out
    require_known_labels(["x", "y"], [(["y"], "a:1"), (["x"], "a:2")])
    assert not capsys.readouterr().out


def test_labels_that_the_training_data_lack_name_their_place():
    require_known_labels(["x", "y"], [(["y", "x"], "a:1"), ([], "a:2")])
    with pytest.raises(DataError, match="a:2: 'z' does not occur in the training data, which have .'x', 'y'."):
        require_known_labels(["x", "y"], [(["y"], "a:1"), (["x", "z"], "a:2")])


def test_unknown_name_names_the_nearest():
    with pytest.raises(DataError, match="'sst22' is not the name of a data set; did you mean 'sst2'"):
        open_part(["sst22"], "train", Source(LABELLED, read_examples), "raise")


def test_languages_of_dates():
    assert dates.languages_of("4 mai 1999", "1999-05-04") == {"French"}
    assert dates.languages_of("4. Mai 1999", "1999-05-04") == {"German"}
    assert "German" not in dates.languages_of("4 May 1999", "1999-05-04")
    train, validation, test = LABELLED["date_languages"]()
    assert {example.label for example in test} == {"English", "German", "French"}
    assert not {example.texts for example in train} & {example.texts for example in test}


def test_date_pairs_have_the_share_that_agrees():
    examples = LABELLED["date_pairs"]().test
    for example in examples[:20]:
        assert example.label in (0, 1 / 3, 2 / 3, 1)
    years = [
        [
            next(word for word in text.replace("/", " ").replace(".", " ").split() if len(word) == 4 and word.isdigit())
            for text in example.texts
        ]
        for example in examples[:50]
        if example.label == 1
    ]
    assert years and all(first == second for first, second in years)


@pytest.mark.parametrize(
    ("name", "sizes", "label"),
    [
        ("sst2", (6920, 872), "positive"),
        ("sst2_phrases", (67349, 872), "positive"),
        ("ag_news", (8003, 987), "Sci/Tech"),
        ("stsb", (5749, 1500), 5.0),
    ],
)
def test_real_data(data_folder, name, sizes, label):
    splits = LABELLED[name]()
    assert (len(splits.train), len(splits.validation)) == sizes
    assert splits.train[0].label == label
    if splits.test is not None:
        assert not {example.texts for example in splits.train} & {example.texts for example in splits.test}


def test_sources_are_pinned():
    for file in (*labelled_text.SST2.values(), labelled_text.AG_NEWS, *labelled_text.STSB.values()):
        assert len(file.commit) == 40 and len(file.sha256) == 64


@pytest.mark.parametrize(
    "text",
    [
        "text\tlabel\na b\tx\n",
        "Review\tSentiment\na b\tx\n",
        "phrase_bank\tverdict\n" + "a b\tx\nc d\ty\n" * 3,
        "phrase bank\tmy verdict\n" + "a b\tx\nc d\ty\n" * 3,
        "phrase, written\tgiven grade\n" + "a b\tx\nc d\ty\n" * 3,
    ],
)
def test_a_header_that_nobody_named_is_said(tmp_path, text):
    with pytest.raises(DataError, match=r"a\.tsv:1: the first row looks like the names .* header true .* header false"):
        open_file(tmp_path, text)
    assert len(open_file(tmp_path, text, header=False)[0]) == text.count("\n")
    # by number as without a header, or by name
    examples, _ = open_file(tmp_path, text, header=True)
    assert examples[0][:2] == (("a b",), "x") and len(examples) == text.count("\n") - 1
    names = text.split("\n")[0].split("\t")
    assert open_file(tmp_path, text, header=True, text_columns=names[:1], label_column=names[1])[0] == examples


@pytest.mark.parametrize("text", ["fine\tpos\nbad\tneg\n", "Tuesday\tday\n4 May\tdate\n5 May\tdate\n"])
def test_a_first_row_that_may_be_data_is_data(tmp_path, text):
    assert len(open_file(tmp_path, text)[0]) == text.count("\n")


NUMBERS = "a b\t1\nc d\t2\ne f\t3\n"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("Phrase Bank\tGrade Given\n" + NUMBERS, {}),
        ("Phrase\tgrades\n" + "a b\tx;y\nc d\ty;x\n" * 3, {"label_separator": ";"}),
    ],
)
def test_a_header_over_numbers_or_several_labels_is_said(tmp_path, text, options):
    with pytest.raises(DataError, match=r"a\.tsv:1: the first row looks like the names"):
        open_file(tmp_path, text, **options)
    assert len(open_file(tmp_path, text, header=True, **options)[0]) == text.count("\n") - 1


@pytest.mark.parametrize(
    ("text", "options"),
    [
        # a number like the others; a sentence; a text too long for a name; a rare label among rare ones
        ("Phrase\t4\n" + NUMBERS, {}),
        ("Not again!\tbad\n" + NUMBERS, {}),
        ("one two three four five six seven eight nine\tbad\n" + NUMBERS, {}),
        ("phrase\tgrade\n" + "a b\tx\nc d\ty\n", {}),
        ("phrase\tz\n" + "a b\tx;y\n", {"label_separator": ";"}),
        ("phrase\tx;z\n" + "a b\tx;y\nc d\ty;x\n" * 3, {"label_separator": ";"}),
    ],
)
def test_a_first_row_of_data_is_no_header(tmp_path, text, options):
    assert len(open_file(tmp_path, text, **options)[0]) == text.count("\n")
