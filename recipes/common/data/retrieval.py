"""Retrieval: queries, documents and which of them are relevant, from files, groups of texts or labelled pairs."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from recipes.common.config import setting
from recipes.common.data.labels import read_name, read_number
from recipes.common.data.text_files import holds_records, read_objects, read_table
from recipes.common.errors import BadLines, ConfigError, DataError, OnError, shown

NO_TEXT = "no text"
NO_ID = "no id"
NO_GRADE = "no relevance"
UNKNOWN = "unknown id"
DUPLICATE = "id given twice"


@dataclasses.dataclass(frozen=True)
class SearchFilesConfig:
    """The files of a search; recipes derive from it."""

    queries: str | None = setting(
        None, "File with the queries of a search: JSON lines with _id and text (BEIR), or TSV.", offers="paths"
    )
    corpus: str | None = setting(
        None, "File with the documents of the search, in the same form. A title is put before the text.", offers="paths"
    )
    relevance: str | None = setting(None, "TSV file of BEIR with query-id, corpus-id and score.", offers="paths")


class Retrieval(NamedTuple):
    """Queries and documents by their ids; by query the documents that are relevant, with a grade above 0."""

    queries: dict[str, str]
    documents: dict[str, str]
    relevant: dict[str, dict[str, float]]

    def columns(self) -> tuple[list[str], list[str]]:
        """Returns the texts of queries and of documents."""
        return list(self.queries.values()), list(self.documents.values())


def open_beir(config: Any, on_error: OnError) -> Retrieval | None:
    """Returns the search that the keys `queries`, `corpus` and `relevance` of a config name; None where they do not.

    Args:
        config: The group `evaluation` of a config.
        on_error: What to do at a bad line.

    Raises:
        ConfigError: If some of them are given and others not.
        DataError: See `read_beir`.
    """
    files = {name: getattr(config, name) for name in ("queries", "corpus", "relevance")}
    missing = [name for name, file in files.items() if file is None]
    if len(missing) == len(files):
        return None
    if missing:
        raise ConfigError(f"evaluation.{missing[0]} must be given with the other files of a search, got null")
    bad = BadLines(on_error)
    retrieval = read_beir(**files, bad=bad)
    if bad.total:
        print(f"retrieval: {bad.report()}")
    return retrieval


def read_beir(queries: str, corpus: str, relevance: str, bad: BadLines) -> Retrieval:
    """Returns what three files in the form of BEIR hold.

    Args:
        queries: JSON lines with the keys `_id` and `text`; or a table without header, id and text.
        corpus: Likewise; where there are titles, key `title`, they stand before the texts.
        relevance: TSV with the header `query-id`, `corpus-id`, `score`. A score of 0 is that of a document that is not
            relevant.
        bad: Where bad rows are noted. Queries without a relevant document are left out, and their number is said.

    Raises:
        DataError: A missing or bad file, a bad row, no query with a relevant document.

    Reference:
        Thakur et al. 2021, "BEIR", appendix A (format).
    """
    texts, documents = (dict(_read_texts(file, bad)) for file in (queries, corpus))
    relevant: dict[str, dict[str, float]] = {}
    graded: set[tuple[str, str]] = set()
    for (query, document, grade), origin in read_table(relevance, ["1", "2", "3"], bad, header=False):
        if origin.endswith(":1") and grade == "score":
            continue
        # as ids are read there
        query, document = query.strip(), document.strip()
        try:
            value = read_number(grade)
        except ValueError:
            value = math.nan
        missing = next((name for name, known in ((query, texts), (document, documents)) if name not in known), None)
        if not 0 <= value < math.inf:
            bad.add(NO_GRADE, origin, f"the field must hold a number of at least 0, got {shown(grade)}")
        elif missing is not None:
            bad.add(UNKNOWN, origin, f"{shown(missing)} is in neither {queries} nor {corpus}")
        elif (query, document) in graded:
            bad.add(DUPLICATE, origin, shown((query, document)))
        elif value:
            relevant.setdefault(query, {})[document] = value
        graded.add((query, document))
    if not relevant:
        raise DataError(f"{relevance} names no relevant document: {bad.report()}")
    if len(relevant) < len(texts):
        print(f"retrieval: {len(texts) - len(relevant)} queries without a relevant document are left out")
    return Retrieval({name: texts[name] for name in relevant}, documents, relevant)


def _read_texts(file: str, bad: BadLines) -> Iterator[tuple[str, str]]:
    columns, seen = ["1", "2"], set()
    is_json = holds_records(file)
    if is_json:
        columns = ["_id", "title", "text"] if _has_titles(file) else ["_id", "text"]
    for (name, *parts), origin in read_table(file, columns, bad, header=False):
        text = " ".join(part.strip() for part in parts if isinstance(part, str) and part.strip())
        try:
            name = read_name(name, is_json=is_json)
        except ValueError as error:
            bad.add(NO_ID, origin, str(error))
            continue
        if not text:
            bad.add(NO_TEXT, origin)
        elif name in seen:
            bad.add(DUPLICATE, origin, shown(name))
        else:
            seen.add(name)
            yield name, text


def _has_titles(file: str) -> bool:
    # what is wrong with it is said with its place when it is read
    with contextlib.suppress(DataError):
        return "title" in next(read_objects(file, BadLines("skip")))[0]
    return False


def retrieval_of_groups(groups: Iterable[Sequence[str]]) -> Retrieval:
    """Returns the search for the positives of anchors among all other texts of their groups.

    Args:
        groups: Anchor, positive and perhaps negatives of each. What several rows have is one query, or one document.

    Raises:
        DataError: If all positives are their anchors.

    Example:

    >>> retrieval_of_groups([("where is rome", "in Italy"), ("where is bern", "in Switzerland")]).relevant
    {'0': {'1': 1.0}, '2': {'3': 1.0}}
    """
    # a text that is a query and a document has one id, so that it does not find itself
    names: dict[str, str] = {}
    retrieval = Retrieval({}, {}, {})
    for anchor, *others in groups:
        query, *found = (names.setdefault(text, str(len(names))) for text in (anchor, *others))
        retrieval.documents.update(zip(found, others, strict=True))
        if found[0] != query:
            retrieval.queries[query] = anchor
            retrieval.relevant.setdefault(query, {})[found[0]] = 1.0
    if not retrieval.queries:
        raise DataError("the test data must have an anchor that differs from its positive, got none")
    return retrieval


def retrieval_of_labels(pairs: Iterable[tuple[str, str, float]]) -> tuple[Retrieval, dict[str, list[str]]]:
    """Returns queries, documents and grades of labelled pairs, and the documents that each query is given with.

    Queries without a relevant document are left out, and their number is said.

    Args:
        pairs: Query, document and grade, 0 for a document that is not relevant.

    Raises:
        DataError: If no document is relevant.
    """
    names: dict[str, str] = {}
    retrieval, candidates = Retrieval({}, {}, {}), {}
    for query, document, grade in pairs:
        query_name, name = (names.setdefault(text, str(len(names))) for text in (query, document))
        retrieval.queries[query_name], retrieval.documents[name] = query, document
        candidates.setdefault(query_name, {})[name] = None
        if grade:
            retrieval.relevant.setdefault(query_name, {})[name] = grade
    if not retrieval.relevant:
        raise DataError("the test data must have a query with a relevant document, got none")
    left_out = set(retrieval.queries) - set(retrieval.relevant)
    if left_out:
        print(f"retrieval: {len(left_out)} queries without a relevant document are left out")
    for name in left_out:
        del retrieval.queries[name]
    return retrieval, {name: list(candidates[name]) for name in retrieval.queries}
