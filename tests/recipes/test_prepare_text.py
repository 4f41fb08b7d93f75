"""Preparing text: what the folder of a corpus holds, by formulas of its own; interrupted, killed, on Ray."""

import gzip
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import filelock
import numpy as np
import pytest
from fork_server import process_of

pytest.importorskip("array_record", reason="the extra 'corpus' is not installed")
pytest.importorskip("datasketch", reason="the extra 'corpus' is not installed")

import zoo  # noqa: E402
from recipes import evaluate, language_model, prepare_text, pretrain_masked_lm  # noqa: E402
from recipes.common.batching import CorpusExamples  # noqa: E402
from recipes.common.config import parse  # noqa: E402
from recipes.common.corpus import stages  # noqa: E402
from recipes.common.corpus.shards import Corpus, fingerprint  # noqa: E402
from recipes.common.errors import ConfigError, DataError, RunFolderError  # noqa: E402
from recipes.common.training import corpora as corpora_module  # noqa: E402
from recipes.common.training.corpora import check_tokenizer  # noqa: E402
from zoo.tokenizers import ByteLevelBPETokenizer, Tokenizer  # noqa: E402
from zoo.tokenizers.byte_alphabet import byte_characters  # noqa: E402

END = "<|endoftext|>"
WORDS = "sun moon star sky cloud rain wind storm snow ice fire smoke ash dust sand stone rock hill river lake".split()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    options = {"pad_token": END, "start_token": END, "end_token": END, "mask_token": "<mask>"}
    ByteLevelBPETokenizer([END, "<mask>", *byte_characters()], [], **options).save(folder)
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Six files of paragraphs; some occur again in the next file, or with another word."""
    folder, generator = tmp_path_factory.mktemp("texts"), np.random.default_rng(0)
    documents = []
    for number in range(6):
        found = [" ".join(generator.choice(WORDS, size=generator.integers(30, 60))) + "." for _ in range(12)]
        if documents:
            found[3] = documents[-1][2]
            found[7] = documents[-1][5].replace(".", " again.")
        documents.append(found)
        (folder / f"{number}.txt.gz").write_bytes(gzip.compress("\n\n".join(found).encode()))
    return folder, documents


def prepare(texts, tokenizer, output, *words):
    options = ["--input", str(texts / "*.txt.gz"), "--tokenizer", str(tokenizer), "--output", str(output)]
    options += ["--length", "32", "--shards", "3", "--processes", "1", *words]
    return prepare_text.main(parse(prepare_text.PrepareTextConfig, options))


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def expected_rows(documents, length):
    """The rows of one shard, document by document: an id is the place of the byte's character, the end token 0."""
    alphabet = {byte: place for place, byte in enumerate(bytes_in_order(), 2)}
    stream = [token for text in documents for token in [*(alphabet[byte] for byte in text.encode()), 0]]
    return [stream[start : start + length + 1] for start in range(0, len(stream) - 1, length)]


