"""Running text without labels: files and named data sets."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterable, Sequence

from recipes.common.data import dates
from recipes.common.data.data_sets import Loaders, RemoteFile, Splits, fetch
from recipes.common.data.labelled_text import LABELLED
from recipes.common.data.lines import UNDECODABLE, read_lines
from recipes.common.data.parallel_text import PARALLEL
from recipes.common.data.summaries import SUMMARIES
from recipes.common.data.tagged_words import TAGGED
from recipes.common.data.text_files import holds_records, read_table
from recipes.common.errors import BadLines, DataError, shown
from recipes.common.words import cut_into

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


NO_TEXT = "no text"


def read_plain(files: Sequence[str], bad: BadLines, *, unit: str, key: str = "text") -> list[str]:
    """Returns the documents of text files, plain or gzip-compressed, or of files of records.

    Args:
        files: Paths, or names of data sets (`recipes.common.data.text_files.holds_records`).
        bad: Where lines that are not UTF-8, and records without a text, are noted.
        unit: What a document is: "file", "paragraph" (between empty lines) or "line". Each text of a record is what
            a file is.
        key: Key of the text of a record.

    Raises:
        DataError: If a file is missing, damaged or holds no text.
    """
    documents = []
    for file in files:
        if holds_records(file):
            for (text,), origin in read_table(file, [key], bad):
                found = _documents(text.splitlines(), unit) if isinstance(text, str) else []
                if not found:
                    bad.add(NO_TEXT, origin, f"{key!r} holds {shown(text)}")
                documents += found
            continue
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
    return documents


def cut_texts(documents: Iterable[str], words_per_text: int) -> list[str]:
    """Returns the lines of documents, cut into texts of a few words each.

    Args:
        documents: Texts.
        words_per_text: Most words of a text; in scripts without spaces, each character is a word.
    """
    return [text for line in "\n".join(documents).splitlines() for text in cut_into(line, words_per_text)]


def _documents(lines: list[str], unit: str) -> list[str]:
    if unit == "file":
        text = "\n".join(lines)
        return [text + "\n"] if text.strip() else []
    if unit == "line":
        return [line.strip() for line in lines if line.strip()]
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines))
    return [" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip()]


def _hold_out(documents: list[str]) -> Splits:
    train = [document for index, document in enumerate(documents) if index % 20]
    # without what is learned, too, as headings are
    known = set(train)
    return Splits(train, [document for document in documents[::20] if document not in known])


def _load_tinyshakespeare() -> Splits:
    text = fetch(TINYSHAKESPEARE).read_text(encoding="utf-8")
    cut = int(len(text) * 0.9)
    return Splits([text[:cut]], [text[cut:]])


def _load_gutenberg() -> Splits:
    documents = []
    for file in GUTENBERG:
        lines = [line.text or "" for line in read_lines(fetch(file))]
        starts = [index for index, line in enumerate(lines) if line.startswith("*** START OF")]
        ends = [index for index, line in enumerate(lines) if line.startswith("*** END OF")]
        # the licence around the book is no part of it
        documents += _documents(lines[starts[0] + 1 if starts else 0 : ends[-1] if ends else None], "paragraph")
    return _hold_out(documents)


def _load_wikitext2() -> Splits:
    lines = [line.text or "" for line in read_lines(fetch(WIKITEXT2))]
    return _hold_out([line for line in _documents(lines, "line") if not line.startswith("=")])


def _load_movie_reviews() -> Splits:
    with zipfile.ZipFile(fetch(MOVIE_REVIEWS)) as archive:
        names = sorted(name for name in archive.namelist() if re.search(r"/(neg|pos)/.*\.txt$", name))
        return _hold_out([" ".join(archive.read(name).decode("utf-8").split()) for name in names])


def _load_date_lines() -> Splits:
    splits = dates.generate(train=6000, validation=300, test=0)
    return Splits(*(["".join(f"{pair.source}\n" for pair in pairs)] for pairs in splits[:2]))


def english_texts(loaders: Iterable[Callable[[], Splits]]) -> Splits:
    """Returns the texts of training sets, each once; those of validation and test sets are left out.

    Args:
        loaders: Of data sets of running text, whose documents are taken beside the rows of the others: topics (AG
            News), film reviews (SST-2), similarities (STS Benchmark), captions (Multi30k), sentences (Tatoeba), words
            (the English Web Treebank, WNUT-17), abstracts with their summaries (SciTLDR).

    Returns:
        Documents; every 20th is for validation. A text of another part of these data sets is in neither.
    """
    documents: list[str] = []
    held_out: set[str] = set()
    for load, texts_of in (*((load, lambda text: (text,)) for load in loaders), *_ROWS):
        splits = load()
        documents += [text for row in splits.train for text in texts_of(row)]
        for part in splits[1:]:
            held_out.update(text for row in part or () for text in texts_of(row))
    kept = [text for text in dict.fromkeys(documents) if text not in held_out]
    return Splits([text for index, text in enumerate(kept) if index % 20], kept[::20])


_ROWS: tuple[tuple[Callable[[], Splits], Callable[..., Iterable[str]]], ...] = (
    *((LABELLED[name], lambda row: row.texts) for name in ("ag_news", "sst2", "stsb")),
    *((PARALLEL[name], lambda row: (row.source,)) for name in ("multi30k_en_de", "tatoeba_en_fr")),
    *((TAGGED[name], lambda row: (" ".join(row.words),)) for name in ("ud_english_ewt", "wnut17")),
    (SUMMARIES["scitldr"], lambda row: (row.text, *row.summaries)),
)


# * `date_lines`: generated dates (see `recipes.common.data.dates`), one per line.
# * `tinyshakespeare`: 1,115,394 characters of plays; the last tenth is for validation. Public domain.
# * `gutenberg`: three novels (Pride and Prejudice, Moby Dick, War and Peace), a document per paragraph; every 20th is
#   for validation. Public domain in the USA.
# * `wikitext2`: the validation set of WikiText-2, a document per line; every 20th is for validation. CC BY-SA 3.0.
# * `movie_reviews`: 2,000 film reviews in small letters, a document each; every 20th is for validation. CC BY 4.0.
#   Source: Pang and Lee 2004, "A Sentimental Education", polarity dataset v2.0.
# * `english_texts`: the last three, and the English texts of the training parts of all other named data sets.
PLAIN: Loaders = {
    "date_lines": _load_date_lines,
    "tinyshakespeare": _load_tinyshakespeare,
    "gutenberg": _load_gutenberg,
    "wikitext2": _load_wikitext2,
    "movie_reviews": _load_movie_reviews,
    "english_texts": lambda: english_texts((_load_gutenberg, _load_wikitext2, _load_movie_reviews)),
}
