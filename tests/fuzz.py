"""Mutates checkpoints, tokenizers and presets, and loads each: no death, no hang, little memory, a clear error.

    python tests/fuzz.py --files 10000 --seed 0

Each file is loaded in one of a few worker processes, which are watched from outside: a worker that dies, or needs more
than 10 seconds (of processor time; where it waits, five minutes by the clock), is counted and replaced. The mutation of
file `n` follows from `--seed` and `n` alone: `--cases n` does one again, `--cases n,m` two. What was found is written
as lines of JSON (`--output`), with the mutated files of the cases that failed.

Processor time and memory are those of the worker and of the processes that it starts.

An error must name the file and what is wrong in it. One that does not, or is of a kind that no reader should raise,
counts as "unclear". Of the others the last line says how many name the very key (tensor, field, line) that was changed,
how many a position in the file or a tensor that does not fit, how many another key of it, and how many the file alone,
whose size or checksum is wrong or whose bytes are of no known form.
"""

import argparse
import collections
import contextlib
import gc
import hashlib
import json
import multiprocessing
import multiprocessing.connection
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from fuzz_mutations import mutate  # noqa: E402
from fuzz_places import place_of  # noqa: E402
from fuzz_seeds import make_seeds  # noqa: E402

SECONDS, MEGABYTES, WAITING = 10, 500, 300
PLACES = ("key", "position", "other", "file")
TEXTS = [
    *("a small dog", "alpha beta gamma", "", "naïve  café ﬁ ｆｕｌｌ", "日本語 Ω≈ç √∫"),
    "\u00ad\u0300 e\u0301 x\u2028y",
    "".join(map(chr, range(0x20, 0x3000, 7))),
]


def load(seed: dict, folder: Path) -> None:
    """Loads what was mutated, and uses it a little."""
    import zoo
    from zoo.huggingface import load_task
    from zoo.presets.llama2c import load_llama2c
    from zoo.tokenizers import Tokenizer, load_huggingface

    kind = seed["kind"]
    if kind == "checkpoint":
        load_task(getattr(zoo, seed["task"]), folder)
    elif kind == "adapter":
        load_task(getattr(zoo, seed["task"]), seed["model"]).load_adapter(folder)
    elif kind in ("preset", "from_preset"):
        getattr(zoo, seed["task"]).from_preset(folder)
    elif kind == "gguf":
        getattr(zoo, seed["task"]).from_preset(folder / seed["file"])
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
    if seed["kind"] in ("preset", "tokenizer") and rng.random() < 0.7:
        # as one who changes a file on purpose would: the hashes are right
        for described in (*folder.glob("tokenizer"), folder):
            try:
                _correct_hashes(described)
            except (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError):
                pass
    return folder


def _correct_hashes(folder: Path) -> None:
    """Makes `tokenizer.json` or `config.json` say what the files that it names are now."""
    is_tokenizer = (folder / "tokenizer.json").exists()
    config = folder / ("tokenizer.json" if is_tokenizer else "config.json")
    values = json.loads(config.read_bytes())
    for entry in values["files"].values() if is_tokenizer else (values["weights"], values["tokenizer"]):
        content = (folder / entry["file"]).read_bytes()
        entry.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    config.write_text(json.dumps(values))


def attempt(seed: dict, folder: Path, original: bytes, then: Callable[[], None] = lambda: None) -> dict:
    """Loads a case in this process, calls `then`, and returns what happened."""
    before = _megabytes(reset=True)
    start = _seconds()
    text, trace, is_error = "", "", True
    outcome, place = "loaded", ""
    with _Children() as children:
        try:
            load(seed, folder)
        except Exception as error:
            text, trace = str(error), f"{type(error).__name__}: {traceback.format_exc()[-2500:]}"
            is_error = isinstance(error, (ValueError, FileNotFoundError))  # any other kind is a fault
            outcome = "error"
    seconds = _seconds() - start
    grown = _megabytes() - before + children.megabytes
    then()
    if outcome == "error":
        place = place_of(text, seed, original, folder) if is_error and len(text) <= 5000 else ""
        if not place:
            outcome = "unclear"
    result = {"outcome": outcome, "place": place, "seconds": round(seconds, 3), "megabytes": round(grown)}
    return {**result, "text": text[:1000], "trace": trace if outcome == "unclear" else ""}


def is_within_memory(result: dict, folder: Path) -> bool:
    """Whether a case took no more memory than three times its files and 500 MB."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return result["megabytes"] <= MEGABYTES + 3 * size / 2**20


def _seconds() -> float:
    """Processor time of this process and of those that it has started and that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(entry.ru_utime + entry.ru_stime for entry in usage)


class _Children:
    """Watches the processes that this one starts from now on: `megabytes` is the most that one of them has held.

    What the system counts for children that have ended (`ru_maxrss`) includes this process, which they begin as.
    """

    def __init__(self):
        self.megabytes = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_Children":
        self._program = _program(os.getpid())
        # a server of another test, for example, is none of its business
        self._earlier = set(_children_of(os.getpid()))
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(0.01):
            for child in set(_children_of(os.getpid())) - self._earlier:
                if _program(child) != self._program:  # it has begun as itself
                    with contextlib.suppress(OSError, TypeError):
                        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{child}/status").read_text())
                        self.megabytes = max(self.megabytes, int(found[1]) / 1024)


def _program(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def _children_of(process: int) -> list[int]:
    """Processes that a process has started, where the system (Linux) tells."""
    found: list[int] = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(number) for number in path.read_text().split()]
    return found


