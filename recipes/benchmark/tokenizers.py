"""Tokenizers compared with the `tokenizers` library: the same ids on every line of text, and the time they take.

Each kind tokenizes all lines eagerly, in `tf.data` and by a reloaded SavedModel, and the library does the same with the
same vocabulary. (It knows SentencePiece models only as its own conversions; so those are compared with the package
`sentencepiece` too, by which they were made.)
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import zoo
from recipes.benchmark.step_data import write_results
from recipes.benchmark.text_corpus import distinct_lines
from recipes.benchmark.timing import time_in_turn
from recipes.common.config import setting
from recipes.common.errors import DataError
from recipes.common.output_file import check_output_file

TIES = "ties with sentencepiece"  # lines that differ from it in a segmentation of equal score

Encode = Callable[[list[str]], list[list[int]]]

KINDS = {
    "WordPiece, BERT uncased": ("wordpiece", "bert_base_uncased_vocab.txt"),
    "WordPiece, BERT cased": ("wordpiece", "bert_base_cased_vocab.txt"),
    "byte-level BPE, GPT-2": ("bpe", "gpt2"),
    "byte-level BPE, GPT-2's merges, Llama 3's pattern": ("bpe", "llama3"),
    "byte-level BPE, GPT-2's merges, Qwen2's pattern and NFC": ("bpe", "qwen2"),
    "byte-level BPE, GPT-2's merges, GPT-4o's pattern": ("bpe", "gpt4o"),
    "SentencePiece BPE with bytes, Mistral": ("sentencepiece", "mistral_tokenizer.model.v1"),
    "SentencePiece unigram, T5": ("sentencepiece", "t5_tokenizer_base.model"),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Compares tokenizers with the tokenizers library on all text of a folder, and times both."""

    data: str = setting(
        "", "Folder of text with the folder tokenizers/ of vocabularies; empty: that of ZOO_DATA.", offers="paths"
    )
    every: int = setting(1, "Compare only every n-th distinct line.", least=1)
    kinds: list[str] = setting(list(KINDS), "Kinds of tokenizers to compare.")
    batch_size: int = setting(1000, "Number of lines per batch.", least=1)
    speed_file: str = setting("wikitext2/valid.txt", "File below the folder whose lines are timed.")
    rounds: int = setting(5, "Number of timed turns of each tokenizer.", least=1)
    output: str = setting("runs/benchmark/tokenizers.json", "File for the figures.", offers="paths")


def main(config: Config) -> dict[str, Any]:
    """Runs the comparison and prints two tables.

    Args:
        config: The configuration.

    Returns:
        Lines compared and lines that differ of each kind and way, and seconds of each kind.
    """
    check_output_file(config.output)
    folder = Path(config.data or os.environ.get("ZOO_DATA", ""))
    if not (folder / "tokenizers").is_dir():
        given = f"; {folder} does not" if folder.name else ""
        raise DataError(f"Set ZOO_DATA or --data to the folder that holds tokenizers/ and text{given}.")
    unknown = [kind for kind in config.kinds if kind not in KINDS]
    if unknown:
        raise DataError(f"There is no kind {unknown[0]!r}; there are {list(KINDS)}.")
    lines = distinct_lines(folder)[:: config.every]
    timed = (folder / config.speed_file).read_text(encoding="utf-8").split("\n")
    rows, speeds = {}, {}
    for kind in config.kinds:
        tokenizer, encoders = make(kind, folder / "tokenizers")
        rows[kind] = compare(tokenizer, encoders, lines, config.batch_size)
        speeds[kind] = time_both(tokenizer, encoders["tokenizers"], timed, config)
        print(f"{kind}: {rows[kind]}; {speeds[kind]}", flush=True)
    columns = ("tf.data", "SavedModel", "tokenizers", "sentencepiece", TIES)
    print(f"\n| kind ({len(lines):,} lines each) | differ: " + " | ".join(columns) + " |\n|" + " --- |" * 6)
    for kind, row in rows.items():
        print(f"| {kind} | " + " | ".join(str(row.get(column, "")) for column in columns) + " |")
    print("\n| kind | ours, ms | tokenizers, ms | speed, theirs = 1 |\n| --- | --- | --- | --- |")
    for kind, row in speeds.items():
        print(f"| {kind} | {row['zoo']} | {row['tokenizers']} | {row['relative_speed']} |")
    result = {"config": dataclasses.asdict(config), "lines": len(lines), "differ": rows, "milliseconds": speeds}
    write_results(config.output, result)
    return result


