"""Small models with random weights for each job of a server, exported where the server looks for them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

import zoo
from recipes.common.errors import errors_of

_SYLLABLES = ("ba", "den", "fir", "go", "hal", "ki", "lom", "mer", "nu", "pos", "ra", "sti", "tul", "ven", "wo", "zan")


def make_texts(count: int, seed: int) -> list[str]:
    """Returns texts of 4 to 24 words, most of them short, with some words more often than others.

    Args:
        count: Number of texts.
        seed: Other texts for another seed.
    """
    words = random.Random(0)
    vocabulary = ["".join(words.choices(_SYLLABLES, k=words.randint(1, 3))) for _ in range(400)]
    weights = [1 / (rank + 1) for rank in range(len(vocabulary))]
    generator = random.Random(seed)
    sizes = [generator.choice((4, 6, 8, 12, 24)) for _ in range(count)]
    return [" ".join(generator.choices(vocabulary, weights, k=size)) for size in sizes]


def make_models(folder: Path, preset: str, sizes: Mapping[str, Any], max_new_tokens: int) -> Path:
    """Writes a folder of four exports: `classify`, `embed`, `translate` and `complete`.

    Args:
        folder: Where to.
        preset: Named decoder that completes texts.
        sizes: Further sizes of it.
        max_new_tokens: Most tokens that are written of each text.

    Returns:
        A directory with the model that completes texts, as Transformers reads it.

    Raises:
        ConfigError: If the decoder cannot be made.
    """
    keras.utils.set_random_seed(0)
    texts = make_texts(2000, 1)
    pieces = zoo.tokenizers.WordPieceTokenizer.train(texts, 1000, lowercase=True)
    encoder = zoo.preset_config("encoder_tiny", vocabulary_size=pieces.vocabulary_size)
    labels = ["business", "science", "sport", "world"]
    classifier = zoo.TextClassifier(zoo.Backbone.from_config(encoder), pieces, labels=labels)
    classifier.export(folder / "classify" / "1")
    zoo.TextEmbedder(zoo.Backbone.from_config(encoder), pieces).export(folder / "embed" / "1")
    pair_pieces = zoo.tokenizers.SentencePieceTokenizer.train(texts, vocabulary_size=250)
    seq2seq = zoo.preset_config("transformer_tiny", vocabulary_size=pair_pieces.vocabulary_size)
    translator = zoo.Seq2SeqLM(zoo.Backbone.from_config(seq2seq), pair_pieces)
    translator.export(folder / "translate" / "1", sampler="greedy", max_new_tokens=min(max_new_tokens, 32))
    bytes_and_pairs = zoo.tokenizers.ByteLevelBPETokenizer.train(texts, 1000, end_token="<|endoftext|>")
    with errors_of("preset"):
        decoder = zoo.preset_config(preset, **{"vocabulary_size": bytes_and_pairs.vocabulary_size, **sizes})
        model = zoo.CausalLM(zoo.Backbone.from_config(decoder), bytes_and_pairs)
    model.export(folder / "complete" / "1", sampler="greedy", max_new_tokens=max_new_tokens)
    model.save_to_huggingface(folder / ".transformers")
    return folder / ".transformers"