def bytes_in_order():
    """The bytes in the order of their characters in the vocabulary: GPT-2's table, written out by its definition."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    of_byte = {byte: chr(byte) for byte in printable}
    of_byte.update({byte: chr(256 + n) for n, byte in enumerate(b for b in range(256) if b not in printable)})
    of_character = {character: byte for byte, character in of_byte.items()}
    return [of_character[character] for character in byte_characters()]


def test_rows_hold_every_document_once(texts, tokenizer, tmp_path):
    folder, documents = texts
    index = prepare(folder, tokenizer, tmp_path / "corpus", "--deduplicate", "minhash")
    corpus = Corpus(tmp_path / "corpus")
    kept = [text for number, found in enumerate(documents) for text in (found if not number else without(found, 3, 7))]
    per_shard = [12 + 10, 10 + 10, 10 + 10]
    rows, start = [], 0
    for count in per_shard:
        rows += expected_rows(kept[start : start + count], 32)
        start += count
    tokens, lengths = corpus.read(np.arange(corpus.rows))
    assert [row[:length].tolist() for row, length in zip(tokens, lengths, strict=True)] == rows
    assert index["documents"] == 62 and index["tokens"] == sum(len(text) + 1 for text in kept)
    assert index["counts"]["decisions"] == {"train": 62, "held_out": 0, "exact": 5, "near": 5}
    assert index["characters"] == sum(map(len, kept)) and index["dtype"] == "uint16"
    report = (tmp_path / "corpus" / "report.md").read_text()
    assert re.search(r"\| exact duplicates \| 5 \|", report) and re.search(r"\| read \| 72 \|", report)
    assert not (tmp_path / "corpus" / "work").exists()
    # what is read in another order is the same
    order = np.random.default_rng(0).permutation(corpus.rows)
    np.testing.assert_array_equal(corpus.read(order)[0], tokens[order])


def test_report_names_each_filter_in_its_order(texts, tokenizer, tmp_path):
    """Also one that has left out nothing: it has been there."""
    filters = "[repeated_lines, {filter: words, most: 45}, {filter: characters, most: 9999}]"
    prepare(texts[0], tokenizer, tmp_path / "corpus", "--filters", filters)
    long = sum(len(text.split()) > 45 for found in texts[1] for text in found)
    report = (tmp_path / "corpus" / "report.md").read_text()
    rows = re.findall(r"left out by the filter (\w+) \| ([\d,]+)", report)
    assert rows == [("repeated_lines", "0"), ("words", str(long)), ("characters", "0")]


def test_bad_lines_may_be_left_out_from_now_on(tokenizer, tmp_path):
    """What a run that stops at them has done holds none of them."""
    for number, text in enumerate(("sun", "moon", "star")):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({"text": text}) + "\n")
    with (tmp_path / "2.jsonl").open("a") as file:
        file.write("{\n")
    options = ["--input", str(tmp_path / "?.jsonl"), "--tokenizer", str(tokenizer), "--length", "4", "--processes", "1"]
    parsed = [
        parse(prepare_text.PrepareTextConfig, [*options, "--output", str(tmp_path / name), "--on_error", on_error])
        for name, on_error in (("corpus", "raise"), ("corpus", "skip"), ("other", "skip"))
    ]
    with pytest.raises(DataError, match="2.jsonl:2: .*on_error 'skip' leaves such lines out"):
        prepare_text.main(parsed[0])
    prepare_text.main(parsed[1])
    prepare_text.main(parsed[2])
    assert contents(tmp_path / "corpus") == contents(tmp_path / "other")
    # what was left out does not come back
    with pytest.raises(RunFolderError, match="on_error: 'skip' in the folder, 'raise' now"):
        prepare_text.main(parsed[0])


def without(documents, *places):
    return [text for place, text in enumerate(documents) if place not in places]


def test_keys_that_are_compared_group_by_group(texts, tokenizer, tmp_path, monkeypatch):
    options = ["--deduplicate", "minhash", "--validation", "0.2"]
    prepare(texts[0], tokenizer, tmp_path / "at once", *options)
    monkeypatch.setattr("recipes.common.corpus.stages.comparing._KEYS_AT_ONCE", 10)
    prepare(texts[0], tokenizer, tmp_path / "in groups", *options)
    assert contents(tmp_path / "in groups") == contents(tmp_path / "at once")


def test_filters_and_held_out_documents(texts, tokenizer, tmp_path):
    folder, documents = texts
    options = ["--filters", "[{filter: words, most: 45}]", "--validation", "0.3", "--deduplicate", "none"]
    index = prepare(folder, tokenizer, tmp_path / "corpus", *options)
    short = [text for found in documents for text in found if len(text.split()) <= 45]
    lines = (tmp_path / "corpus" / "validation.jsonl").read_text().splitlines()
    held_out = [json.loads(line)["text"] for line in lines]
    assert index["counts"]["documents"] == {"kept": len(short), "words": 72 - len(short)}
    assert 0.1 * len(short) < len(held_out) < 0.5 * len(short)
    assert index["documents"] + len(held_out) == len(short) and set(held_out) < set(short)
    # a text is held out wherever it occurs
    tokens, lengths = Corpus(tmp_path / "corpus").read(np.arange(index["rows"]))
    whole = np.array(bytes_in_order(), np.uint8)
    stream = [token for row, length in zip(tokens, lengths, strict=True) for token in row[: min(length, 32)]]
    trained = bytes(10 if token == 0 else whole[token - 2] for token in stream).decode()
    assert not any(text in trained for text in held_out)


@pytest.mark.parametrize("stage", ["read_shard", "find_duplicates", "pack_shard"])
def test_interrupted_and_continued(texts, tokenizer, tmp_path, monkeypatch, stage):
    folder, _ = texts
    options = ["--deduplicate", "minhash", "--validation", "0.1"]
    prepare(folder, tokenizer, tmp_path / "whole", *options)
    calls, function = [], getattr(stages, stage)

    def interrupted(task):
        calls.append(task)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return function(task)

    with monkeypatch.context() as patch:
        patch.setattr(stages, stage, interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare(folder, tokenizer, tmp_path / "parts", *options)
        assert not (tmp_path / "parts" / "corpus.json").exists()
        done = {name: path.stat().st_mtime_ns for name, path in files(tmp_path / "parts")}
        prepare(folder, tokenizer, tmp_path / "parts", *options)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    # a shard that was there has not been made again
    now = dict(files(tmp_path / "parts"))
    shards = [name for name in done if name.endswith(".array_record")]
    assert all(now[name].stat().st_mtime_ns == done[name] for name in shards)
    assert len(shards) == (2 if stage == "pack_shard" else 0)


def files(folder):
    return [(str(path.relative_to(folder)), path) for path in folder.rglob("*") if path.is_file()]


@pytest.mark.slow
def test_killed_processes(texts, tokenizer, tmp_path):
    """Two processes are killed as soon as there is a shard, and go on; the bytes are those of one process."""
    folder, _ = texts
    prepare(folder, tokenizer, tmp_path / "whole")
    command = [sys.executable, "-m", "recipes.prepare_text", "--input", str(folder / "*.txt.gz")]
    command += ["--tokenizer", str(tokenizer), "--output", str(tmp_path / "killed"), "--length", "32", "--shards", "3"]
    root = Path(prepare_text.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root), "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.Popen([*command, "--processes", "2"], env=environment, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list((tmp_path / "killed").glob("work/read-*.json")):
        time.sleep(0.02)
    os.kill(process_of(process.pid), signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL, process.stderr.read()
    prepare(folder, tokenizer, tmp_path / "killed", "--processes", "2")
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_killed_when_the_index_is_written(texts, tokenizer, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(prepare_text, "tidy", lambda folder: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            prepare(texts[0], tokenizer, tmp_path / "killed")
    assert (tmp_path / "killed" / "work").is_dir()
    (tmp_path / "killed" / "shards" / ".00001.array_record.abcd1234.incomplete").mkdir()
    prepare(texts[0], tokenizer, tmp_path / "killed")
    prepare(texts[0], tokenizer, tmp_path / "whole")
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert sorted(path.name for path in (tmp_path / "killed" / "shards").iterdir()) == [
        f"{number:05d}.array_record" for number in range(3)
    ]


def test_files_of_others_stay(texts, tokenizer, tmp_path, monkeypatch):
    output = tmp_path / "corpus"
    strange = [output / "tokenizer" / "notes.txt", output / "work" / "notes.txt"]
    for path in strange:
        path.parent.mkdir(parents=True)
        path.write_text("mine")
    with pytest.raises(RunFolderError, match="holds 'work/notes.txt' of something else"):
        prepare(texts[0], tokenizer, output)
    assert strange.pop().read_text() == "mine"
    (output / "work" / "notes.txt").unlink()
    prepare(texts[0], tokenizer, output)
    assert not (output / "work").exists()
    # a folder that is complete is tidied up again
    strange += [output / "work" / "notes.txt", output / "shards" / ".mine.incomplete" / "x", output / "own" / "x.npy"]
    for path in strange:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    (output / "work" / "read-00000.json").write_text("{}")
    prepare(texts[0], tokenizer, output)
    assert all(path.read_text() == "mine" for path in strange) and os.listdir(output / "work") == ["notes.txt"]


def test_full_disk(tokenizer, tmp_path):
    words = np.random.default_rng(0).choice(WORDS, (300, 200))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("\n\n".join(map(" ".join, words)).encode()))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(RunFolderError, match=r"output: .*stay, and the same command resumes"):
            prepare(tmp_path, tokenizer, tmp_path / "full", "--shards", "1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list((tmp_path / "full" / "shards").iterdir())
    prepare(tmp_path, tokenizer, tmp_path / "full", "--shards", "1")
    prepare(tmp_path, tokenizer, tmp_path / "whole", "--shards", "1")
    assert contents(tmp_path / "full") == contents(tmp_path / "whole")
    with pytest.raises(RunFolderError, match="output: cannot write to"):
        prepare(tmp_path, tokenizer, tmp_path / "a.txt.gz", "--shards", "1")


def test_another_tokenizer_in_the_same_folder(texts, tokenizer, tmp_path):
    """What an earlier call in this process has read of the folder is not used."""
    options = {"pad_token": END, "start_token": END, "end_token": END}
    ByteLevelBPETokenizer([END, "<a>", "<b>", *byte_characters()], [], **options).save(tmp_path / "other")
    prepare(texts[0], tokenizer, tmp_path / "corpus")
    first = Corpus(tmp_path / "corpus").read([0])[0]
    shutil.rmtree(tmp_path / "corpus")
    prepare(texts[0], tmp_path / "other", tmp_path / "corpus")
    second = Corpus(tmp_path / "corpus").read([0])[0]
    np.testing.assert_array_equal(second, np.where(first == 0, 0, first + 1))


@pytest.mark.parametrize("end", ["complete", "begun"])
def test_input_that_has_changed(texts, tokenizer, tmp_path, monkeypatch, end):
    shutil.copytree(texts[0], tmp_path / "texts")
    if end == "begun":
        with monkeypatch.context() as patch:
            patch.setattr(stages, "pack_shard", lambda task: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                prepare(tmp_path / "texts", tokenizer, tmp_path / "corpus")
    else:
        prepare(tmp_path / "texts", tokenizer, tmp_path / "corpus")
    (tmp_path / "texts" / "new.txt.gz").write_bytes(gzip.compress(b"a b c"))
    with pytest.raises(DataError, match=r"new\.txt\.gz was not there when"):
        prepare(tmp_path / "texts", tokenizer, tmp_path / "corpus")
    (tmp_path / "texts" / "new.txt.gz").rename(tmp_path / "texts" / "5.txt.gz")
    with pytest.raises(DataError, match=r"5\.txt\.gz is not what it was when"):
        prepare(tmp_path / "texts", tokenizer, tmp_path / "corpus")
    (tmp_path / "texts" / "5.txt.gz").unlink()
    if end == "begun":
        with pytest.raises(DataError, match=r"5\.txt\.gz is gone, with which"):
            prepare(tmp_path / "texts", tokenizer, tmp_path / "corpus")
    else:  # what has been read is not needed any more
        shutil.rmtree(tmp_path / "texts")
        assert prepare(tmp_path / "texts", tokenizer, tmp_path / "corpus")["documents"] == 67


def test_input_that_changes_meanwhile(texts, tokenizer, tmp_path, monkeypatch):
    shutil.copytree(texts[0], tmp_path / "texts")
    pack = stages.pack_shard

    def pack_and_touch(task):
        os.utime(tmp_path / "texts" / "0.txt.gz")
        return pack(task)

    monkeypatch.setattr(stages, "pack_shard", pack_and_touch)
    with pytest.raises(DataError, match=r"0\.txt\.gz is not what it was"):
        prepare(tmp_path / "texts", tokenizer, tmp_path / "corpus")
    assert not (tmp_path / "corpus" / "corpus.json").exists()


def test_ray_gives_the_same_bytes(texts, tokenizer, tmp_path):
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    pytest.importorskip("ray.data")
    folder, _ = texts
    options = ["--deduplicate", "minhash", "--filters", "[{filter: words, most: 50}]"]
    prepare(folder, tokenizer, tmp_path / "local", *options)
    ray.init(num_cpus=2, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    try:
        prepare(folder, tokenizer, tmp_path / "ray", *options, "--engine", "ray")
        # what a worker finds is said as on one machine
        (tmp_path / "bad.txt.gz").write_bytes(gzip.compress(b"good\n\xff"))
        with pytest.raises(DataError, match=r"^\S*bad\.txt\.gz:2:1: undecodable byte"):
            prepare(tmp_path, tokenizer, tmp_path / "bad", "--engine", "ray", "--shards", "1")
    finally:
        ray.shutdown()
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


@pytest.mark.slow
def test_a_node_of_a_cluster_that_dies(texts, tokenizer, tmp_path):
    """Two nodes of Ray on this machine, one of them killed at work: the bytes of one process."""
    pytest.importorskip("ray.data", reason="the extra 'ray' is not installed")
    import threading

    import ray
    from ray.cluster_utils import Cluster

    options = ["--deduplicate", "minhash", "--shards", "6"]
    prepare(texts[0], tokenizer, tmp_path / "one", *options)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    node = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    finished, killed = threading.Event(), []

    def kill():
        while not list((tmp_path / "ray").glob("work/read-*.json")):
            if finished.wait(0.05):
                return
        killed.append(len(list((tmp_path / "ray").glob("work/read-*.json"))))
        cluster.remove_node(node, allow_graceful=False)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        prepare(texts[0], tokenizer, tmp_path / "ray", *options, "--engine", "ray")
    finally:
        finished.set()
        thread.join()
        ray.shutdown()
        cluster.shutdown()
    assert killed and killed[0] < 6
    assert contents(tmp_path / "ray") == contents(tmp_path / "one")


def test_other_settings_or_files(texts, tokenizer, tmp_path, monkeypatch):
    folder, _ = texts
    with monkeypatch.context() as patch:
        patch.setattr(stages, "pack_shard", lambda task: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            prepare(folder, tokenizer, tmp_path / "corpus")
    with pytest.raises(RunFolderError, match="unit: 'paragraph' in the folder, 'line' now"):
        prepare(folder, tokenizer, tmp_path / "corpus", "--unit", "line")
    prepare(folder, tokenizer, tmp_path / "corpus")
    before = contents(tmp_path / "corpus")
    prepare(folder, tokenizer, tmp_path / "corpus")  # complete
    assert contents(tmp_path / "corpus") == before
    with pytest.raises(RunFolderError, match="length: 32 in the folder, 16 now"):
        prepare(folder, tokenizer, tmp_path / "corpus", "--length", "16")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("")
    with pytest.raises(RunFolderError, match="holds 'notes'"):
        prepare(folder, tokenizer, tmp_path / "full")


def test_changed_input(tokenizer, tmp_path, monkeypatch):
    (tmp_path / "texts").mkdir()
    for number in range(3):
        (tmp_path / "texts" / f"{number}.txt.gz").write_bytes(gzip.compress(b"a b c"))
    with monkeypatch.context() as patch:
        patch.setattr(stages, "pack_shard", lambda task: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            prepare(tmp_path / "texts", tokenizer, tmp_path / "corpus")
    (tmp_path / "texts" / "1.txt.gz").write_bytes(gzip.compress(b"a b c d"))
    with pytest.raises(DataError, match="is not what it was when"):
        prepare(tmp_path / "texts", tokenizer, tmp_path / "corpus")


def test_damaged_corpus(texts, tokenizer, tmp_path):
    folder, _ = texts
    prepare(folder, tokenizer, tmp_path / "corpus")
    shard = tmp_path / "corpus" / "shards" / "00001.array_record"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(DataError, match="the corpus is damaged"):
        Corpus(tmp_path / "corpus")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--threshold", "0.5"], "threshold must be 0.8 with deduplicate 'exact'"),
        (["--filters", "[nonsense]"], "there is no filter 'nonsense'"),
        (["--shards", "99"], "shards must be at most 6"),
        (["--tokenizer", "nowhere"], "tokenizer: "),
        (["--key", "body"], "key must be left out, as the input has text alone, got 'body'"),
        (["--split", "test"], "split must be left out, as the input has text alone, got 'test'"),
    ],
)
def test_mistakes(texts, tokenizer, tmp_path, words, message):
    with pytest.raises(ConfigError, match=message):
        prepare(texts[0], tokenizer, tmp_path / "corpus", *words)


def test_unit_of_json_lines(tokenizer, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}')
    words = ["--input", str(tmp_path / "a.jsonl"), "--tokenizer", str(tokenizer), "--output", str(tmp_path / "corpus")]
    with pytest.raises(ConfigError, match="unit must be left out, as the input has json lines alone, got 'line'"):
        prepare_text.main(parse(prepare_text.PrepareTextConfig, [*words, "--unit", "line"]))


def test_two_processes_in_one_folder(texts, tokenizer, tmp_path):
    (tmp_path / "corpus").mkdir()
    with filelock.FileLock(tmp_path / "corpus" / ".lock"):
        with pytest.raises(RunFolderError, match="output: another process writes to"):
            prepare(texts[0], tokenizer, tmp_path / "corpus")
    assert prepare(texts[0], tokenizer, tmp_path / "corpus")["documents"] == 67


def test_text_that_is_too_large_for_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(corpora_module, "_MOST_BYTES", 1000)
    (tmp_path / "a.txt").write_text("a b c\n" * 200)
    with pytest.raises(DataError, match=r"1,200 bytes, more than the 1,000 .*recipes\.prepare_text"):
        train(language_model, language_model.LanguageModelConfig, tmp_path / "a.txt", tmp_path / "run", *DECODER)


RUN = [
    *("--training.epochs", "2", "--training.batch_size", "8", "--training.warmup_steps", "2"),
    *("--export", "false"),
]
DECODER = [
    *("--model.preset", "llama_shakespeare", "--training.batches_per_epoch", "4", "--training.length", "32"),
    *("--model.options", '{"num_layers": 1, "hidden_dim": 16, "feed_forward": {"intermediate_dim": 16}}'),
    *("--prompts", "sun", "--new_tokens", "4"),
]
ENCODER = [
    *("--model.options", '{"num_layers": 1, "hidden_dim": 16, "feed_forward": {"intermediate_dim": 16}}'),
    *("--data.words_per_text", "8"),
]


@pytest.fixture(scope="module")
def corpus(texts, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared") / "corpus"
    prepare(texts[0], tokenizer, folder, "--validation", "0.1")
    return folder


def train(recipe, config_class, corpus, run, *words):
    return recipe.main(parse(config_class, ["--data.train", str(corpus), "--run_folder", str(run), *RUN, *words]))


@pytest.mark.usefixtures("eagerly", "without_xla")
@pytest.mark.parametrize("packing", ["windows", "documents"])
def test_language_model(corpus, tmp_path, packing):
    words = [*DECODER, "--data.packing", packing]
    results = train(language_model, language_model.LanguageModelConfig, corpus, tmp_path / "run", *words)
    held_out = [json.loads(line)["text"] for line in (corpus / "validation.jsonl").read_text().splitlines()]
    ends = len(held_out) if packing == "documents" else 0
    tokens = sum(len(text.encode()) for text in held_out) + ends
    # of joined texts the first token is not predicted, and of separate ones each first one
    assert results["validation_tokens"] == tokens - (len(held_out) if packing == "documents" else 1)
    assert fingerprint(Tokenizer.load(tmp_path / "run" / "tokenizer")) == Corpus(corpus).index["tokenizer"]
    scores = evaluate.main(parse(evaluate.EvaluateConfig, [str(tmp_path / "run"), "--output", str(tmp_path / "out")]))
    assert scores


def test_corpus_that_is_not_complete(texts, tokenizer, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(stages, "pack_shard", lambda task: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            prepare(texts[0], tokenizer, tmp_path / "begun")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="data.train: begun is not complete"):
        train(language_model, language_model.LanguageModelConfig, "begun", tmp_path / "run", *DECODER)


@pytest.mark.usefixtures("eagerly", "without_xla")
def test_run_on_another_corpus_of_the_same_name(texts, tokenizer, tmp_path):
    folder = tmp_path / "corpus"
    prepare(texts[0], tokenizer, folder, "--validation", "0.1")
    words = [*DECODER, "--training.save_every", "2"]
    train(language_model, language_model.LanguageModelConfig, folder, tmp_path / "run", *words)
    train(language_model, language_model.LanguageModelConfig, folder, tmp_path / "run", *words)
    shutil.rmtree(folder)
    prepare(texts[0], tokenizer, folder, "--validation", "0.1", "--filters", "[{filter: words, most: 55}]")
    with pytest.raises(RunFolderError, match="holds other rows than"):
        train(language_model, language_model.LanguageModelConfig, folder, tmp_path / "run", *words)


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly", "without_xla")
def test_masked_language_model(corpus, tmp_path):
    config_class = pretrain_masked_lm.MaskedLMConfig
    with pytest.raises(ConfigError, match="whole_words must be false"):
        train(pretrain_masked_lm, config_class, corpus, tmp_path / "no", *ENCODER, "--masking.whole_words", "true")
    results = train(pretrain_masked_lm, config_class, corpus, tmp_path / "run", *ENCODER)
    assert results["validation_nll_per_hidden_token"] < 2 * np.log(258)


def test_end_tokens_are_not_hidden(corpus):
    preprocessor = zoo.preprocessing.MaskedLMPreprocessor(Corpus(corpus).load_tokenizer(), sequence_length=40)
    for inputs, labels, weights in CorpusExamples([Corpus(corpus)], preprocessor, batch_size=8).dataset.take(4):
        assert (weights.numpy() > 0).sum() > 8 and 0 not in labels.numpy()[weights.numpy() > 0]
        assert inputs["token_ids"].shape[0] == 8


def test_large_seed(corpus):
    preprocessor = zoo.preprocessing.MaskedLMPreprocessor(Corpus(corpus).load_tokenizer(), sequence_length=40)
    for _ in CorpusExamples([Corpus(corpus)], preprocessor, batch_size=8, seed=2**31).dataset.take(1):
        pass


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--training.length", "16"], "training.length must be 32"),
        (["--tokenizer.kind", "bytes"], "tokenizer.kind must not be given"),
        (["--data.weights", "1", "2"], "data.weights must be 1 numbers"),
        (["--data.train", "CORPUS", "a.txt"], "corpora alone, or none"),
    ],
)
def test_corpora_that_do_not_fit(corpus, tmp_path, words, message):
    words = [str(corpus) if word == "CORPUS" else word for word in words]
    with pytest.raises(ConfigError, match=message):
        train(language_model, language_model.LanguageModelConfig, corpus, tmp_path / "run", *DECODER, *words)


def test_model_with_another_tokenizer(corpus, tmp_path):
    tokenizer = ByteLevelBPETokenizer([END, *byte_characters()], [], pad_token=END, start_token=END, end_token=END)
    assert fingerprint(tokenizer) != fingerprint(Corpus(corpus).load_tokenizer())
    check_tokenizer([Corpus(corpus)], Corpus(corpus).load_tokenizer())
    with pytest.raises(ConfigError, match="prepared with another tokenizer"):
        check_tokenizer([Corpus(corpus)], tokenizer)
