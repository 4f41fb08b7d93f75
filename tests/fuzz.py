"""Mutates checkpoints, tokenizers and presets, and loads each: no death, no hang, little memory, a clear error.

    python tests/fuzz.py --files 10000 --seed 0

Each file is loaded in one of a few worker processes, which are watched from outside: a worker that dies, or needs more
than 10 seconds (of processor time; three times that by the clock), is counted and replaced. The mutation of file `n`
follows from `--seed` and `n` alone: `--files 1 --first n` does one again. What was found is written as lines of JSON
(`--output`), with the mutated files of the cases that failed.
"""

import argparse
import base64
import collections
import json
import multiprocessing
import multiprocessing.connection
import os
import random
import resource
import shutil
import struct
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS, MEGABYTES = 10, 500
REFERENCE = ROOT / "tests" / "reference" / "huggingface"
TASKS = {
    "bert_classifier": "TextClassifier",
    "bert_token_classifier": "TokenClassifier",
    "bert_masked_lm": "MaskedLM",
    "bart": "Seq2SeqLM",
    "t5": "Seq2SeqLM",
    "gpt2": "CausalLM",
    "llama": "CausalLM",
    "llama_dynamic": "CausalLM",
    "gemma2": "CausalLM",
    "qwen2": "CausalLM",
    "modernbert_classifier": "TextClassifier",
    "distilbert_classifier": "TextClassifier",
}
TEXTS = [
    *("a small dog", "alpha beta gamma", "", "naïve  café ﬁ ｆｕｌｌ", "日本語 Ω≈ç √∫"),
    "\u00ad\u0300 e\u0301 x\u2028y",
    "".join(map(chr, range(0x20, 0x3000, 7))),
]
# what a value becomes
ODD = [
    *(None, True, False, 0, 1, -1, 2, 7, 10**7, 10**9, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308),
    *("", "x", "0", "..", "/"),
    *("../../etc/passwd", "é", "\0", [], [[]], {}, {"": 0}, [None], ["x"], [1, 2, 3], {"type": "x"}, {"content": ""}),
    *("x" * 100_000, list(range(3000)), {str(index): index for index in range(3000)}),
]


class Unclear(Exception):
    """An error that names no file, or is of a kind that says nothing."""


