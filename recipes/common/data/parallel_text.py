"""Parallel text: pairs of a source and a target, from files and from named data sets."""

from __future__ import annotations

import hashlib
import itertools
import random
import string
import zipfile
from collections.abc import Sequence

from recipes.common.data import dates
from recipes.common.data.data_sets import Loaders, RemoteFile, Splits, TextPair, fetch
from recipes.common.data.lines import EMPTY_LINE, UNDECODABLE, read_lines
from recipes.common.data.text_files import holds_records, read_table
from recipes.common.errors import BadLines, ConfigError, DataError, shown

NOT_A_TEXT = "not a text"
NO_LANGUAGE_TOKEN = "no language token"

_KEYS, _PLACES = ("source", "target"), ("1", "2")


def read_pairs(
    files: Sequence[str],
    bad: BadLines,
    *,
    columns: int = 2,
    keys: Sequence[str] = _KEYS,
    header: bool | None = None,
) -> list[TextPair]:
    """The pairs of texts of two files that are aligned line by line, or of one TSV, CSV or JSON-lines file.

    Each may be gzip-compressed. White space around a text is not part of it.

    Args:
        files: Two paths (source, target) or one.
        bad: Where bad lines are noted, see `BadLines`. An empty file, a damaged file and two files of unequal length
            are errors in any case.
        columns: Number of columns of every row of a TSV or CSV file; without a header the source is the first, the
            target the second.
        keys: Keys of the source and the target in JSON lines, or names in the header. Where the header of two columns
            names neither "source" nor "target", these are the first and the second.
        header: See `recipes.common.data.text_files.read_table`.

    Raises:
        DataError: Wrong number of files, unknown suffix, or anything wrong with the files, with the position
            `FILE:line` (and the byte, where it is not UTF-8).
        ConfigError: `columns` or `keys` is out of range.

    Example:

    >>> read_pairs(["train.en.gz", "train.de.gz"], BadLines("skip"))[0].origin
    'train.en.gz:1'
    """
    if columns < 2:
        raise ConfigError(f"data.columns must be at least 2, got {columns}")
    if len(keys) != 2:
        raise ConfigError(f"data.keys must be two, of the source and of the target, got {list(keys)}")
    if len(files) == 2:
        return _read_two_files(*files, bad)
    if len(files) != 1:
        raise DataError(
            "parallel text is two files (source, target), or one TSV, CSV, JSON-lines or Parquet file or data set, got "
            f"{list(files)}"
        )
    named = header or holds_records(files[0]) or (header is None and tuple(keys) != _KEYS)
    pairs: list[TextPair] = []
    chosen = keys if named else _PLACES
    # keys that somebody chose must be found
    unnamed = _PLACES if columns == 2 and tuple(keys) == _KEYS else None
    for texts, origin in read_table(files[0], chosen, bad, header=header, width=columns, unnamed=unnamed):
        wrong = [text for text in texts if not isinstance(text, str)]
        if wrong:
            bad.add(NOT_A_TEXT, origin, shown(wrong[0]))
        else:
            _add(pairs, bad, *texts, origin, origin)
    return pairs


def _read_two_files(source_file: str, target_file: str, bad: BadLines) -> list[TextPair]:
    pairs: list[TextPair] = []
    numbers = [0, 0]
    for lines in itertools.zip_longest(read_lines(source_file), read_lines(target_file)):
        numbers = [number + (line is not None) for number, line in zip(numbers, lines, strict=True)]
        source, target = lines
        if source is None or target is None:
            # the files no longer belong together line by line: only count on, for the error
            continue
        undecodable = next((line for line in lines if line.text is None), None)
        if undecodable is not None:
            bad.add(UNDECODABLE, undecodable.origin, undecodable.problem)
        else:
            _add(pairs, bad, source.text, target.text, source.origin, target.origin)
    for file, number in zip((source_file, target_file), numbers, strict=True):
        if not number:
            raise DataError(f"{file} is empty")
    if numbers[0] != numbers[1]:
        raise DataError(
            f"the files are of unequal length: {source_file} has {numbers[0]} lines, {target_file} has {numbers[1]}"
        )
    return pairs


def _add(
    pairs: list[TextPair], bad: BadLines, source: str, target: str, source_origin: str, target_origin: str
) -> None:
    source, target = source.strip(), target.strip()
    if source and target:
        pairs.append(TextPair(source, target, source_origin))
    else:
        bad.add(EMPTY_LINE, target_origin if source else source_origin)


def language_token(source: str) -> str:
    """Returns what a source begins with, up to the first white space: `<2de>` of `<2de> A small dog.`

    Args:
        source: A source text.

    Reference:
        Johnson et al. 2017, "Google's Multilingual Neural Machine Translation System", section 3.

    Example:

    >>> language_token("<2de> A small dog.")
    '<2de>'
    """
    return source.split(maxsplit=1)[0] if source.strip() else ""


def has_language_token(pair: TextPair, bad: BadLines, tokens: Sequence[str]) -> bool:
    """Returns whether the source of a pair begins with a language token, where there are some; notes it if not.

    Args:
        pair: The pair.
        bad: Where it is noted.
        tokens: The tokens.

    Example:

    >>> has_language_token(TextPair("<2de> one", "eins", "a.tsv:1"), BadLines("raise"), ["<2de>", "<2fr>"])
    True
    """
    if not tokens or language_token(pair.source) in tokens:
        return True
    bad.add(NO_LANGUAGE_TOKEN, pair.origin, f"{shown(pair.source)} begins with none of {', '.join(tokens)}")
    return False


