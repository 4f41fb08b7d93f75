"""Named data sets of parallel text."""

from __future__ import annotations

import functools
import hashlib
import itertools
import random
import string
import zipfile
from collections.abc import Callable, Iterable, Sequence

from recipes.common import dates
from recipes.common.named_data import is_name, load_named
from recipes.common.parallel_text import ParallelText, Splits, TextPair
from recipes.common.remote_files import RemoteFile, fetch
from recipes.common.text_lines import OnError


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


# The parts of a data set are mostly asked for one after the other.
@functools.lru_cache(maxsize=1)
def load(name: str) -> Splits:
    """A named data set of parallel text.

    * `dates`: see `recipes.common.dates`; generated, nothing is read.
    * `multi30k_en_de`, `multi30k_de_en`, `multi30k_en_fr`: image captions; 29,000 / 1,014 / 1,000 pairs, the test part
      being test_2016_flickr (English-German only). The text is for non-commercial research.
      Source: Elliott et al. 2016, "Multi30K: Multilingual English-German Image Descriptions".
    * `multi30k_en_de_fr`: each English caption twice, as `<2de> ...` with its German and `<2fr> ...` with its French
      translation, for `data.language_tokens`; 58,000 / 1,521 / 1,507 pairs. There is no French test part, so the second
      half of the French validation part is tested on, and not validated on.
    * `tatoeba_en_fr`: 142,787 short sentence pairs (tatoeba.org and www.manythings.org/anki, CC BY 2.0), of which about
      2 % are for validation and 2 % for testing. English sentences that differ in case and punctuation only are in the
      same part.

    Args:
        name: One of the names above.

    Returns:
        The training, validation and test pairs. The same object is returned for the same name, so leave it as it is.

    Raises:
        DataError: An unknown name, or a file that is neither in the data folder nor can be downloaded, or that has
            another checksum than it should (see `fetch`).

    Example:

    >>> next(iter(load("multi30k_en_de").train)).target
    'Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.'
    """
    return load_named(name, _LOADERS)


def open_pairs(
    files: Sequence[str],
    split: str,
    *,
    columns: int = 2,
    keys: Sequence[str] = ("source", "target"),
    on_error: OnError = "raise",
) -> Iterable[TextPair] | None:
    """The pairs that a config key such as `data.train` names: a part of a named data set, or files.

    Args:
        files: One name of a data set, or paths as `ParallelText` takes them.
        split: The part of a named data set: "train", "validation" or "test". The arguments below are for files: a named
            data set has one format and, since its checksum is checked, no bad lines.
        columns: See `ParallelText`.
        keys: See `ParallelText`.
        on_error: See `ParallelText`.

    Returns:
        An iterable of `TextPair`s that can be iterated over many times; None if the named data set lacks that part.

    Raises:
        DataError: See `load` and `ParallelText`.
        ValueError: `split` is another word.

    Example:

    >>> train = open_pairs(["multi30k_en_de"], "train")
    >>> test = open_pairs(["test.en", "test.de"], "test")
    """
    if split not in Splits._fields:
        raise ValueError(f"split must be one of {', '.join(Splits._fields)}; got {split!r}")
    if is_name(files):
        return getattr(load(str(files[0])), split)
    return ParallelText(files, columns=columns, keys=keys, on_error=on_error)


def _load_multi30k(source: str, target: str) -> Splits:
    def pairs(part: str) -> ParallelText:
        return ParallelText([fetch(MULTI30K[f"{part}.{language}"]) for language in (source, target)])

    has_test = all(f"test_2016_flickr.{language}" in MULTI30K for language in (source, target))
    return Splits(pairs("train"), pairs("val"), pairs("test_2016_flickr") if has_test else None)


def _load_multi30k_en_de_fr() -> Splits:
    german, french = (
        [[TextPair(f"{token} {pair.source}", pair.target, pair.origin) for pair in part or ()] for part in splits]
        for token, splits in (("<2de>", _load_multi30k("en", "de")), ("<2fr>", _load_multi30k("en", "fr")))
    )
    half = len(french[1]) // 2
    french[1:] = french[1][:half], french[1][half:]
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


_LOADERS: dict[str, Callable[[], Splits]] = {
    "dates": dates.generate,
    "multi30k_en_de": lambda: _load_multi30k("en", "de"),
    "multi30k_de_en": lambda: _load_multi30k("de", "en"),
    "multi30k_en_fr": lambda: _load_multi30k("en", "fr"),
    "multi30k_en_de_fr": _load_multi30k_en_de_fr,
    "tatoeba_en_fr": _load_tatoeba_en_fr,
}

NAMES = tuple(_LOADERS)
