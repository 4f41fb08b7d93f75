import itertools

import pytest

from recipes.common import parallel_datasets
from recipes.common.errors import DataError
from recipes.common.parallel_datasets import load, open_pairs
from recipes.common.parallel_text import ParallelText


def test_public_source_is_pinned():
    for file in (*parallel_datasets.MULTI30K.values(), parallel_datasets.TATOEBA_EN_FR):
        assert file.url.startswith("https://raw.githubusercontent.com/")
        assert len(file.commit) == 40
        assert len(file.sha256) == 64


def test_unknown_name():
    with pytest.raises(DataError, match="'multi30k_en_ed' is neither .* did you mean 'multi30k_en_de'"):
        open_pairs(["multi30k_en_ed"], "train")
    with pytest.raises(DataError, match="known: dates, multi30k_en_de"):
        load("zzz")
    with pytest.raises(ValueError, match="split must be one of train, validation, test; got 'dev'"):
        open_pairs(["dates"], "dev")


def test_open_pairs_takes_names_and_files(tmp_path, monkeypatch):
    assert len(open_pairs(["dates"], "validation")) == 500
    (tmp_path / "a.tsv").write_text("a\tb\tc\n\n")
    pairs = open_pairs([str(tmp_path / "a.tsv")], "train", columns=3, on_error="skip")
    assert isinstance(pairs, ParallelText)
    assert [pair[:2] for pair in pairs] == [("a", "b")]
    with pytest.raises(DataError, match=r"two files"):
        open_pairs([], "train")


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("multi30k_en_de", (29_000, 1_014, 1_000)),
        ("multi30k_de_en", (29_000, 1_014, 1_000)),
        ("multi30k_en_fr", (29_000, 1_014, None)),
        ("multi30k_en_de_fr", (58_000, 1_521, 1_507)),
        ("tatoeba_en_fr", (137_037, 2_866, 2_884)),
    ],
)
def test_real_data(data_folder, name, numbers):
    splits = load(name)
    assert tuple(None if part is None else sum(1 for _ in part) for part in splits) == numbers


def test_real_multi30k_is_aligned(data_folder):
    source, target, origin = next(iter(load("multi30k_de_en").train))
    assert source == "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."
    assert target == "Two young, White males are outside near many bushes."
    assert origin.endswith("train.de.gz:1")


def test_real_multi30k_in_two_languages(data_folder):
    train, validation, test = load("multi30k_en_de_fr")
    german, french = train[:2]
    assert german.source.removeprefix("<2de> ") == french.source.removeprefix("<2fr> ")
    assert (german.target, french.target) == (
        "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
        "Deux jeunes hommes blancs sont dehors près de buissons.",
    )
    counts = [sum(pair.source.startswith("<2fr> ") for pair in part) for part in (train, validation, test)]
    assert counts == [29_000, 507, 507]
    # no line of the French validation part is tested on and validated on
    lines = [{pair.origin for pair in part if pair.source.startswith("<2fr>")} for part in (validation, test)]
    assert not lines[0] & lines[1] and len(lines[0] | lines[1]) == 1_014


def test_real_tatoeba_is_split_by_english_sentence(data_folder):
    parts = [{pair.source for pair in part} for part in load("tatoeba_en_fr")]
    for first, second in itertools.combinations(parts, 2):
        assert not first & second
    assert parallel_datasets._part_of("Go on in!") == parallel_datasets._part_of("go on in.")
