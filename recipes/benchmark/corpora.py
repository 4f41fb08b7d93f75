"""Prepared corpora: formats of shards, batches against Grain's, preparing against other tools, memory of large texts.

The parts `formats` and `batches` read rows of random tokens in random order. `preparing` compares the recipe on real
text with the tools of other libraries, each in one process: `datasets.map` with the library `tokenizers`, and the
command `spm_encode` of SentencePiece. `memory` prepares generated text of several sizes.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import zoo
from recipes import prepare_text
from recipes.benchmark.peak_memory import peak_memory
from recipes.benchmark.step_data import write_results
from recipes.common import batching
from recipes.common.config import setting
from recipes.common.corpus.shards import Corpus, write_shard
from recipes.common.errors import DataError
from recipes.common.output_file import check_output_file
from zoo.extras import import_extra

PARTS = ("formats", "batches", "preparing", "memory")
_READ_AT_ONCE, _STEP_SECONDS = 32, 0.005
_COPIED_AT_ONCE = 1 << 20
_END = "<|endoftext|>"


@dataclasses.dataclass(frozen=True)
class Config:
    """Times the formats of shards, the batches of a corpus and its preparation, and measures the memory of that."""

    parts: list[str] = setting(list(PARTS), f"Some of {', '.join(PARTS)}.")
    data: str = setting("", "Folder with tokenizers/ and gutenberg/; empty: that of ZOO_DATA.", offers="paths")
    rows: int = setting(20_000, "Number of rows of the parts formats and batches.", least=64)
    length: int = setting(1024, "Number of tokens of a row.", least=1)
    batches: int = setting(300, "Number of batches that are timed.", least=1)
    megabytes: int = setting(32, "Real text that is prepared.", least=1)
    sizes: list[int] = setting([125, 250, 500, 1000], "Generated text whose preparation needs memory, in megabytes.")
    copies: int = setting(1, "How often each generated document occurs. Copies are compared, not tokenized.", least=1)
    folder: str | None = setting(
        None, "Folder for the files. null: the usual folder of temporary files.", offers="paths"
    )
    output: str = setting("runs/benchmark/corpora.json", "File for the figures.", offers="paths")


def main(config: Config) -> dict[str, Any]:
    """Runs the parts and prints a table of each.

    Args:
        config: The configuration.

    Returns:
        The figures of each part, by name.
    """
    check_output_file(config.output)
    data = Path(config.data or os.environ.get("ZOO_DATA", ""))
    if not (data / "tokenizers").is_dir():
        given = f"; {data} does not" if data.name else ""
        raise DataError(f"Set ZOO_DATA or --data to the folder that holds tokenizers/ and gutenberg/{given}.")
    functions = {"formats": formats, "batches": batches, "preparing": preparing, "memory": memory}
    unknown = [part for part in config.parts if part not in functions]
    if unknown:
        raise DataError(f"There is no part {unknown[0]!r}; there are {list(functions)}.")
    results: dict[str, Any] = {"config": dataclasses.asdict(config)}
    for part in config.parts:
        with tempfile.TemporaryDirectory(dir=config.folder) as folder:
            results[part] = functions[part](config, Path(folder), data)
        print(f"\n{part}")
        for name, figures in results[part].items():
            print(f"  {name:44s} " + ", ".join(f"{key} {value:,.4g}" for key, value in figures.items()), flush=True)
        write_results(config.output, results)
    return results


def timed(work: Callable[[], Any], count: int) -> dict[str, float]:
    """Returns the microseconds of one of so many things that a call does, by the clock and of the processor."""
    started, before = time.perf_counter(), time.process_time()
    work()
    wall, processor = time.perf_counter() - started, time.process_time() - before
    return {"microseconds": wall / count * 1e6, "of the processor": processor / count * 1e6}


def random_rows(config: Config) -> np.ndarray:
    """Returns rows of ids as frequent as words are (Zipf)."""
    generator = np.random.default_rng(0)
    return np.minimum(generator.zipf(1.2, (config.rows, config.length + 1)), 49_999).astype(np.uint16)


def formats(config: Config, folder: Path, data: Path) -> dict[str, dict[str, float]]:
    """Reads rows of ArrayRecord, Parquet and a plain array in random order, one by one or 32 at once."""
    module = import_extra("array_record.python.array_record_module", "corpus")
    arrow, parquet = import_extra("pyarrow", "corpus"), import_extra("pyarrow.parquet", "corpus")
    rows, order = random_rows(config), np.random.default_rng(1).permutation(config.rows)
    at_once = order[: config.rows // _READ_AT_ONCE * _READ_AT_ONCE].reshape(-1, _READ_AT_ONCE)[: config.batches]
    found = {}
    path = folder / "rows"
    write_shard(path, rows, "uint16")
    reader = module.ArrayRecordReader(str(path), "readahead_buffer_size:0,max_parallelism:0")
    size = {"megabytes": path.stat().st_size / 1e6}
    found["ArrayRecord, one row"] = {
        **size,
        **timed(lambda: [reader.read([int(row)]) for row in order[: config.batches]], min(config.batches, config.rows)),
    }
    found["ArrayRecord, 32 rows"] = {
        **size,
        **timed(lambda: [reader.read(part.tolist()) for part in at_once], at_once.size),
    }
    table = arrow.table({"ids": arrow.FixedSizeListArray.from_arrays(arrow.array(rows.reshape(-1)), rows.shape[1])})
    for group, compression in ((32, "none"), (1024, "none"), (1024, "zstd")):
        parquet.write_table(table, path, row_group_size=group, compression=compression, use_dictionary=False)
        file = parquet.ParquetFile(path, memory_map=True)
        some = order[: config.batches if group == 32 else 32]
        found[f"Parquet, groups of {group}, {compression}, one row"] = {
            "megabytes": path.stat().st_size / 1e6,
            **timed(lambda file=file, group=group, some=some: [_row(file, int(row), group) for row in some], len(some)),
        }
    np.save(folder / "rows.npy", rows)
    mapped = np.load(folder / "rows.npy", mmap_mode="r")
    found["array in a memory map, 32 rows"] = {
        "megabytes": rows.nbytes / 1e6,
        **timed(lambda: [mapped[np.sort(part)] for part in at_once], at_once.size),
    }
    return found


def _row(file: Any, row: int, group: int) -> Any:
    return file.read_row_group(row // group, use_threads=False)["ids"][row % group]


def batches(config: Config, folder: Path, data: Path) -> dict[str, dict[str, float]]:
    """Times batches of 32 rows, and how long a training with steps of 5 ms waits for them; those of Grain, too."""
    rows = random_rows(config)
    (folder / "shards").mkdir()
    path = folder / "shards" / "0.array_record"
    write_shard(path, rows, "uint16")
    index = {"format": 1, "length": config.length, "rows": len(rows), "tokens": rows.size, "dtype": "uint16"}
    index |= {"start_id": None, "end_id": 0}
    index["shards"] = [{"file": "shards/0.array_record", "rows": len(rows), "bytes": path.stat().st_size}]
    zoo.storage.write_text_atomically(folder / "corpus.json", json.dumps(index))
    corpus = Corpus(folder)
    options = {"batch_size": _READ_AT_ONCE, "batches_per_epoch": 10 * config.batches + 1000}
    found = {
        f"batching.CorpusRows, {name}": timed_batches(
            iter(batching.CorpusRows([corpus], separate=separate, **options).dataset), config
        )
        for name, separate in (("windows", False), ("separate documents", True))
    }
    grain = import_extra("grain", "benchmark")
    for threads in (0, 2, 16):
        found[f"Grain, {threads} threads, tokens alone"] = timed_batches(grain_batches(grain, path, threads), config)
    # as Keras feeds it to a model on TensorFlow
    signature = tf.TensorSpec((_READ_AT_ONCE, config.length + 1), tf.int32)
    fed = tf.data.Dataset.from_generator(lambda: grain_batches(grain, path, 2), output_signature=signature).prefetch(2)
    found["Grain, 2 threads, by tf.data"] = timed_batches(iter(fed), config)
    return found


def grain_batches(grain: Any, path: Path, threads: int) -> Iterator[np.ndarray]:
    """Batches of rows, shuffled over the whole index, as Grain reads ArrayRecord; threads read ahead, if any."""
    rows = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(str(path))).seed(0).shuffle().repeat()
    rows = rows.map(lambda record: np.frombuffer(record, np.uint16).astype(np.int32)).batch(_READ_AT_ONCE)
    if not threads:
        return (rows[number] for number in range(1 << 40))
    return iter(rows.to_iter_dataset(grain.ReadOptions(num_threads=threads, prefetch_buffer_size=16)))


def timed_batches(iterator: Iterator[Any], config: Config) -> dict[str, float]:
    """Returns milliseconds of a batch, by the clock and of the processor, and of waiting for one in steps of 5 ms."""
    for _ in range(20):
        next(iterator)
    figures = timed(lambda: [next(iterator) for _ in range(config.batches)], config.batches)
    waits = []
    for _ in range(config.batches):
        time.sleep(_STEP_SECONDS)  # a step on an accelerator leaves the processor free
        started = time.perf_counter()
        next(iterator)
        waits.append(time.perf_counter() - started)
    waited = {"median wait, ms": np.median(waits) * 1e3, "99th percentile of waits, ms": np.quantile(waits, 0.99) * 1e3}
    return {"ms": figures["microseconds"] / 1e3, "of the processor": figures["of the processor"] / 1e3, **waited}


def real_text(config: Config, folder: Path, data: Path) -> Path:
    """Writes three novels, over and over, a paragraph a line; returns the file."""
    import gzip

    novels = [gzip.decompress(path.read_bytes()).decode("utf-8-sig") for path in sorted(data.glob("gutenberg/*.gz"))]
    paragraphs = [" ".join(part.split()) for novel in novels for part in novel.replace("\r", "").split("\n\n")]
    text = "".join(f"{part}\n" for part in paragraphs if part).encode()
    path = folder / "novels.txt"
    with open(path, "wb") as file:
        while file.tell() < config.megabytes * 10**6:
            file.write(text)
    return path


def save_tokenizers(folder: Path, data: Path) -> dict[str, Path]:
    """Writes the tokenizers of GPT-2 and Mistral as the recipe takes them; returns their folders."""
    files = (data / "tokenizers" / "gpt2_bpe_encoder.json", data / "tokenizers" / "gpt2_bpe_vocab.bpe")
    made = {
        "GPT-2": zoo.tokenizers.ByteLevelBPETokenizer.from_files(*files, split="gpt2", end_token=_END),
        "Mistral": zoo.tokenizers.SentencePieceTokenizer.from_file(data / "tokenizers" / "mistral_tokenizer.model.v1"),
    }
    for name, tokenizer in made.items():
        tokenizer.save(folder / name)
    return {name: folder / name for name in made}


def preparation(tokenizer: Path, text: Path, output: Path) -> prepare_text.PrepareTextConfig:
    """Returns the configuration that prepares lines of a file in one process."""
    return prepare_text.PrepareTextConfig(
        input=[str(text)], tokenizer=str(tokenizer), output=str(output), unit="line", processes=1
    )


def preparing(config: Config, folder: Path, data: Path) -> dict[str, dict[str, float]]:
    """Times the recipe and the tools of other libraries on real text."""
    text, folders = real_text(config, folder, data), save_tokenizers(folder, data)
    found = {}
    for name, tokenizer in folders.items():
        options = preparation(tokenizer, text, folder / f"corpus {name}")
        options = dataclasses.replace(options, deduplicate="none")
        found[f"prepare_text, {name}"] = speed(lambda options=options: prepare_text.main(options)["tokens"], config)
    found["datasets.map with tokenizers, GPT-2"] = speed(lambda: by_datasets(text, folder, data), config)
    model = data / "tokenizers" / "mistral_tokenizer.model.v1"
    if shutil.which("spm_encode"):
        found["spm_encode, Mistral"] = speed(lambda: by_command(text, folder, model), config)
    return found


def speed(work: Callable[[], int], config: Config) -> dict[str, float]:
    """Returns tokens per second by the clock and per second of the processor, that of processes begun included."""

    def processor() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in used)

    started, before = time.perf_counter(), processor()
    tokens = work()
    seconds, used = time.perf_counter() - started, processor() - before
    return {"tokens": tokens, "a second": tokens / seconds, "a second of the processor": tokens / used}


def by_datasets(text: Path, folder: Path, data: Path) -> int:
    """Tokenizes the lines with `datasets.map`, in one process and one thread; returns the number of tokens."""
    import tokenizers

    datasets = import_extra("datasets", "benchmark")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    names = (data / "tokenizers" / "gpt2_bpe_encoder.json", data / "tokenizers" / "gpt2_bpe_vocab.bpe")
    tokenizer = tokenizers.ByteLevelBPETokenizer(*map(str, names))
    # a path is taken for a pattern
    files = glob.escape(str(text))
    rows = datasets.load_dataset("text", data_files=files, split="train", cache_dir=str(folder / "cache"))

    def tokenize(batch: dict[str, list[str]]) -> dict[str, Any]:
        ids = [one.ids for one in tokenizer.encode_batch(batch["text"])]
        return {"ids": ids, "length": list(map(len, ids))}

    return int(sum(rows.map(tokenize, batched=True, remove_columns=["text"])["length"])) + len(rows)


def by_command(text: Path, folder: Path, model: Path) -> int:
    """Tokenizes the lines with `spm_encode`; returns the number of tokens."""
    output = folder / "ids.txt"
    command = ["spm_encode", f"--model={model}", "--output_format=id", f"--output={output}", str(text)]
    subprocess.run(command, check=True, capture_output=True)
    with open(output, "rb") as lines:
        return sum(len(line.split()) + 1 for line in lines)


def memory(config: Config, folder: Path, data: Path) -> dict[str, dict[str, float]]:
    """Measures what preparing generated text needs beyond what the process held before, in megabytes."""
    save_tokenizers(folder, data)
    found = {}
    for size in config.sizes:
        made = "recipes.benchmark.corpora:make_preparation"
        started = time.perf_counter()
        peak = peak_memory(made, folder=str(folder), megabytes=size, copies=config.copies)
        found[f"{size} MB of text"] = {"megabytes": peak / 1e6, "seconds": time.perf_counter() - started}
    return found


def make_preparation(folder: str, megabytes: int, copies: int) -> Callable[[], object]:
    """Generates text, and returns a function that prepares it in this process.

    Args:
        folder: Where the files and the tokenizer are.
        megabytes: The size of the text.
        copies: How often each document occurs.
    """
    generator = np.random.default_rng(megabytes)
    letters = np.array(list("etaoinshrdlu"))
    words = np.array(["".join(generator.choice(letters, size)) for size in generator.integers(2, 9, 20_000)])
    text = Path(folder) / f"{megabytes}.txt"
    with open(text, "w+b") as file:
        while file.tell() < megabytes * 10**6 / copies:
            chosen = words[np.minimum(generator.zipf(1.3, (1000, 100)), len(words)) - 1]
            file.write("".join(" ".join(line) + "\n" for line in chosen).encode())
        once = file.tell()
        for place in range(0, once * (copies - 1), _COPIED_AT_ONCE):
            file.seek(place)
            block = file.read(min(_COPIED_AT_ONCE, once * (copies - 1) - place))
            file.seek(0, os.SEEK_END)
            file.write(block)
    options = preparation(Path(folder) / "GPT-2", text, Path(folder) / f"corpus {megabytes}")
    # what libraries need is there before
    zoo.tokenizers.Tokenizer.load(Path(folder) / "GPT-2").tokenize(["a text"])
    for module in ("array_record.python.array_record_module", "datasketch"):
        import_extra(module, "corpus")
    return lambda: prepare_text.main(options)
