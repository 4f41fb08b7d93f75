"""Trains a Transformer to translate, on two files whose lines belong together.

    python docs/examples/translate.py train.de train.en test.de test.en

The files may be compressed by gzip.
"""

import argparse
import gzip
from pathlib import Path

import keras
import sacrebleu

import zoo
from zoo.tokenizers import SentencePieceTokenizer


def read(path):
    """Returns the lines of a file, which may be compressed."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file]


def make_model(texts, vocabulary_size):
    """A Transformer with random weights and one vocabulary for both languages."""
    tokenizer = SentencePieceTokenizer.train(texts, vocabulary_size=vocabulary_size, model_type="bpe")
    return zoo.Seq2SeqLM.from_preset(
        "transformer_tiny",
        load_weights=False,
        tokenizer=tokenizer,
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=3,
        hidden_dim=256,
        attention={"num_heads": 4},
        feed_forward={"intermediate_dim": 512},
        # norms before the sublayers make a long warmup unnecessary
        norm={"placement": "pre"},
        max_length=128,
        dropout=0.3,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", help="sentences to translate from, one per line")
    parser.add_argument("targets", help="their translations")
    parser.add_argument("test_sources")
    parser.add_argument("test_targets")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--vocabulary_size", type=int, default=8000)
    parser.add_argument("--output", type=Path, default=Path("translator"), help="where the model is saved")
    arguments = parser.parse_args()

    keras.utils.set_random_seed(0)
    sources, targets = read(arguments.sources), read(arguments.targets)
    test_sources, test_targets = read(arguments.test_sources), read(arguments.test_targets)
    # the last sentences of the training part choose the best epoch; the test part is looked at once
    held_out = max(1, min(1000, len(sources) // 20))
    validation = sources[-held_out:], targets[-held_out:]
    sources, targets = sources[:-held_out], targets[:-held_out]
    model = make_model(sources + targets, arguments.vocabulary_size)
    print(f"{len(sources):,} pairs, {model.count_params():,} weights")

    # Pairs of strings go in. The task tokenizes them, feeds the target shifted by one, and scores each token once.
    batch_size = 128
    steps = arguments.epochs * -(-len(sources) // batch_size)
    rate = keras.optimizers.schedules.CosineDecay(0.0, steps, warmup_target=2e-3, warmup_steps=max(1, steps // 10))
    model.compile(keras.optimizers.AdamW(rate, weight_decay=0.01, global_clipnorm=1.0))
    best = keras.callbacks.EarlyStopping("val_loss", patience=arguments.epochs, restore_best_weights=True)
    model.fit(
        sources, targets, batch_size=batch_size, epochs=arguments.epochs, validation_data=validation, callbacks=[best]
    )

    # Four beams; the samplers of `zoo` are values, and exports take the same ones.
    beam = zoo.Beam(num_beams=4)
    translations = model.generate(test_sources, sampler=beam, max_new_tokens=60)
    for source, ours, theirs in list(zip(test_sources, translations, test_targets, strict=True))[:3]:
        print(f"{source}\n  {ours}\n  ({theirs})")
    print(sacrebleu.corpus_bleu(translations, [test_targets]))

    # Which words of the source did each word of the translation look at?
    found = model.inspect(test_sources[0], translations[0])
    zoo.inspect.plot_attention(
        found.alignment,
        found.targets,
        found.source_tokens,
        arguments.output.with_suffix(".png"),
        title="Cross-attention",
    )
    model.save_to_preset(arguments.output / "preset")
    model.export(arguments.output / "export" / "1", sampler=beam, examples=test_sources[:2])


if __name__ == "__main__":
    main()
