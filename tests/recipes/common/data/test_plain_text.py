import pytest

from recipes.common.data.data_sets import Source, open_part
from recipes.common.data.plain_text import PLAIN, read_plain
from recipes.common.errors import BadLines, DataError


def open_file(tmp_path, text, unit, on_error="raise"):
    (tmp_path / "a.txt").write_bytes(text)
    file = str(tmp_path / "a.txt")
    return open_part([file], "train", Source(PLAIN, lambda files, bad: read_plain(files, bad, unit=unit)), on_error)[0]


def test_documents_are_files_paragraphs_or_lines(tmp_path):
    text = b"One\ntwo.\n\n \nThree.\n"
    assert open_file(tmp_path, text, "file") == ["One\ntwo.\n\n \nThree.\n"]
    assert open_file(tmp_path, text, "paragraph") == ["One two.", "Three."]
    assert open_file(tmp_path, text, "line") == ["One", "two.", "Three."]


def test_bad_bytes_and_empty_files(tmp_path):
    with pytest.raises(DataError, match=r"a\.txt:2:1: undecodable byte"):
        open_file(tmp_path, b"one\n\xff\n", "line")
    assert open_file(tmp_path, b"one\n\xff\n", "line", on_error="skip") == ["one"]
    with pytest.raises(DataError, match="holds no text"):
        open_file(tmp_path, b" \n\n", "paragraph")
    with pytest.raises(DataError, match="did you mean 'gutenberg'"):
        open_part(["gutenburg"], "train", Source(PLAIN, read_plain), "raise")


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_texts_of_records(tmp_path, name):
    """Braces and keys are no running text."""
    file = str(tmp_path / name)
    (tmp_path / name).write_text(
        '{"text": "one\\ntwo\\n\\nthree", "output": "four"}\n{"text": "five", "output": " "}\n'
    )
    assert read_plain([file], BadLines("raise"), unit="file") == ["one\ntwo\n\nthree\n", "five\n"]
    assert read_plain([file], BadLines("raise"), unit="paragraph") == ["one two", "three", "five"]
    assert read_plain([file], BadLines("raise"), unit="line") == ["one", "two", "three", "five"]
    assert read_plain([file], bad := BadLines("skip"), unit="file", key="output") == ["four\n"] and bad.total == 1
    with pytest.raises(DataError, match=r"a\.json.*:2: no text: 'output' holds ' '"):
        read_plain([file], BadLines("raise"), unit="file", key="output")
    with pytest.raises(DataError, match=r"a\.json.*:1: key missing: 'body'; the line has the keys"):
        read_plain([file], BadLines("raise"), unit="file", key="body")


def test_dates_come_one_per_line():
    train, validation, _ = PLAIN["date_lines"]()
    assert train[0].count("\n") == 6000 and validation[0].count("\n") == 300


def test_real_data(data_folder):
    train, validation, _ = PLAIN["tinyshakespeare"]()
    assert (len(train[0]), len(validation[0])) == (1_003_854, 111_540)
    train, validation, _ = PLAIN["gutenberg"]()
    assert not any("Project Gutenberg License" in paragraph for paragraph in train)
    assert 15_000 < len(train) < 17_000 and 0.047 < len(validation) / len(train) < 1 / 19
    assert len(PLAIN["wikitext2"]().train) > 1500
    reviews = PLAIN["movie_reviews"]()
    assert (len(reviews.train), len(reviews.validation)) == (1900, 100)
    assert reviews.validation[0].startswith("plot : two teen couples go to a church party")
