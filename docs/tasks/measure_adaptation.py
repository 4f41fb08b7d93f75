"""Low-rank updates and 8-bit weights on film reviews: what trains, what it takes on the disk, what it costs in loss.

    ZOO_DATA=path/to/data python docs/tasks/measure_adaptation.py

Trains a small masked language model on the sentences of the Stanford Sentiment Treebank, then three classifiers from
it: all weights, low-rank updates, the head alone. Prints a table; the classifier with all weights is also quantized.
"""

import os
import tempfile
import warnings
from pathlib import Path

import keras
import numpy as np

import zoo
from zoo.tokenizers import SentencePieceTokenizer

MASK = "<mask>"


def read(path: Path) -> tuple[list[str], list[int]]:
    """Returns the texts and labels of a file with a text, a tab and a label in each line."""
    rows = [line.rsplit("\t", 1) for line in path.read_text(encoding="utf-8").splitlines() if line]
    return [text for text, _ in rows], [int(label) for _, label in rows]


def size(task: zoo.Task) -> int:
    """Returns the size of the saved weights in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        task.save_to_preset(Path(folder) / "model")
        return (Path(folder) / "model" / "model.weights.h5").stat().st_size


def measure(name: str, task: zoo.Task, texts: list[str], labels: list[int]) -> None:
    """Prints a row of the table."""
    probabilities = task.predict(texts, batch_size=128)[np.arange(len(texts)), labels]
    accuracy = (probabilities > 0.5).mean()
    # quantized weights do not train; weights with updates are saved as one
    trainable = 0 if task.adaptation.mode else sum(w.numpy().size for w in task.trainable_variables)
    print(
        f"| {name} | {trainable:,} | {size(task) / 1e6:.2f} MB | {-np.log(probabilities).mean():.4f} | "
        f"{100 * accuracy:.1f} % |",
        flush=True,
    )


def main() -> None:
    """Runs all and prints the table."""
    keras.utils.set_random_seed(0)
    data = Path(os.environ["ZOO_DATA"]) / "sst2" / "sentences"
    texts, labels = read(data / "train.tsv")
    development = read(data / "dev.tsv")
    proto = SentencePieceTokenizer.train(texts, vocabulary_size=4000, special_tokens=[MASK]).proto
    tokenizer = SentencePieceTokenizer(proto, mask_token=MASK)
    config = zoo.TransformerConfig(
        "encoder",
        vocabulary_size=4000,
        hidden_dim=128,
        num_layers=2,
        max_length=64,
        attention=zoo.AttentionConfig(num_heads=4),
        position=zoo.PositionConfig("rotary"),
        feed_forward=zoo.FeedForwardConfig(256, "gelu"),
        norm=zoo.NormConfig(placement="pre"),
        dropout=0.1,
        initializer_range=0.02,
    )
    pretrained = zoo.MaskedLM(zoo.Backbone.from_config(config), tokenizer, truncate=True)
    pretrained.compile(keras.optimizers.AdamW(2e-3, weight_decay=0.01, global_clipnorm=1.0))
    losses = pretrained.fit(texts, batch_size=64, epochs=8, verbose=0).history["loss"]
    print(f"Masked language model: loss {losses[0]:.2f} in the first epoch, {losses[-1]:.2f} in the last.")
    print("| trained | trainable parameters | size on disk | loss | accuracy |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # that the head is new is the point
        warnings.simplefilter("ignore")
        pretrained.save_to_preset(Path(folder) / "model")
        for name, rank, rate in (("all weights", None, 5e-4), ("rank 8", 8, 2e-3), ("head alone", 0, 2e-3)):
            keras.utils.set_random_seed(1)
            task = zoo.TextClassifier.from_preset(Path(folder) / "model", labels=2, pooling="mean")
            if rank:
                task.enable_lora(rank, targets=("query", "value", "up", "down"))
            elif rank == 0:
                task.backbone.trainable = False
            task.compile(keras.optimizers.AdamW(rate, weight_decay=0.01, global_clipnorm=1.0))
            task.fit(texts, labels, batch_size=64, epochs=3, verbose=0)
            measure(name, task, *development)
            if rank is None:
                best = task
        best.quantize("int8")
        measure("all weights, then int8", best, *development)


if __name__ == "__main__":
    main()