def make_seeds(folder: Path) -> list[dict]:
    """Writes the files that are mutated; returns what each is and how it is loaded."""
    import keras

    from zoo import Backbone, CausalLM, Seq2SeqLM, TextClassifier, TextEmbedder, TransformerConfig
    from zoo.config import AttentionConfig, EmbeddingConfig, FeedForwardConfig, PositionConfig
    from zoo.tokenizers import (
        ByteLevelBPETokenizer,
        SentencePieceTokenizer,
        WordPieceTokenizer,
        save_huggingface,
    )

    keras.utils.set_random_seed(0)
    rng = random.Random(0)
    words = ["".join(rng.choice("abcdefghij") for _ in range(rng.randint(2, 8))) for _ in range(200)]
    texts = [" ".join(rng.choice(words) for _ in range(8)) for _ in range(300)]
    seeds = []

    def add(name: str, kind: str, **options) -> None:
        for path in sorted((folder / name).rglob("*")):
            if path.is_file() and path.name != "golden.npz":
                seeds.append({"folder": name, "file": str(path.relative_to(folder / name)), "kind": kind, **options})

    for name, task in TASKS.items():
        shutil.copytree(REFERENCE / name, folder / name)
        (folder / name / "golden.npz").unlink()
        (folder / name / "generation_config.json").write_text('{"max_length": 20, "eos_token_id": 2}')
        add(name, "checkpoint", task=task)
    tokenizers = {
        "unigram": SentencePieceTokenizer.train(texts, 120),
        "bpe": SentencePieceTokenizer.train(texts, 400, model_type="bpe", byte_fallback=True, normalization="identity"),
        "nfkc": SentencePieceTokenizer.train(texts, 100, normalization="nfkc_cf"),
        "wordpiece": WordPieceTokenizer.train(texts, 120, lowercase=True),
        "bytes": ByteLevelBPETokenizer.train(texts, 400),
    }
    for name, tokenizer in tokenizers.items():
        tokenizer.save(folder / f"own_{name}")
        add(f"own_{name}", "tokenizer")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            save_huggingface(tokenizer, folder / f"hf_{name}", before=[], after=[])
        add(f"hf_{name}", "huggingface_tokenizer")
        if name in ("unigram", "nfkc", "bpe"):
            (folder / f"sp_{name}").mkdir()
            (folder / f"sp_{name}" / "spiece.model").write_bytes(tokenizer.proto)
            (folder / f"sp_{name}" / "tokenizer_config.json").write_text('{"extra_ids": 3, "eos_token": "<eos>"}')
            add(f"sp_{name}", "huggingface_tokenizer")
    small = {
        "hidden_dim": 16,
        "num_layers": 1,
        "max_length": 32,
        "attention": AttentionConfig(num_heads=2),
        "feed_forward": FeedForwardConfig(24),
        "dropout": 0.0,
    }
    tokenizer = tokenizers["unigram"]
    size = tokenizer.vocabulary_size
    encoder = TransformerConfig(
        "encoder", size, position=PositionConfig("learned"), embedding=EmbeddingConfig(num_segments=2), **small
    )
    decoder = TransformerConfig("decoder", size, position=PositionConfig("rotary"), **small)
    both = TransformerConfig("encoder_decoder", size, position=PositionConfig("relative_bias"), **small)
    made = {
        "preset_classifier": TextClassifier(Backbone.from_config(encoder), tokenizer, labels=["bad", "good"]),
        "preset_embedder": TextEmbedder(Backbone.from_config(encoder), tokenizer),
        "preset_lm": CausalLM(Backbone.from_config(decoder), tokenizer),
        "preset_translation": Seq2SeqLM(Backbone.from_config(both), tokenizer),
    }
    for name, task in made.items():
        task.save_to_preset(folder / name)
        add(name, "preset", task=type(task).__name__)
    bert = Backbone.from_config(
        TransformerConfig(
            "encoder",
            size,
            position=PositionConfig("learned"),
            norm=_bert_norm(),
            embedding=EmbeddingConfig(num_segments=2),
            **small,
        )
    )
    TextEmbedder(bert, tokenizers["wordpiece"]).save_to_huggingface(folder / "sentence")
    add("sentence", "checkpoint", task="TextEmbedder")
    (folder / "llama2c").mkdir()
    header = (8, 16, 2, 2, 2, 20, 12)
    numbers = 20 * 8 + 2 * (2 * 8 + 4 * 64 + 3 * 8 * 16) + 8 + 12 * 4
    (folder / "llama2c" / "model.bin").write_bytes(struct.pack("<7i", *header) + bytes(4 * numbers))
    add("llama2c", "llama2c")
    return seeds


def _bert_norm():
    from zoo.config import NormConfig

    return NormConfig("layer", "post", epsilon=1e-12, embedding=True)


# mutations


def mutate(content: bytes, name: str, rng: random.Random) -> bytes:
    """Returns other content for a file."""
    if name.endswith(".json") and rng.random() < 0.8:
        return mutate_json(content, rng)
    if name.endswith(".safetensors") and rng.random() < 0.6:
        return mutate_safetensors(content, rng)
    if name.endswith(".model") and rng.random() < 0.6:
        return mutate_proto(content, rng)
    return mutate_bytes(content, rng)


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5, 30))):
        place = rng.randrange(len(data)) if data else 0
        kind = rng.randrange(8)
        if kind < 3 and data:
            data[place] = rng.choice((rng.randrange(256), data[place] ^ (1 << rng.randrange(8)), 0, 255))
        elif kind == 3:
            del data[place:]
        elif kind == 4:
            del data[place : place + rng.choice((1, 4, 100))]
        elif kind == 5:
            data[place:place] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 4, 100))))
        elif kind == 6:
            data[place : place + 8] = struct.pack("<q", rng.choice((0, -1, 10**9, 2**40, 2**62)))
        elif data:
            end = place + rng.choice((1, 16, 1000))
            data[place:place] = data[place:end] * rng.choice((1, 3, 50))
    return bytes(data)


