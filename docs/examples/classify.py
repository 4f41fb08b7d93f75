"""Trains a text classifier on two tables, says what it gets wrong, and exports it.

    python docs/examples/classify.py train.tsv validation.tsv
    python docs/examples/classify.py train.tsv validation.tsv --model sentence-transformers-folder --epochs 2

A row of a table is a text, a tab and a label.
"""

import argparse
import csv
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import zoo
from zoo.tokenizers import WordPieceTokenizer


def read(path):
    """Returns the texts and the labels of a table."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    texts, labels = zip(*rows, strict=True)
    return list(texts), list(labels)


def small_classifier(texts, labels):
    """An encoder of a few million weights with random values, and a tokenizer of its own."""
    tokenizer = WordPieceTokenizer.train(texts, vocabulary_size=8000, lowercase=True)
    return zoo.TextClassifier.from_preset(
        "encoder_tiny",
        load_weights=False,
        tokenizer=tokenizer,
        vocabulary_size=tokenizer.vocabulary_size,
        # every choice of the architecture can be replaced by name
        num_layers=2,
        hidden_dim=128,
        max_length=128,
        dropout=0.3,
        truncate=True,  # a longer text is cut; without this it is an error that names its row
        labels=labels,
        pooling="mean",
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", help="table to learn from")
    parser.add_argument("validation", help="table to choose the best epoch with")
    parser.add_argument("--model", help="a pretrained encoder: folder, preset or hf://owner/name; default: none")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("classifier"), help="where the model is saved")
    arguments = parser.parse_args()

    keras.utils.set_random_seed(0)
    texts, labels = read(arguments.train)
    validation = read(arguments.validation)
    names = sorted(set(labels))
    if arguments.model:
        # the encoder and its tokenizer come from the checkpoint, the head is new
        model = zoo.TextClassifier.from_preset(arguments.model, labels=names, truncate=True)
    else:
        model = small_classifier(texts, names)
    model.summary()

    # The task takes strings and names of labels. It tokenizes them, and knows its loss and metrics.
    batch_size = 32
    steps = arguments.epochs * -(-len(texts) // batch_size)
    peak = 5e-5 if arguments.model else 1e-3
    rate = keras.optimizers.schedules.CosineDecay(0.0, steps, warmup_target=peak, warmup_steps=max(1, steps // 10))
    model.compile(keras.optimizers.AdamW(rate, weight_decay=0.01))
    best = keras.callbacks.EarlyStopping("val_loss", patience=arguments.epochs, restore_best_weights=True)
    model.fit(
        texts, labels, batch_size=batch_size, epochs=arguments.epochs, validation_data=validation, callbacks=[best]
    )

    # What does it get wrong, and how sure is it there?
    probabilities = model.predict(validation[0], verbose=0)
    predicted = [names[index] for index in probabilities.argmax(axis=1)]
    wrong = np.array([ours != right for ours, right in zip(predicted, validation[1], strict=True)])
    print(f"accuracy {1 - wrong.mean():.3f} on {len(wrong)} rows")
    for index in sorted(np.flatnonzero(wrong), key=lambda index: -probabilities[index].max())[:5]:
        sure = probabilities[index].max()
        print(f"{sure:.2f} {predicted[index]}, should be {validation[1][index]}: {validation[0][index]}")

    # The folder is read by `from_preset`; the SavedModel takes strings in any program that has TensorFlow Text.
    model.save_to_preset(arguments.output / "preset")
    model.export(arguments.output / "export" / "1", examples=validation[0][:2])
    served = tf.saved_model.load(arguments.output / "export" / "1")
    print({name: value.numpy().tolist() for name, value in served.serve(tf.constant(validation[0][:1])).items()})


if __name__ == "__main__":
    main()