def _megabytes(reset: bool = False) -> float:
    """Most memory of this process, since the last reset where the system (Linux) can do that."""
    if reset and os.access("/proc/self/clear_refs", os.W_OK):
        Path("/proc/self/clear_refs").write_text("5")
    if os.path.exists("/proc/self/status"):
        return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def work(connection, seeds: Path, base: int) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.simplefilter("ignore")
    import keras
    import tensorflow_text

    import zoo.tokenizers

    assert zoo and tensorflow_text  # what importing takes is not the files'
    gc.freeze()  # else each collection looks at all of TensorFlow
    place = Path(tempfile.mkdtemp(prefix="fuzz."))
    try:
        while (case := connection.recv()) is not None:
            number, seed = case
            folder = prepare(seeds, seed, number, base, place)
            connection.send({"folder": str(folder)})
            original = (seeds / seed["folder"] / seed["file"]).read_bytes()
            # where a million keys have changed, it takes seconds to look for them in the error
            result = attempt(seed, folder, original, lambda: connection.send({"folder": None}))
            if not is_within_memory(result, folder):
                result["outcome"] = "memory"
            connection.send(result)
            keras.backend.clear_session()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _seconds_of(process: int) -> float:
    """Processor time of a process and of those that it has started; the clock's where the system does not tell."""
    ticks = 0
    for one in (process, *_children_of(process)):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            if one == process:
                return time.monotonic()
        else:
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _kill(process) -> None:
    children = _children_of(process.pid)
    process.kill()
    process.join()
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


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
            running[connection] = [process, number, seed, None]
        ready = multiprocessing.connection.wait(list(running), timeout=0.2)
        for connection in list(running):
            process, number, seed, began = running[connection]
            result = None
            if connection in ready:
                try:
                    message = connection.recv()
                    if "outcome" not in message:
                        now = _seconds_of(process.pid), time.monotonic()
                        running[connection][3] = now if message["folder"] else None
                        continue
                    result = message
                    free.append((process, connection))
                except EOFError:
                    process.join()
                    result = {"outcome": "death", "text": f"exit code {process.exitcode}", "seconds": 0, "megabytes": 0}
            elif began is not None:
                # by the processor's time: other processes take their share of it
                seconds, waited = _seconds_of(process.pid) - began[0], time.monotonic() - began[1]
                if seconds > SECONDS or waited > WAITING:
                    _kill(process)
                    result = {"outcome": "hang", "text": f"{waited:.0f} s", "seconds": seconds, "megabytes": 0}
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
    parser.add_argument("--cases", default="", help="numbers of the files in place of --first and --files: 3,17,29")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other mutations")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--only", default="", help="only seeds of such folders or files: bert,lfm2")
    parser.add_argument("--output", type=Path, default=Path("fuzz"), help="folder of the results")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was stopped")
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    arguments.output.mkdir(parents=True, exist_ok=True)
    tally, path = Tally(), arguments.output / "results.jsonl"
    if arguments.resume and path.exists():
        tally.resume(path)
    numbers = range(arguments.first, arguments.first + arguments.files)
    if arguments.cases:
        numbers = [int(number) for number in arguments.cases.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        # the seeds are made in a process of their own, so that the workers can be forked from a clean one
        maker = multiprocessing.get_context("fork").Process(target=_write_seeds, args=(Path(folder),))
        maker.start()
        maker.join()
        seeds = json.loads((Path(folder) / "seeds.json").read_text())
        parts = arguments.only.split(",")
        seeds = [seed for seed in seeds if any(part in f"{seed['folder']}/{seed['file']}" for part in parts)]
        left = [number for number in numbers if number not in tally.numbers]
        with open(path, "a" if arguments.resume else "w") as file:
            for result in run_cases(left, arguments.seed, Path(folder), seeds, arguments.output, arguments.workers):
                tally.add(result)
                if result["outcome"] not in ("loaded", "error") or result["seconds"] > SECONDS:
                    shown = ("number", "folder", "file", "outcome", "seconds", "megabytes", "text", "trace")
                    print(*(str(result.get(name, ""))[-700:] for name in shown), "", sep="\n  ", flush=True)
                file.write(json.dumps(result) + "\n")
                file.flush()
                if len(tally.numbers) % 250 == 0:
                    print(tally, flush=True)
    print(tally)
    return int(tally.has_failed())


class Tally:
    """Counts of what happened."""

    def __init__(self):
        self.numbers: set[int] = set()
        self.counts: collections.Counter = collections.Counter()
        self.places: collections.Counter = collections.Counter()
        self.slowest = self.largest = 0.0

    def add(self, result: dict) -> None:
        self.numbers.add(result["number"])
        self.counts[result["outcome"]] += 1
        self.counts["slow"] += result["seconds"] > SECONDS
        if result["outcome"] == "error":
            self.places[result["place"]] += 1
        self.slowest = max(self.slowest, result["seconds"])
        self.largest = max(self.largest, result["megabytes"])

    def resume(self, path: Path) -> None:
        """Adds the results of a run that was stopped; a line that it did not finish is removed."""
        lines = path.read_text().splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            path.write_text("".join(lines[:-1]))
            del lines[-1]
        for line in lines:
            self.add(json.loads(line))

    def has_failed(self) -> bool:
        return any(self.counts[name] for name in ("death", "hang", "memory", "unclear", "slow"))

    def __str__(self) -> str:
        errors = max(self.counts["error"], 1)
        places = ", ".join(f"{name} {self.places[name]} ({self.places[name] / errors:.1%})" for name in PLACES)
        return (
            f"{len(self.numbers)} {dict(self.counts)}; of the errors name: {places}; "
            f"slowest {self.slowest:.1f} s, largest {self.largest:.0f} MB"
        )


def _write_seeds(folder: Path) -> None:
    (folder / "seeds.json").write_text(json.dumps(make_seeds(folder)))


if __name__ == "__main__":
    sys.exit(main())