def make(kind: str, folder: Path) -> tuple[zoo.tokenizers.Tokenizer, dict[str, Encode]]:
    """Returns our tokenizer of a kind and, by name, what other libraries make of the same vocabulary."""
    import tokenizers

    family, name = KINDS[kind]
    if family == "wordpiece":
        lowercase = "uncased" in name
        reference = tokenizers.BertWordPieceTokenizer(str(folder / name), lowercase=lowercase)
        return zoo.tokenizers.WordPieceTokenizer.from_file(folder / name, lowercase=lowercase), {
            "tokenizers": encoder(reference)
        }
    if family == "bpe":
        files = (folder / "gpt2_bpe_encoder.json", folder / "gpt2_bpe_vocab.bpe")
        reference = tokenizers.ByteLevelBPETokenizer(*map(str, files))
        splitters = tokenizers.pre_tokenizers
        if name != "gpt2":
            reference.pre_tokenizer = splitters.Sequence(
                [
                    splitters.Split(tokenizers.Regex(zoo.tokenizers.split_patterns.PATTERNS[name]), "isolated"),
                    splitters.ByteLevel(add_prefix_space=False, use_regex=False),
                ]
            )
        normalization = "NFC" if name == "qwen2" else None
        if normalization:
            reference.normalizer = tokenizers.normalizers.NFC()
        ours = zoo.tokenizers.ByteLevelBPETokenizer.from_files(
            *files, split=name, normalization=normalization, end_token="<|endoftext|>"
        )
        return ours, {"tokenizers": encoder(reference)}
    import sentencepiece

    ours = zoo.tokenizers.SentencePieceTokenizer.from_file(folder / name)
    package = sentencepiece.SentencePieceProcessor(model_proto=ours.proto)
    return ours, {"tokenizers": encoder(converted(ours.proto)), "sentencepiece": package.encode}


def encoder(reference: Any) -> Encode:
    """Returns a function from lines to ids by the tokenizers library; text that spells special tokens stays text."""
    reference = getattr(reference, "_tokenizer", reference)
    reference.encode_special_tokens = True
    return lambda lines: [one.ids for one in reference.encode_batch(lines, add_special_tokens=False)]


