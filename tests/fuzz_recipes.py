"""Mutates configurations and data files of the recipes and reads each: a value, or an error of one short line.

    python tests/fuzz_recipes.py --configurations 3000 --files 1700 --seed 0

Case `n` follows from `--seed` and `n` alone: `--first n --configurations 1 --files 0` does one again. Nothing is
trained. What is not a clean error is printed with its number; the exit status is 1 if there is any.
"""

import argparse
import collections
import gzip
import importlib
import json
import random
import re
import tempfile
import time
import traceback
from pathlib import Path

import keras

from recipes.common.config import parse
from recipes.common.data import (
    chat_files,
    labelled_text,
    parallel_text,
    plain_text,
    questions,
    spanned_text,
    summaries,
    tagged_words,
)
from recipes.common.data.data_sets import Source, open_part
from recipes.common.errors import RecipeError
from recipes.common.saved_models import make_sampler
from recipes.common.training.fitting import prepare
from zoo.tokenizers.chat import CHAT_FORMATS

ROOT = Path(__file__).resolve().parents[1]
SECONDS, LONGEST_MESSAGE = 10, 1500
RECIPES = (
    *("translate", "summarize", "language_model", "pretrain_masked_lm", "classify", "tag", "embed", "rerank"),
    *("finetune", "answer"),
)

# what a value becomes, as YAML
ODD = [
    *("", "~", "null", "true", "no", "0", "-1", "1", "5", "999999999", "1e30", "-0.0", ".nan", ".inf", "1e999"),
    *("0x1F", "1:30", "2001-01-01", "2001-99-99", "5e-4", "1_000", "'", '"', "[", "{", "[]", "{}", "[1, x]", "{a: 1}"),
    *("&a [*a]", "*a", "!!int x", "!!timestamp x", "!!binary x", "!!python/name:os.system", "|", ">", "- x", "? x"),
    *("%x", "@", "`", '"\\0"', '"\\ud800"', "\0", "\x01", "\ufeff", "é", "x" * 5000, "9" * 5000),
    *("[" * 3000, "{a: " * 3000),
    *("{name: 5}", "{name: beam, num_beams: 0}", "{num_layers: x}", "{num_layers: -1}", "{hidden_dim: 0}"),
    *("{attention: 5}", "{attention: {num_heads: 0}}", "{dropout: 2}", "{vocabulary_size: 7}", "{1: 2}"),
    *("{feed_forward: [1]}", "{max_length: 999999999}", "{num_layers: 10000000}", "{hidden_dim: 1000000000}"),
    *("{hidden_dim: 1000000, num_layers: 900}", "{name: beam, num_beams: 1000000000}"),
]
PIECES = [
    *(
        b"\0",
        b"\xff",
        b"\xc3",
        b'"',
        b'""',
        b"\\",
        b"\t",
        b"\n",
        b"\r",
        b"\r\n",
        b",",
        b";",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
    ),
    *(b" ", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"null", b"NaN", b"1e999", b"-", b"1-2", b"#", b"[" * 2000),
    b"x" * 200_000,
]


class UnclearError(Exception):
    """An error that does not say in a line what to change."""


def config_class_of(recipe: str) -> type:
    """The class of the configuration of a recipe."""
    module = importlib.import_module(f"recipes.{recipe}")
    return next(kind for name, kind in vars(module).items() if name.endswith("Config") and hasattr(kind, "run_folder"))


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Bytes, pieces or lines of a file changed, left out, doubled or moved."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(content) + 1)
        lines = content.split(b"\n")
        row = rng.randrange(len(lines))
        kind = rng.randrange(7)
        if kind == 0:
            content = content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
        elif kind == 1:
            content = content[:at] + rng.choice(PIECES) + content[at:]
        elif kind == 2:
            content = content[:at] + content[at + rng.randint(1, 20) :]
        elif kind == 3:
            content = b"\n".join([*lines[:row], *lines[row + 1 :]])
        elif kind == 4:
            content = b"\n".join([*lines[:row], lines[row], *lines[row:]])
        elif kind == 5:
            rng.shuffle(lines)
            content = b"\n".join(lines)
        else:
            content = content[:at]
    return content