def check_language_tokens(tokens: Sequence[str], key: str = "data.language_tokens") -> None:
    """Checks language tokens.

    Args:
        tokens: The tokens; one stands before each source, with white space behind it.
        key: The key that names them.

    Raises:
        ConfigError: A token is empty, holds white space or is given twice.
    """
    if any(token.split() != [token] for token in tokens) or len(set(tokens)) != len(tokens):
        raise ConfigError(f"{key} must be different ones without white space, got {list(tokens)}")


def _multi30k(name: str, sha256: str) -> RemoteFile:
    commit = "a3d2e0d26b56f3846f66a952536ffed4e401d05a"
    return RemoteFile(f"multi30k/{name}", sha256, "multi30k/dataset", commit, f"data/task1/raw/{name}")


MULTI30K = {
    file.name.removeprefix("multi30k/").removesuffix(".gz"): file
    for file in (
        _multi30k("train.en.gz", "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
        _multi30k("train.de.gz", "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
        _multi30k("train.fr.gz", "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c"),
        _multi30k("val.en.gz", "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
        _multi30k("val.de.gz", "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
        _multi30k("val.fr.gz", "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9"),
        _multi30k("test_2016_flickr.en.gz", "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
        _multi30k("test_2016_flickr.de.gz", "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"),
    )
}

TATOEBA_EN_FR = RemoteFile(
    "tatoeba_en_fr/fra-eng.zip",
    "16c4f7d0df9e7c5e6c54cdb0447f3f4a18a55052ff5e2e0b27dd4a06c0e49d04",
    "genimind/seq2seq",
    "4f3f8eb0adde54fcc8b89394336b002e7961244c",
    "fra-eng.zip",
)


def _load_multi30k(source: str, target: str) -> Splits:
    def pairs(part: str) -> list[TextPair]:
        return read_pairs([fetch(MULTI30K[f"{part}.{language}"]) for language in (source, target)], BadLines("raise"))

    has_test = all(f"test_2016_flickr.{language}" in MULTI30K for language in (source, target))
    return Splits(pairs("train"), pairs("val"), pairs("test_2016_flickr") if has_test else None)


def _load_multi30k_en_de_fr() -> Splits:
    german, french = (
        [[TextPair(f"{token} {pair.source}", pair.target, pair.origin) for pair in part or ()] for part in splits]
        for token, splits in (("<2de>", _load_multi30k("en", "de")), ("<2fr>", _load_multi30k("en", "fr")))
    )
    # both have the same English captions in the same order, one of which is learned, too
    half, known = len(french[1]) // 2, {pair.source for pair in french[0]}
    french[1:] = french[1][:half], [pair for pair in french[1][half:] if pair.source not in known]
    german[1] = german[1][:half]
    # in turn, so that the first few pairs of a part show both
    parts = (itertools.chain(*itertools.zip_longest(*pairs)) for pairs in zip(german, french, strict=True))
    return Splits(*([pair for pair in part if pair is not None] for part in parts))


def _load_tatoeba_en_fr() -> Splits:
    parts: dict[str, list[TextPair]] = {part: [] for part in Splits._fields}
    path = fetch(TATOEBA_EN_FR)
    with zipfile.ZipFile(path) as archive:
        lines = archive.read("fra.txt").decode("utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        english, french = line.split("\t")
        parts[_part_of(english)].append(TextPair(english, french, f"{path}/fra.txt:{number}"))
    for pairs in parts.values():
        # The file is sorted by length; the first pairs of a part are to be a sample of it.
        random.Random(0).shuffle(pairs)
    return Splits(**parts)


def _part_of(sentence: str) -> str:
    """The part of a data set without parts of its own that a sentence belongs to: a function of its words only."""
    words = "".join(letter for letter in sentence.lower() if letter not in string.punctuation).split()
    percent = int.from_bytes(hashlib.sha256(" ".join(words).encode()).digest()[:8], "big") % 100
    return "test" if percent < 2 else "validation" if percent < 4 else "train"


# * `dates`: see `recipes.common.data.dates`; generated, nothing is read.
# * `multi30k_en_de`, `multi30k_de_en`, `multi30k_en_fr`: image captions; 29,000 / 1,014 / 1,000 pairs, the test set
#   being test_2016_flickr (English-German only). The text is for non-commercial research.
#   Source: Elliott et al. 2016, "Multi30K: Multilingual English-German Image Descriptions".
# * `multi30k_en_de_fr`: each English caption twice, as `<2de> ...` with its German and `<2fr> ...` with its French
#   translation, for `data.language_tokens`; 58,000 / 1,014 / 1,506 pairs. There is no French test set, so the second
#   half of the French validation set is tested on, and its English captions are not validated on.
# * `tatoeba_en_fr`: 142,787 short sentence pairs (tatoeba.org and www.manythings.org/anki, CC BY 2.0), of which about
#   2 % are for validation and 2 % for testing. English sentences that differ in case and punctuation only are in the
#   same part.
PARALLEL: Loaders = {
    "dates": dates.generate,
    "multi30k_en_de": lambda: _load_multi30k("en", "de"),
    "multi30k_de_en": lambda: _load_multi30k("de", "en"),
    "multi30k_en_fr": lambda: _load_multi30k("en", "fr"),
    "multi30k_en_de_fr": _load_multi30k_en_de_fr,
    "tatoeba_en_fr": _load_tatoeba_en_fr,
}
