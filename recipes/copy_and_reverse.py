"""Compares a fixed context with soft attention on copying and reversing sequences.

    python -m recipes.copy_and_reverse

Sequences of random symbols are to be repeated, or repeated from the end. One model has to squeeze the sequence into a
vector (Cho et al. 2014), the other looks at it while it writes (Bahdanau et al. 2015); otherwise they are alike. Both
train on sequences of all lengths up to the longest; the report says which share of new sequences comes out right to
the last symbol, by length.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np

import zoo
from recipes.command.printing import print_result
from recipes.common.config import run_recipe, setting
from recipes.common.errors import ConfigError, errors_of
from recipes.common.final_steps import FinalSteps

PAD, START, END, FIRST_SYMBOL = 0, 1, 2, 3
TASKS = ("copy", "reverse")
MODELS = {
    "fixed context": {"context_input": True, "bridge": "context"},
    "attention": {"attention": "previous_state", "bridge": "dense"},
}


@dataclasses.dataclass(frozen=True)
class CopyConfig:
    """Trains a model with a fixed context and one with attention to copy and to reverse."""

    run_folder: str = setting("runs/copy_and_reverse", "Folder of the report.", offers="paths")
    tasks: list[str] = setting(["copy", "reverse"], "Tasks to train: copy, reverse or both.")
    symbols: int = setting(10, "Number of different symbols.", least=1, most=10**5)
    longest: int = setting(20, "Length of the longest sequence, in symbols.", least=1, most=1000)
    width: int = setting(64, "Width of embeddings and states.", least=1, most=1 << 12)
    examples: int = setting(20000, "Number of training sequences.", least=1, most=10**6)
    epochs: int = setting(8, "Number of passes over the training sequences.", least=1, most=10**6)
    batch_size: int = setting(64, "Number of sequences per batch.", least=1, most=1 << 16)
    learning_rate: float = setting(0.004, "Initial learning rate. It falls to zero along a cosine.", above=0)
    test_sequences: int = setting(
        200, "Number of test sequences per length, which training has not seen.", least=1, most=10**5
    )
    seed: int = setting(0, "Seed of data and weights.", least=0, most=2**32 - 1)


def main(config: CopyConfig) -> dict[str, Any]:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The share of sequences that are right, by task, model and length.
    """
    for task in config.tasks:
        if task not in TASKS:
            raise ConfigError(f"tasks must be of {', '.join(TASKS)}, got {task!r}")
    folder = Path(config.run_folder)
    with errors_of("run_folder"):
        folder.mkdir(parents=True, exist_ok=True)
    lengths = list(range(1, config.longest + 1))
    shares: dict[str, Any] = {}
    steps = FinalSteps(folder)
    for task in config.tasks:
        shares[task] = {}
        for name, options in MODELS.items():
            model = train(config, task, options)
            generator = np.random.default_rng(config.seed + 1)
            tests = [make_batch(generator, task, [n] * config.test_sequences, config) for n in lengths]
            shares[task][name] = {n: exact_share(model, *batch) for n, batch in zip(lengths, tests, strict=True)}
            # after each model, as each takes minutes
            zoo.storage.write_text_atomically(folder / "copy_and_reverse.json", json.dumps(shares, indent=2) + "\n")
            if options.get("attention"):
                picture = f"{task}_attention.png"
                steps.attempt(picture, draw_alignment, model, tests[-1][0], tests[-1][1], folder / picture, task)
    steps.attempt(
        "copy_and_reverse.png",
        zoo.inspect.plot_curves,
        {
            f"{task}, {name}": (lengths, list(row.values()))
            for task, models in shares.items()
            for name, row in models.items()
        },
        folder / "copy_and_reverse.png",
        x_label="length (symbols)",
        y_label="share of sequences without an error",
        title="Copying and reversing",
    )
    shown = [n for n in lengths if n % 5 == 0 or n == lengths[-1]]
    print_result(f"| right to the last symbol, % | {' | '.join(f'{n} symbols' for n in shown)} |")
    print_result("| --- " * (len(shown) + 1) + "|")
    for task, models in shares.items():
        for name, row in models.items():
            print_result(f"| {task}, {name} | {' | '.join(f'{100 * row[n]:.1f}' for n in shown)} |")
    steps.raise_failed()
    return shares


