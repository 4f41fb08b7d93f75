"""Running text without labels: files and named data sets."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Sequence
from typing import NamedTuple

from recipes.common import dates
from recipes.common.errors import DataError
from recipes.common.named_data import is_name, load_named
from recipes.common.remote_files import RemoteFile, fetch
from recipes.common.text_lines import UNDECODABLE, BadLines, OnError, read_lines


class PlainTexts(NamedTuple):
    """The parts of a data set, each a list of documents."""

    train: list[str]
    validation: list[str]


TINYSHAKESPEARE = RemoteFile(
    "tinyshakespeare/input.txt",
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    "karpathy/char-rnn",
    "6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e",
    "data/tinyshakespeare/input.txt",
)
GUTENBERG = tuple(
    RemoteFile(f"gutenberg/{number}.txt", sha256, repository, commit, f"{number}.txt")
    for number, sha256, repository, commit in (
        (
            1342,
            "441e778a4297bfc944dc254810e8ded3134cfb0e36d73eef6bb312b4ffd74d6a",
            "GITenberg/Pride-and-Prejudice_1342",
            "81db45c9c48c592f0b77f01fc59e677ad0a5634e",
        ),
        (
            2701,
            "f17ab08e0ad8c6e43d1e85e3cdae4e1b617ae35069cee7db8dcd457c87b1ec76",
            "GITenberg/Moby-Dick--Or-The-Whale_2701",
            "bdf1948e6cd00963730971e5624e764a35f238c3",
        ),
        (
            2600,
            "31b5d23be25fe9ad27eca1e78f9f449ae2e17adf07ce62238a79425c53a96646",
            "GITenberg/War-and-Peace_2600",
            "fa22ab90f00f627e83d14acabe32d91602d2365d",
        ),
    )
)
WIKITEXT2 = RemoteFile(
    "wikitext2/valid.txt",
    "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
    "pytorch/examples",
    "77f55b912142e11fcfdf5b530231fb9c52f181e8",
    "word_language_model/data/wikitext-2/valid.txt",
)
MOVIE_REVIEWS = RemoteFile(
    "movie_reviews/movie_reviews.zip",
    "a41211ae685019137410268134db6a1a14428c89b671eb83056151a878539008",
    "nltk/nltk_data",
    "5db857e6f7df11eabb5e5665836db9ec8df07e28",
    "packages/corpora/movie_reviews.zip",
)


def load(name: str) -> PlainTexts:
    """A named data set.

    * `date_lines`: generated dates (see `recipes.common.dates`), one per line.
    * `tinyshakespeare`: 1,115,394 characters of plays; the last tenth is for validation. Public domain.
    * `gutenberg`: three novels (Pride and Prejudice, Moby Dick, War and Peace), a document per paragraph; every 20th is
      for validation. Public domain in the USA.
    * `wikitext2`: the validation part of WikiText-2, a document per line; every 20th is for validation. CC BY-SA 3.0.
    * `movie_reviews`: 2,000 film reviews in small letters, a document each; every 20th is for validation. CC BY 4.0.
      Source: Pang and Lee 2004, "A Sentimental Education", polarity dataset v2.0.

    Raises:
        DataError: An unknown name, or a file that is neither in the data folder nor can be downloaded.
    """
    return load_named(name, _LOADERS)


def open_plain(files: Sequence[str], split: str, *, unit: str, on_error: OnError) -> tuple[list[str], BadLines]:
    """Returns the documents that a config key such as `data.train` names, and the lines left out.

    Args:
        files: The name of a data set, or paths of text files.
        split: Part of a named data set: "train" or "validation".
        unit: What a document is in files: "file", "paragraph" (between empty lines) or "line".
        on_error: What to do at a line that is not UTF-8: "raise" or "skip".

    Raises:
        DataError: If a file is missing, damaged or holds no text.
    """
    bad = BadLines(on_error)
    if is_name(files):
        return getattr(load(files[0]), split), bad
    documents = []
    for file in files:
        lines = []
        for line in read_lines(file):
            if line.text is None:
                bad.add(UNDECODABLE, line.origin, line.problem)
            else:
                lines.append(line.text)
        found = _documents(lines, unit)
        if not found:
            raise DataError(f"{file} holds no text: {bad.report()}")
        documents += found
    return documents, bad


def _documents(lines: list[str], unit: str) -> list[str]:
    if unit == "file":
        text = "\n".join(lines)
        return [text + "\n"] if text.strip() else []
    if unit == "line":
        return [line.strip() for line in lines if line.strip()]
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines))
    return [" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip()]


def _hold_out(documents: list[str]) -> PlainTexts:
    train = [document for index, document in enumerate(documents) if index % 20]
    return PlainTexts(train, documents[::20])


def _load_tinyshakespeare() -> PlainTexts:
    text = fetch(TINYSHAKESPEARE).read_text(encoding="utf-8")
    cut = int(len(text) * 0.9)
    return PlainTexts([text[:cut]], [text[cut:]])


def _load_gutenberg() -> PlainTexts:
    documents = []
    for file in GUTENBERG:
        lines = [line.text or "" for line in read_lines(fetch(file))]
        starts = [index for index, line in enumerate(lines) if line.startswith("*** START OF")]
        ends = [index for index, line in enumerate(lines) if line.startswith("*** END OF")]
        # the licence around the book is no part of it
        documents += _documents(lines[starts[0] + 1 if starts else 0 : ends[-1] if ends else None], "paragraph")
    return _hold_out(documents)


def _load_wikitext2() -> PlainTexts:
    lines = [line.text or "" for line in read_lines(fetch(WIKITEXT2))]
    return _hold_out([line for line in _documents(lines, "line") if not line.startswith("=")])


def _load_movie_reviews() -> PlainTexts:
    with zipfile.ZipFile(fetch(MOVIE_REVIEWS)) as archive:
        names = sorted(name for name in archive.namelist() if re.search(r"/(neg|pos)/.*\.txt$", name))
        return _hold_out([" ".join(archive.read(name).decode("utf-8").split()) for name in names])


def _load_date_lines() -> PlainTexts:
    splits = dates.generate(train=6000, validation=300, test=0)
    return PlainTexts(*(["".join(f"{pair.source}\n" for pair in pairs)] for pairs in splits[:2]))


_LOADERS: dict[str, Callable[[], PlainTexts]] = {
    "date_lines": _load_date_lines,
    "tinyshakespeare": _load_tinyshakespeare,
    "gutenberg": _load_gutenberg,
    "wikitext2": _load_wikitext2,
    "movie_reviews": _load_movie_reviews,
}
NAMES = tuple(_LOADERS)
