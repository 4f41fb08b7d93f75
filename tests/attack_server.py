"""Attacks a server, looks whether it and other clients fare well, and prints a Markdown table. It is run by hand:

    python tests/attack_server.py --requests 100000

It makes a small decoder and a classifier with random weights, serves them by `python -m recipes.serve`, and attacks the
server in each way of `tests/helpers/server_attacks.py`, one after the other. All the while, two other clients ask
for a text and a classification again and again. Each answer is compared with that of the same request alone. A row of
the table says what was done, how often the server gave which answer, what was wrong (0 is expected), how the others
fared, and memory and open files of all processes before and after. It needs the extra `serve` and takes about 10
minutes on two idle cores, and the requests at the end. It fails where anything was wrong.
"""

import argparse
import functools
import sys
import tempfile
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent / "helpers"))

import keras
import tqdm
from attacked_server import KEY, Others, Question, Server
from server_attacks import ATTACKS, COMPLETIONS, PREDICT, WITH_KEY, many_requests

import zoo
from recipes.benchmark.serving_models import make_texts

WARMING = 2000
OPTIONS = ("--limits.seconds", "30", "--limits.read_seconds", "5", "--limits.write_seconds", "5")


def make_models(folder):
    keras.utils.set_random_seed(0)
    texts = make_texts(2000, 1)
    pieces = zoo.tokenizers.WordPieceTokenizer.train(texts, 1000, lowercase=True)
    encoder = zoo.preset_config("encoder_tiny", vocabulary_size=pieces.vocabulary_size)
    labels = ["business", "science", "sport", "world"]
    zoo.TextClassifier(zoo.Backbone.from_config(encoder), pieces, labels=labels).export(folder / "classify" / "1")
    tokenizer = zoo.tokenizers.ByteLevelBPETokenizer.train(texts, 1000, end_token="<|endoftext|>")
    decoder = zoo.preset_config("llama_tiny", vocabulary_size=tokenizer.vocabulary_size)
    zoo.CausalLM(zoo.Backbone.from_config(decoder), tokenizer).export(folder / "complete" / "1", max_new_tokens=64)


def make_questions(server):
    """Requests of several kinds with their answers, each asked alone."""
    texts = make_texts(32, 2)

    def sampled(number, **more):
        body = {"model": "complete", "prompt": texts[number], "temperature": 1.0, "seed": number}
        return Question(server, COMPLETIONS, {**body, "max_tokens": 24, **more})

    found = types.SimpleNamespace(texts=texts)
    numbers = tqdm.tqdm(range(len(texts)), "asked alone", leave=False)
    found.sampled = [sampled(number, n=1 + number % 3, stream=number % 2 == 0) for number in numbers]
    found.streams = [sampled(number, max_tokens=60, stream=True) for number in range(16)]
    found.short = [sampled(number, max_tokens=4) for number in range(16)]
    found.predictions = [Question(server, PREDICT, {"instances": [text]}) for text in texts]
    found.others = {"text": found.short[0], "classification": found.predictions[0]}
    return found


def counts_of(statuses):
    return ", ".join(
        f"{status}: {count:,}" for status, count in sorted(statuses.items(), key=lambda item: str(item[0]))
    )


def row_of(server, questions, attack, description):
    """A row of the table, and what was wrong."""
    before = server.size()
    with Others(server, questions.others) as others:
        statuses, faults = attack(server, questions)
        after = server.size()
    faults = faults + others.faults
    if attack.__name__ != "terminated":
        allowed = {200, 503, 504} if attack.__name__ in MAY_REFUSE else {200}
        for name, found in others.statuses.items():
            faults += [f"{name}: {count} times {status}" for status, count in found.items() if status not in allowed]
    told = [
        f"{name} {counts_of(others.statuses[name])}; slowest {others.slowest[name]:.1f} s" for name in others.statuses
    ]
    sizes = [f"{now:,.0f}" for pair in zip(before, after, strict=True) for now in pair]
    cells = [description, counts_of(statuses), str(len(faults)), "; ".join(told), *sizes]
    return "| " + " | ".join(cells) + " |", faults


# where others may be refused: their worker is gone or stuck, or all connections are taken
MAY_REFUSE = ("worker_killed", "worker_out_of_memory", "worker_stopped", "full_disk", "idle_connections")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--requests", type=int, default=100_000, help="Number of requests of the load without an attack."
    )
    parser.add_argument("--attacks", nargs="*", help="Names of attacks; all if not given.", metavar="NAME")
    parser.add_argument(
        "--models", type=Path, help="Folder for the models, made if missing; a temporary one if not given."
    )
    given = parser.parse_args()
    known = [attack.__name__ for attack in (*ATTACKS, *WITH_KEY, many_requests)]
    unknown = set(given.attacks or ()) - set(known)
    if unknown:
        parser.error(f"--attacks must be of {', '.join(known)}, got {', '.join(sorted(unknown))}")
    chosen = given.attacks or known
    rows, wrong = [], []
    with tempfile.TemporaryDirectory() as place:
        folder = given.models or Path(place, "models")
        if not folder.is_dir():
            make_models(folder)
        last = functools.update_wrapper(functools.partial(many_requests, count=given.requests), many_requests)
        with tqdm.tqdm(total=len(chosen), unit="attack") as bar:
            for attacks, log, key in (((*ATTACKS, last), Path(place, "log"), None), (WITH_KEY, Path("/dev/full"), KEY)):
                attacks = [attack for attack in attacks if attack.__name__ in chosen]
                if not attacks:
                    continue
                server = Server(folder, log, *OPTIONS, key=key)
                try:
                    questions = make_questions(server)
                    # caches of compiled shapes and of memory are full before anything is measured
                    many_requests(server, questions, WARMING)
                    for attack in attacks:
                        bar.set_description(attack.__name__)
                        description = attack.__doc__.partition("\n")[0]
                        if attack is last:
                            description = f"{given.requests:,} {description[0].lower()}{description[1:]}"
                        row, faults = row_of(server, questions, attack, description)
                        rows.append(row)
                        wrong += [f"{attack.__name__}: {fault}" for fault in faults]
                        bar.write(row, sys.stderr)
                        bar.update()
                finally:
                    server.stop()
    print("\n| attack | answers | wrong | meanwhile, others | MiB before | after | open files before | after |")
    print("| --- |" + " --- |" * 7)
    print("\n".join(rows))
    for fault in wrong:
        print(fault[:1000], file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
