"""Shards: token rows of one length in ArrayRecord files, and the folder of a corpus that they make up.

A row has `length + 1` tokens: those that are fed and the one behind the last, which is the first of the next row. So
each token of a shard but the first is predicted exactly once. The last row of a shard may be shorter. Documents stand
end to end, each with the end token behind it, and with the start token before it where the corpus has it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import zoo
from recipes.common.data.text_files import read_objects
from recipes.common.errors import BadLines, ConfigError, DataError
from zoo.extras import import_extra

INDEX_FILE, TOKENIZER_FOLDER, HELD_OUT_FILE = "corpus.json", "tokenizer", "validation.jsonl"
FORMAT = 1
# a record can be read alone; one thread, as the processes have the cores
_WRITER_OPTIONS = "group_size:1,max_parallelism:1"
_READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
_OPEN_SHARDS = 256


def fingerprint(tokenizer: Any) -> str:
    """Returns a checksum of a tokenizer, without its chat format.

    Args:
        tokenizer: A tokenizer of zoo.
    """
    config = {name: value for name, value in tokenizer.get_config().items() if name != "chat_format"}
    return hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode("utf-8")).hexdigest()


def dtype_for(vocabulary_size: int) -> str:
    """Returns the smallest type of number that holds all ids.

    Args:
        vocabulary_size: Number of tokens.
    """
    return "uint16" if vocabulary_size <= 1 << 16 else "uint32"


def join_documents(ids: np.ndarray, lengths: np.ndarray, start_id: int | None, end_id: int) -> np.ndarray:
    """Returns the tokens of documents end to end, with start and end tokens; of a document without tokens nothing.

    Args:
        ids: The tokens of all documents, `(tokens,)`.
        lengths: How many each has, `(documents,)`.
        start_id, end_id: Ids of the tokens before and behind each; None for none before.
    """
    lengths = lengths[lengths > 0]
    before = int(start_id is not None)
    ends = np.cumsum(lengths + before + 1) - 1
    joined = np.full(len(ids) + len(lengths) * (before + 1), end_id, np.int64)
    is_text = np.ones(len(joined), bool)
    is_text[ends] = False
    if before:
        starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64)[: len(lengths)]
        joined[starts], is_text[starts] = start_id, False
    joined[is_text] = ids
    return joined


def packed_rows(documents: Iterable[np.ndarray], length: int) -> Iterator[np.ndarray]:
    """Cuts a stream of tokens into rows that overlap by one token.

    Args:
        documents: Arrays of tokens.
        length: Tokens of a row that are fed.

    Yields:
        Rows of `length + 1` tokens; the last one may have fewer, but two at least.
    """
    rest = np.zeros(0, np.int64)
    for tokens in documents:
        rest = np.concatenate([rest, tokens])
        count = max(0, (len(rest) - 1) // length)
        for start in range(0, count * length, length):
            yield rest[start : start + length + 1]
        rest = rest[count * length :]
    if len(rest) > 1:
        yield rest


def write_shard(path: Path, rows: Iterable[np.ndarray], dtype: str) -> int:
    """Writes a shard; returns the number of its rows.

    Args:
        path: The file.
        rows: The rows.
        dtype: Type of the numbers.

    Raises:
        OSError: If the disk is full, say.
    """
    module = import_extra("array_record.python.array_record_module", "corpus")
    writer, count = module.ArrayRecordWriter(str(path), _WRITER_OPTIONS), 0
    try:
        for row in rows:
            record = row.astype(np.dtype(dtype).newbyteorder("<")).tobytes()
            with _disk_errors(path):
                writer.write(record)
            count += 1
    except BaseException:
        with contextlib.suppress(RuntimeError):  # of the same disk
            writer.close()
        raise
    with _disk_errors(path):
        writer.close()
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())
    return count


@contextlib.contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    """Turns what ArrayRecord says of a disk into an `OSError`."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(errno.EIO, str(error), str(path)) from error