def configuration(rng: random.Random, folder: Path) -> None:
    """A mutated configuration of a recipe, from a file or the command line, up to where the data would be read."""
    recipe = rng.choice(RECIPES)
    words = []
    if rng.random() < 0.6:
        files = sorted((ROOT / "recipes" / "configs").glob("*.yaml"))
        text = rng.choice(files).read_text(encoding="utf-8")
        if rng.random() < 0.9:
            # the recipe of the file, as its comment says
            recipe = re.search(r"python -m recipes\.(\w+)", text)[1]
        if rng.random() < 0.7:
            lines = text.splitlines()
            for _ in range(rng.randint(1, 2)):
                row = rng.randrange(len(lines))
                key, colon, _ = lines[row].partition(":")
                if colon:
                    lines[row] = f"{_misspelt(key, rng)}: {rng.choice(ODD)}"
            content = "\n".join(lines).encode("utf-8", "surrogatepass")
        else:
            content = mutate(text.encode(), rng)
        (folder / "c.yaml").write_bytes(content)
        words += ["--config", str(folder / "c.yaml")]
    kind = config_class_of(recipe)
    keys = _keys(kind)
    for _ in range(rng.randint(0, 2) if words else rng.randint(1, 3)):
        words += [f"--{_misspelt(rng.choice(keys), rng)}", *rng.choices(ODD, k=rng.choice((1, 1, 1, 0, 2)))]
    config = parse(kind, words)
    if hasattr(config, "sampler"):
        make_sampler(config.sampler)
    try:
        prepare(config)
    finally:
        keras.config.set_dtype_policy("float32")


def _keys(kind: type, prefix: str = "") -> list[str]:
    keys = []
    for name, field in kind.__dataclass_fields__.items():
        group = field.default if hasattr(field.default, "__dataclass_fields__") else None
        keys += [prefix + name] if group is None else _keys(type(group), f"{prefix}{name}.")
    return keys


def _misspelt(key: str, rng: random.Random) -> str:
    if rng.random() < 0.95:
        return key
    at = rng.randrange(len(key) + 1)
    return key[:at] + rng.choice(["x", "_", ".", "", "-", "é"]) + key[at + rng.randint(0, 1) :]


