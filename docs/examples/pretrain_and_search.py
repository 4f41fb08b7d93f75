"""Pretrains an encoder on plain text, makes an embedder of it, and searches the text by meaning.

    python docs/examples/pretrain_and_search.py text.txt --query "a storm at sea"

The embedder is trained with no labels: two sentences that follow each other are a pair, all others of the batch are
wrong answers.
"""

import argparse
import re
from pathlib import Path

import keras
import numpy as np

import zoo
from zoo.tokenizers import WordPieceTokenizer


def passages_of(path, words=40):
    """Returns runs of sentences of about so many words, in their order."""
    text = re.sub(r"\s+", " ", Path(path).read_text("utf-8"))
    passages, run = [], []
    for sentence in re.split(r"(?<=[.!?]) ", text):
        run += sentence.split()
        if len(run) >= words:
            passages.append(" ".join(run[: 2 * words]))
            run = []
    return passages


def hits(model, pairs):
    """The share of passages whose successor is the nearest of all successors."""
    first, second = (model.embed(list(side)) for side in zip(*pairs, strict=True))
    return np.mean((first @ second.T).argmax(axis=1) == np.arange(len(pairs)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", help="a text file, such as a book")
    parser.add_argument("--query", default="a storm at sea")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the text, of pretraining and of pairs")
    parser.add_argument("--vocabulary_size", type=int, default=4000)
    parser.add_argument("--output", type=Path, default=Path("search"), help="where the models are saved")
    arguments = parser.parse_args()

    keras.utils.set_random_seed(0)
    passages = passages_of(arguments.text)
    pairs = list(zip(passages[::2], passages[1::2], strict=False))
    held_out = max(2, len(pairs) // 10)
    test, training = pairs[:held_out], pairs[held_out:]
    texts = [text for pair in training for text in pair]

    # 1. An encoder learns the language: 15 % of the tokens are hidden, and it says what they were.
    tokenizer = WordPieceTokenizer.train(texts, vocabulary_size=arguments.vocabulary_size, lowercase=True)
    language = zoo.MaskedLM.from_preset(
        "encoder_tiny",
        load_weights=False,
        tokenizer=tokenizer,
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=2,
        hidden_dim=128,
        max_length=256,
        truncate=True,
    )
    print(f"{len(texts):,} passages, {language.count_params():,} weights")
    language.compile(keras.optimizers.AdamW(1e-3, weight_decay=0.01))
    language.fit(
        texts, batch_size=32, epochs=arguments.epochs, validation_data=[text for pair in test for text in pair]
    )
    language.save_to_preset(arguments.output / "encoder")

    # 2. The same encoder, and one with random weights beside it, learn which passages belong together.
    found = {}
    for name, load_weights in (("pretrained", True), ("from random weights", False)):
        model = zoo.TextEmbedder.from_preset(
            arguments.output / "encoder", load_weights=load_weights, pooling="mean", normalize=True
        )
        model.compile(keras.optimizers.AdamW(3e-4, weight_decay=0.01))
        model.fit(tuple(map(list, zip(*training, strict=True))), batch_size=32, epochs=arguments.epochs, verbose=2)
        found[name] = hits(model, test)
        if load_weights:
            embedder = model
    print({name: round(float(share), 3) for name, share in found.items()}, f"by chance {1 / len(test):.3f}")

    # 3. Search is a product of vectors.
    index = embedder.embed(passages)
    nearest = np.argsort(index @ embedder.embed([arguments.query])[0])[::-1][:3]
    for place in nearest:
        print(f"- {passages[place]}")
    embedder.save_to_preset(arguments.output / "embedder")
    embedder.export(arguments.output / "export" / "1", examples=passages[:2])


if __name__ == "__main__":
    main()