def is_corpus(folder: str | os.PathLike) -> bool:
    """Returns whether a path is the folder of a complete corpus.

    Args:
        folder: The path.
    """
    return Path(folder, INDEX_FILE).is_file()


def held_out_texts(folders: Iterable[str | os.PathLike]) -> list[str]:
    """Returns the documents that were held out of corpora.

    Args:
        folders: The folders.

    Raises:
        ConfigError: If there are none.
    """
    texts = []
    for folder in folders:
        path = Path(folder, HELD_OUT_FILE)
        if path.is_file() and path.stat().st_size:
            texts += [record["text"] for record, _ in read_objects(path, BadLines("raise"))]
    if not texts:
        raise ConfigError(
            "data.validation must be given, as no documents were held out of the corpora (prepare_text --validation)"
        )
    return texts


class Corpus:
    """A prepared corpus, whose rows are read one by one from the disk.

    Args:
        folder: What `recipes.prepare_text` wrote.

    Attributes:
        path: The folder.
        index: What its `corpus.json` says.
        length: Tokens of a row that are fed.
        rows: Number of rows.
        tokens: Number of tokens, start and end tokens included.
        start_id, end_id: The tokens before (or None) and behind each document.

    Raises:
        DataError: If the folder is no corpus, or a shard is missing or has another size.

    Example:

    >>> tokens, lengths = Corpus("corpus").read([0, 17])
    """

    def __init__(self, folder: str | os.PathLike) -> None:
        self.path = Path(folder)
        try:
            self.index: dict[str, Any] = json.loads((self.path / INDEX_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{folder} is no corpus that recipes.prepare_text has completed: {error}") from error
        if self.index.get("format") != FORMAT:
            raise DataError(
                f"{folder} is a corpus of format {self.index.get('format')}, not {FORMAT}: prepare it again"
            )
        self.length, self.rows, self.tokens = (self.index[name] for name in ("length", "rows", "tokens"))
        self.start_id, self.end_id = self.index["start_id"], self.index["end_id"]
        self._dtype = np.dtype(self.index["dtype"]).newbyteorder("<")
        self._files = [self.path / shard["file"] for shard in self.index["shards"]]
        for file, shard in zip(self._files, self.index["shards"], strict=True):
            size = file.stat().st_size if file.is_file() else "none"
            if size != shard["bytes"]:
                raise DataError(f"{file} must have {shard['bytes']} bytes, got {size}: the corpus is damaged")
        self._ends = np.cumsum([shard["rows"] for shard in self.index["shards"]])
        self._module = import_extra("array_record.python.array_record_module", "corpus")
        self._reader = functools.lru_cache(_OPEN_SHARDS)(self._open)

    def load_tokenizer(self) -> zoo.tokenizers.Tokenizer:
        """Returns its tokenizer."""
        return zoo.tokenizers.Tokenizer.load(self.path / TOKENIZER_FOLDER)

    def read(self, numbers: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Reads rows.

        Args:
            numbers: Numbers of the rows, from 0.

        Returns:
            Their tokens, int32 `(rows, length + 1)`, filled up with the end token, and how many each has, `(rows,)`.
        """
        numbers = np.asarray(numbers, np.int64)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < self.rows:
            raise ValueError(f"numbers must be from 0 to {self.rows - 1}, got {numbers.min()} to {numbers.max()}")
        tokens = np.full((len(numbers), self.length + 1), self.end_id, np.int32)
        lengths = np.zeros(len(numbers), np.int32)
        shards = np.searchsorted(self._ends, numbers, side="right")
        for shard in np.unique(shards):
            places = np.flatnonzero(shards == shard)
            first = self._ends[shard] - self.index["shards"][shard]["rows"]
            records = self._reader(int(shard)).read((numbers[places] - first).tolist())
            for place, record in zip(places, records, strict=True):
                row = np.frombuffer(record, self._dtype)
                tokens[place, : len(row)], lengths[place] = row, len(row)
        return tokens, lengths

    def _open(self, shard: int) -> Any:
        return self._module.ArrayRecordReader(str(self._files[shard]), _READER_OPTIONS)