def converted(proto: bytes) -> Any:
    """Returns a SentencePiece model as the tokenizers library can have it, converted as Transformers does."""
    import tokenizers
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import models, normalizers, pre_tokenizers

    model = sentencepiece_model_pb2.ModelProto.FromString(proto)
    pieces = [(piece.piece, piece.score) for piece in model.pieces]
    if model.trainer_spec.model_type == model.trainer_spec.UNIGRAM:
        result = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=model.trainer_spec.unk_id))
        result.normalizer = normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)
        result.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
        return result
    ids = {piece: index for index, (piece, _) in enumerate(pieces)}
    scores = dict(pieces)
    merges = [
        (piece[:cut], piece[cut:])
        for piece, _ in pieces
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
    merges.sort(key=lambda pair: (-scores["".join(pair)], ids[pair[0]], ids[pair[1]]))
    result = tokenizers.Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    result.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    return result


def compare(
    tokenizer: zoo.tokenizers.Tokenizer, encoders: dict[str, Encode], lines: list[str], batch_size: int
) -> dict[str, int]:
    """Returns the number of lines whose ids differ from those that the tokenizer gives eagerly.

    Args:
        tokenizer: Ours.
        encoders: Other implementations by name.
        lines: Lines of text.
        batch_size: Lines of a batch.

    Returns:
        Lines that differ, for `"tf.data"`, `"SavedModel"` and each of the others; of those that differ from
        `sentencepiece`, how many are segmentations of equal score (`TIES`).
    """
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(tf.constant(lines)).batch(batch_size).map(tokenizer.tokenize)
    with tempfile.TemporaryDirectory() as directory:
        module = tf.Module()
        module.resources = tokenizer.trackables
        module.tokenize = tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
        tf.saved_model.save(module, directory)
        reloaded = tf.saved_model.load(directory)
    differ = dict.fromkeys(["tf.data", "SavedModel", *encoders], 0)
    if "sentencepiece" in encoders:
        differ[TIES], scores = 0, piece_scores(tokenizer)
    for batch, piped in zip(batches(lines, batch_size), dataset, strict=True):
        eager = rows(tokenizer.tokenize(batch))
        differ["tf.data"] += count_differing(eager, rows(piped))
        differ["SavedModel"] += count_differing(eager, rows(reloaded.tokenize(tf.constant(batch))))
        for name, encode in encoders.items():
            theirs = [np.asarray(row, np.int32) for row in encode(batch)]
            differ[name] += count_differing(eager, theirs)
            if name == "sentencepiece":
                differ[TIES] += count_ties(eager, theirs, scores)
    return differ


def batches(lines: list[str], batch_size: int) -> Iterator[list[str]]:
    """Yields runs of lines."""
    for start in range(0, len(lines), batch_size):
        yield lines[start : start + batch_size]


def rows(ragged: Any) -> list[np.ndarray]:
    """Returns the rows of a ragged tensor."""
    return np.split(ragged.values.numpy(), ragged.row_splits.numpy()[1:-1])


def count_differing(ours: list[np.ndarray], theirs: list[np.ndarray]) -> int:
    """Returns the number of rows that are not equal."""
    return sum(not np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def count_ties(ours: list[np.ndarray], theirs: list[np.ndarray], scores: np.ndarray) -> int:
    """Returns the number of rows that are not equal although the sums of the scores of their pieces are.

    Args:
        ours: Ids of each line.
        theirs: Likewise.
        scores: Score of each piece, `(vocabulary,)`.
    """
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if not np.array_equal(a, b)]
    # sums of up to some hundred scores of float32
    return sum(bool(abs(scores[a].sum() - scores[b].sum()) < 1e-3) for a, b in pairs)


def piece_scores(tokenizer: zoo.tokenizers.SentencePieceTokenizer) -> np.ndarray:
    """Returns the score of each piece of a SentencePiece model, float64 `(vocabulary,)`."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.proto)
    return np.array([piece.score for piece in model.pieces], np.float64)


def time_both(
    tokenizer: zoo.tokenizers.Tokenizer, encode: Encode, lines: list[str], config: Config
) -> dict[str, float]:
    """Returns the median milliseconds in which each tokenizes lines, in batches, and their ratio.

    The library works on as many threads as it likes, and is asked for nothing but lists of ids.
    """
    import tensorflow as tf

    runs = list(batches(lines, config.batch_size))
    tensors = [tf.constant(run) for run in runs]
    times = time_in_turn(
        {
            "zoo": lambda: [tokenizer.tokenize(tensor) for tensor in tensors],
            "tokenizers": lambda: [encode(run) for run in runs],
        },
        rounds=config.rounds,
        calls=1,
        warm_up=1,
    )
    result = {name: round(1000 * statistics.median(seconds), 1) for name, seconds in times.items()}
    ratios = [theirs / ours for ours, theirs in zip(times["zoo"], times["tokenizers"], strict=True)]
    return {**result, "relative_speed": round(statistics.median(ratios), 2)}