def places_in(value, path=()):
    yield path
    if isinstance(value, (dict, list)):
        for key, entry in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield from places_in(entry, (*path, key))


def mutate_json(content: bytes, rng: random.Random) -> bytes:
    value = json.loads(content)
    places = list(places_in(value))
    # the few choices as often as the many tokens
    shallow = [place for place in places if len(place) <= 2] or places
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        *parents, last = rng.choice(rng.choice((shallow, shallow, places)) or [()]) or (None,)
        if last is None:
            return json.dumps(rng.choice(ODD)).encode()
        parent = value
        try:
            for key in parents:
                parent = parent[key]
            old = parent[last]
        except (KeyError, IndexError, TypeError):
            continue
        kind = rng.randrange(9)
        if kind == 0:
            del parent[last]
        elif kind == 1 and isinstance(parent, dict):
            parent[rng.choice(("x", "", "é", "x" * 1000, last + "_"))] = parent.pop(last)
        elif kind == 2 and isinstance(old, (int, float)) and not isinstance(old, bool):
            parent[last] = rng.choice((old + 1, old - 1, -old, old * 1000, old * 10**7, old / 3, str(old), [old]))
        elif kind == 3 and isinstance(old, list):
            parent[last] = rng.choice((old[::-1], old * 3, old[: len(old) // 2], [old], dict(enumerate(old[:3]))))
        elif kind == 4 and isinstance(old, dict):
            parent[last] = rng.choice(([old], list(old), {key: None for key in old}, {**old, "x": 1}))
        elif kind == 5 and isinstance(old, str):
            texts = (old * 2, old[:-1], old.upper(), "x" * 1_000_000, old + "\0", f"../{old}", "\ud800")
            try:  # a map of characters
                data = mutate_bytes(base64.b64decode(old, validate=True), rng) if len(old) > 1000 else b""
            except ValueError:
                data = b""
            parent[last] = base64.b64encode(data).decode() if data else rng.choice(texts)
        else:
            parent[last] = rng.choice(ODD)
    text = json.dumps(value)
    if rng.random() < 0.05:
        deep = rng.choice((20, 500, 100_000))
        text = text[:-1] + ', "deep": ' + "[" * deep + "]" * deep + "}"
    if rng.random() < 0.05:
        text = text.replace(": ", rng.choice((": NaN, ", ": 1e999, ", ": Infinity", ": 9" + "9" * 5000)), 1)
    return text.encode("utf-8", "surrogatepass")


def mutate_safetensors(content: bytes, rng: random.Random) -> bytes:
    size = struct.unpack("<Q", content[:8])[0]
    header = mutate_json(content[8 : 8 + size], rng)
    length = len(header) if rng.random() < 0.9 else rng.choice((0, 2**63, len(header) + 1, 10**9))
    return struct.pack("<Q", length) + header + content[8 + size :]


def mutate_proto(content: bytes, rng: random.Random) -> bytes:
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        kind, index = rng.randrange(9), rng.randrange(len(model.pieces))
        if kind < 3 and model.normalizer_spec.precompiled_charsmap:
            charsmap = bytearray(model.normalizer_spec.precompiled_charsmap)
            if rng.random() < 0.7:
                for _ in range(rng.choice((1, 4, 100, 5000))):
                    charsmap[rng.randrange(len(charsmap))] = rng.randrange(256)
            else:
                charsmap = bytearray(mutate_bytes(bytes(charsmap), rng))
            model.normalizer_spec.precompiled_charsmap = bytes(charsmap)
        elif kind == 3:
            model.pieces[index].piece = rng.choice(("", "x" * 10**6, "\0", "a", "▁", "<unk>", "x" * 3000, "<0x41>"))
        elif kind == 4:
            model.pieces[index].score = rng.choice((float("nan"), float("inf"), -1e38, 3e38, 0.0))
        elif kind == 5:
            model.pieces[index].type = rng.choice((1, 2, 3, 4, 5, 6))
        elif kind == 6:
            spec = model.trainer_spec
            name = rng.choice(("unk_id", "bos_id", "eos_id", "pad_id", "vocab_size", "model_type"))
            setattr(spec, name, rng.choice((1, 2, 3, 4)) if name == "model_type" else rng.choice((-1, 0, 5, 10**9)))
        elif kind == 7:
            spec = rng.choice((model.trainer_spec, model.normalizer_spec))
            flags = [field.name for field in spec.DESCRIPTOR.fields if field.cpp_type == field.CPPTYPE_BOOL]
            name = rng.choice(flags)
            setattr(spec, name, not getattr(spec, name))
        else:
            del model.pieces[index : None if rng.random() < 0.3 else index + 1]
    return model.SerializeToString()


# loading


def load(seed: dict, folder: Path) -> None:
    """Loads what was mutated, and uses it a little."""
    import zoo
    from zoo.huggingface import load_task
    from zoo.presets.llama2c import load_llama2c
    from zoo.tokenizers import Tokenizer, load_huggingface

    kind = seed["kind"]
    if kind == "checkpoint":
        load_task(getattr(zoo, seed["task"]), folder)
    elif kind == "preset":
        getattr(zoo, seed["task"]).from_preset(folder)
    elif kind == "llama2c":
        load_llama2c(folder / "model.bin")
    else:
        tokenizer = load_huggingface(folder) if kind == "huggingface_tokenizer" else Tokenizer.load(folder)
        tokenizer.detokenize(tokenizer.tokenize(TEXTS))
        tokenizer.tokenize_with_offsets(TEXTS[:4])


def prepare(seeds: Path, seed: dict, number: int, base: int, place: Path) -> Path:
    """Writes the mutated folder of one case."""
    rng = random.Random(f"{base}/{number}")
    folder = place / "case"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(seeds / seed["folder"], folder)
    path = folder / seed["file"]
    path.write_bytes(mutate(path.read_bytes(), path.name, rng))
    if seed["kind"] == "preset" and rng.random() < 0.5:
        # as one who changes a file on purpose would: the hashes are right
        import hashlib

        config = folder / "config.json"
        try:
            values = json.loads(config.read_bytes())
            for key in ("weights", "tokenizer"):
                file = folder / values[key]["file"]
                values[key].update(bytes=file.stat().st_size, sha256=hashlib.sha256(file.read_bytes()).hexdigest())
            config.write_text(json.dumps(values))
        except (ValueError, TypeError, KeyError, OSError):
            pass
    return folder


def attempt(seed: dict, folder: Path) -> dict:
    """Loads a case in this process; returns what happened."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    try:
        load(seed, folder)
        outcome, text = "loaded", ""
    except (ValueError, FileNotFoundError) as error:
        text = str(error)
        outcome = "error"
        if not any(part in text for part in (str(folder), seed["file"], Path(seed["file"]).name)) or len(text) > 5000:
            outcome = "unclear"
            text = f"{type(error).__name__}: {text}\n{traceback.format_exc()[-1500:]}"
    except Exception as error:  # whatever else comes out is a fault
        outcome, text = "unclear", f"{type(error).__name__}: {error}\n{traceback.format_exc()[-1500:]}"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {"outcome": outcome, "text": text[:3000], "seconds": time.process_time() - start, "megabytes": grown}


def work(connection, seeds: Path, base: int) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.simplefilter("ignore")
    import keras
    import tensorflow_text

    import zoo.tokenizers

    assert zoo and tensorflow_text  # what importing takes is not the files'
    place = Path(tempfile.mkdtemp(prefix="fuzz."))
    try:
        while (case := connection.recv()) is not None:
            number, seed = case
            folder = prepare(seeds, seed, number, base, place)
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            connection.send({"size": size, "folder": str(folder)})
            result = attempt(seed, folder)
            if result["megabytes"] > MEGABYTES + 3 * size / 2**20:
                result["outcome"] = "memory"
            connection.send(result)
            keras.backend.clear_session()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def run_cases(numbers, base: int, seeds_folder: Path, seeds: list[dict], keep: Path | None = None, workers: int = 1):
    """Yields a result for each case: its number, seed, outcome and text."""
    context = multiprocessing.get_context("fork")
    numbers = list(numbers)
    waiting = collections.deque(numbers)
    running: dict = {}

    def start():
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, seeds_folder, base), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    free = [start() for _ in range(workers)]
    while waiting or running:
        while waiting and free:
            process, connection = free.pop()
            number = waiting.popleft()
            seed = seeds[random.Random(f"{base}/{number}/seed").randrange(len(seeds))]
            connection.send((number, seed))
            running[connection] = [process, number, seed, None, None]
        ready = multiprocessing.connection.wait(list(running), timeout=0.2)
        for connection in list(running):
            process, number, seed, began, info = running[connection]
            result = None
            if connection in ready:
                try:
                    message = connection.recv()
                    if "outcome" not in message:
                        running[connection][3:] = [time.monotonic(), message]
                        continue
                    result = message
                    free.append((process, connection))
                except EOFError:
                    process.join()
                    result = {"outcome": "death", "text": f"exit code {process.exitcode}", "seconds": 0, "megabytes": 0}
            elif began is not None and time.monotonic() - began > SECONDS * 3:
                # three times the limit: other processes take their share of the processors
                process.kill()
                process.join()
                result = {"outcome": "hang", "text": "", "seconds": time.monotonic() - began, "megabytes": 0}
            if result is None:
                continue
            del running[connection]
            if result["outcome"] in ("death", "hang"):
                connection.close()
                free.append(start())
            if keep is not None and result["outcome"] not in ("loaded", "error"):
                shutil.copytree(prepare(seeds_folder, seed, number, base, keep), keep / f"{number}", dirs_exist_ok=True)
            yield {"number": number, **seed, **result}
    for process, connection in free:
        connection.send(None)
        process.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1000, help="number of mutated files")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other mutations")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--only", default="", help="only seeds whose folder or file has this in its name")
    parser.add_argument("--output", type=Path, default=Path("fuzz"), help="folder of the results")
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    arguments.output.mkdir(parents=True, exist_ok=True)
    counts: collections.Counter = collections.Counter()
    slowest = largest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        # the seeds are made in a process of their own, so that the workers can be forked from a clean one
        maker = multiprocessing.get_context("fork").Process(target=_write_seeds, args=(Path(folder),))
        maker.start()
        maker.join()
        seeds = json.loads((Path(folder) / "seeds.json").read_text())
        seeds = [seed for seed in seeds if arguments.only in f"{seed['folder']}/{seed['file']}"]
        numbers = range(arguments.first, arguments.first + arguments.files)
        with open(arguments.output / "results.jsonl", "a") as file:
            for result in run_cases(
                numbers, arguments.seed, Path(folder), seeds, arguments.output, workers=arguments.workers
            ):
                counts[result["outcome"]] += 1
                slowest = max(slowest, result["seconds"])
                largest = max(largest, result["megabytes"])
                counts["slow"] += result["seconds"] > SECONDS
                if result["outcome"] not in ("loaded", "error") or result["seconds"] > SECONDS:
                    print(json.dumps(result)[:600], flush=True)
                file.write(json.dumps(result) + "\n")
                file.flush()
                done = sum(counts[name] for name in counts if name != "slow")
                if done % 250 == 0:
                    print(done, dict(counts), f"slowest {slowest:.1f} s, largest {largest:.0f} MB", flush=True)
    print(dict(counts), f"slowest {slowest:.1f} s, largest {largest:.0f} MB more")
    return int(any(counts[name] for name in ("death", "hang", "memory", "unclear", "slow")))


def _write_seeds(folder: Path) -> None:
    (folder / "seeds.json").write_text(json.dumps(make_seeds(folder)))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