def _examples(records: list[dict]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


NAMES = [("a small dog", "pos"), ("two cats, one dog", "neg"), ('she said "no"', "pos"), ("line\nbreak", "neg")] * 3
SPAN = {"start": 0, "end": 1, "label": "X"}
ANSWER = {"text": "a", "answer_start": 0}
ASKED = [{"id": "q", "question": "what?", "answers": [ANSWER]}, {"question": "who?", "is_impossible": True}]
TALK = [{"role": "user", "content": "2 plus 3"}, {"role": "assistant", "content": "5"}]
FILES = {
    "a.csv": "".join('"{}",{}\n'.format(text.replace('"', '""'), label) for text, label in NAMES).encode(),
    "a.tsv": "".join(f"{' '.join(text.split())}\t{label}\n" for text, label in NAMES).encode(),
    "a.jsonl": _examples(
        [{"text": text, "label": label, "source": text, "target": [label], "messages": TALK} for text, label in NAMES]
    ),
    "b.jsonl": _examples(
        [
            *(
                {"text": text, "spans": [SPAN], "question": "what?", "context": "ab", "answers": [ANSWER]}
                for text, _ in NAMES
            ),
            {"text": "x", "spans": [], "question": "who?", "context": "x", "answers": {"text": [], "answer_start": []}},
        ]
    ),
    "squad.json": json.dumps({"data": [{"paragraphs": [{"context": "a b", "qas": ASKED}]}]}, indent=1).encode(),
    "a.conll": b"Al\tB-PER\ncame\tO\n\nyes\tO\nno\tO\n\n" * 3,
    "a.conllu": b"# text = don't\n1-2\tdon't\t_\t_\n1\tdo\tdo\tAUX\n2\tn't\tnot\tPART\n\n" * 3,
    "a.txt": "One two\tthree.\n\nFour caf\u00e9.\nFive\tsix\n".encode() * 3,
}


def data_file(rng: random.Random, folder: Path) -> None:
    """A mutated data file, perhaps compressed, through one of the readers."""
    name = rng.choice(list(FILES))
    contents = [FILES[name]] * 2
    path = folder / name
    if rng.random() < 0.3:
        path = folder / f"{name}.gz"
        contents = [gzip.compress(content, mtime=0) for content in contents]
        if rng.random() < 0.5:
            contents = [gzip.compress(mutate(FILES[name], rng), mtime=0) for _ in contents]
    path.write_bytes(mutate(contents[0], rng) if rng.random() < 0.9 else contents[0])
    other = folder / f"b.{name}"
    other.write_bytes(contents[1])
    header, number = rng.choice((None, True, False)), rng.choice((1, 1, 1, 2, 3, 9))

    def labelled(files, bad):
        columns = rng.choice((["1"], ["2"], ["1", "2"], ["text"], ["9" * 9], ["x"], ["1", "1", "1"]))
        label = rng.choice(("2", "1", "label", "7"))
        options = {"label_separator": rng.choice((None, ",", ";")), "numeric": rng.random() < 0.3}
        return labelled_text.read_examples(
            files, bad, text_columns=columns, label_column=label, header=header, **options
        )

    def pairs(files, bad):
        files = [*files, str(other)] if rng.random() < 0.3 else files
        keys = rng.choice((("text", "label"), ("source", "target"), ("1", "2"), ("x",)))
        return parallel_text.read_pairs(files, bad, columns=rng.choice((2, 2, 3)), keys=keys, header=header)

    def tagged(files, bad):
        return tagged_words.read_tagged(files, bad, word_column=number, tag_column=rng.choice((2, 1, 4)))

    def conversations(files, bad):
        chat_format = rng.choice(list(CHAT_FORMATS.values()))
        options = rng.choice(({}, {"file_format": "messages", "key": "text"}, {"file_format": "alpaca"}))
        return chat_files.read_conversations(files, bad, chat_format=chat_format, **options)

    def texts(files, bad):
        return plain_text.read_plain(files, bad, unit=rng.choice(("file", "paragraph", "line")))

    def summed(files, bad):
        keys = rng.choice((("source", "target"), ("text", "label"), ("1", "2"), ("x",)))
        return summaries.read_summaries(files, bad, keys=keys)

    def asked(files, bad):
        return questions.read_questions(files, bad)

    def spanned(files, bad):
        return spanned_text.read_spanned(files, bad, rng.choice(("punctuation", "space", "kinds")))

    readers = (labelled, pairs, tagged, conversations, texts, summed)
    read = rng.choice((asked, spanned) if name in ("b.jsonl", "squad.json") else readers)
    open_part([str(path)], "train", Source({}, read), rng.choice(("raise", "skip")))


def attempt(kind, seed: int, number: int) -> str:
    """What became of a case: "read" or "refused".

    Raises:
        UnclearError: It took too long, or the error is none of one short line.
    """
    rng = random.Random(f"{kind.__name__} {seed} {number}")
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        try:
            kind(rng, Path(folder))
            result = "read"
        except RecipeError as error:
            result, message = "refused", str(error)
            if "\n" in message or not message or len(message) > LONGEST_MESSAGE:
                raise UnclearError(f"{kind.__name__} {number}: {len(message)} characters: {message[:300]!r}") from error
        except Exception as error:
            where = traceback.format_exc(limit=-3)
            raise UnclearError(
                f"{kind.__name__} {number}: {type(error).__name__}: {str(error)[:300]}\n{where}"
            ) from error
    seconds = time.process_time() - started
    if seconds > SECONDS:
        raise UnclearError(f"{kind.__name__} {number}: {seconds:.0f} s")
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--configurations", type=int, default=3000)
    parser.add_argument("--files", type=int, default=1700)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts, unclear = collections.Counter(), 0
    for kind, count in ((configuration, options.configurations), (data_file, options.files)):
        for number in range(options.first, options.first + count):
            try:
                counts[f"{kind.__name__} {attempt(kind, options.seed, number)}"] += 1
            except UnclearError as error:
                unclear += 1
                print(error, flush=True)
    print(f"{dict(counts)}, not clear: {unclear}")
    return int(unclear > 0)


if __name__ == "__main__":
    raise SystemExit(main())