def make_batch(
    generator: np.random.Generator, task: str, lengths: list[int], config: CopyConfig
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Returns inputs, labels and weights of random sequences, as `Seq2SeqLM` takes them.

    Args:
        generator: Source of chance.
        task: "copy" or "reverse".
        lengths: Number of symbols of each.
        config: The configuration.
    """
    rows, width = len(lengths), config.longest + 1
    source, labels = np.full((rows, width), PAD, "int32"), np.full((rows, width), PAD, "int32")
    for row, length in enumerate(lengths):
        symbols = generator.integers(FIRST_SYMBOL, FIRST_SYMBOL + config.symbols, length)
        source[row, :length], source[row, length] = symbols, END
        labels[row, :length], labels[row, length] = symbols if task == "copy" else symbols[::-1], END
    mask = labels != PAD
    given = np.concatenate([np.full((rows, 1), START, "int32"), labels[:, :-1]], axis=1)
    inputs = {
        "encoder_token_ids": source,
        "encoder_padding_mask": mask,
        "decoder_token_ids": np.where(mask, given, PAD).astype("int32"),
        "decoder_padding_mask": mask,
    }
    return inputs, labels, mask.astype("float32")


def train(config: CopyConfig, task: str, options: dict[str, Any]) -> zoo.Seq2SeqLM:
    """Returns a model that was trained on the task.

    Args:
        config: The configuration.
        task: "copy" or "reverse".
        options: What distinguishes the model.
    """
    keras.utils.set_random_seed(config.seed)
    architecture = zoo.RecurrentConfig(
        vocabulary_size=FIRST_SYMBOL + config.symbols,
        embedding_dim=config.width,
        hidden_dim=config.width,
        readout="maxout",
        max_length=config.longest + 1,
        **options,
    )
    model = zoo.Seq2SeqLM(zoo.Backbone.from_config(architecture))
    generator = np.random.default_rng(config.seed)
    data = make_batch(generator, task, list(generator.integers(1, config.longest + 1, config.examples)), config)
    steps = config.epochs * -(-config.examples // config.batch_size)
    rate = keras.optimizers.schedules.CosineDecay(config.learning_rate, steps)
    model.compile(keras.optimizers.Adam(rate, global_clipnorm=1.0), zoo.training.TokenCrossEntropy(), jit_compile=False)
    model.fit(*data[:2], sample_weight=data[2], batch_size=config.batch_size, epochs=config.epochs, verbose=2)
    return model


def exact_share(model: zoo.Seq2SeqLM, inputs: dict[str, np.ndarray], labels: np.ndarray, mask: np.ndarray) -> float:
    """Returns the share of sequences that greedy decoding gets right to the last symbol.

    That is the share where each symbol is the most probable one after the true ones before it: as long as all are
    right, greedy decoding has seen the same.

    Args:
        model: The model.
        inputs: See `make_batch`.
        labels: Likewise.
        mask: Likewise.
    """
    predicted = np.argmax(model.predict(inputs, batch_size=256, verbose=0), axis=-1)
    return float(np.mean(np.all((predicted == labels) | (mask == 0), axis=1)))


def draw_alignment(
    model: zoo.Seq2SeqLM, inputs: dict[str, np.ndarray], labels: np.ndarray, path: Path, task: str
) -> None:
    """Draws where the model looks while it writes the first sequence.

    Args:
        model: A model with attention.
        inputs: See `make_batch`.
        labels: Likewise.
        path: PNG file to write.
        task: Heading.
    """
    one = {name: value[:1] for name, value in inputs.items()}
    weights = np.asarray(model.backbone.attention_weights(one)["cross"][0])[0, 0]

    def names(ids: np.ndarray) -> list[str]:
        return ["end" if number == END else chr(ord("a") + number - FIRST_SYMBOL) for number in ids]

    zoo.inspect.plot_attention(weights, names(labels[0]), names(one["encoder_token_ids"][0]), path, title=task)


if __name__ == "__main__":
    run_recipe(main, CopyConfig, "copy_and_reverse")
