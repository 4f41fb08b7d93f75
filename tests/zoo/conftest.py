"""A tokenizer with a mask token and small encoders for the tests of tasks and of their exports."""

import random

import pytest

LABELS = ["bad", "good", "so-so"]
TAGS = ["O", "B-X", "I-X"]


@pytest.fixture(scope="session")
def mask_tokenizer(texts):
    """A tokenizer in which each of the eight words is one token."""
    pytest.importorskip("sentencepiece")
    from zoo.tokenizers import SentencePieceTokenizer

    proto = SentencePieceTokenizer.train(texts, vocabulary_size=27, special_tokens=["<mask>"]).proto
    return SentencePieceTokenizer(proto, mask_token="<mask>")


@pytest.fixture(scope="session")
def encoder_config(mask_tokenizer):
    from zoo import AttentionConfig, EmbeddingConfig, FeedForwardConfig, PositionConfig, TransformerConfig

    return TransformerConfig(
        "encoder",
        vocabulary_size=mask_tokenizer.vocabulary_size,
        hidden_dim=16,
        num_layers=1,
        max_length=24,
        attention=AttentionConfig(num_heads=2),
        position=PositionConfig("learned"),
        feed_forward=FeedForwardConfig(32),
        embedding=EmbeddingConfig(num_segments=2),
        dropout=0.0,
        pooler=True,
    )


@pytest.fixture(scope="session")
def make_task(encoder_config, mask_tokenizer):
    """A function from a class of tasks and its options to a fresh task with random weights that runs eagerly."""
    import dataclasses

    import keras

    from zoo import Backbone

    def make(task_class, *, seed=0, config=None, **options):
        keras.utils.set_random_seed(seed)
        config = dataclasses.replace(encoder_config, **(config or {}))
        task = task_class(Backbone.from_config(config), mask_tokenizer, **options)
        for weight in task.backbone.weights:
            # larger than usual, so that different texts have visibly different outputs
            if "embedding" in weight.path or "position" in weight.path:
                weight.assign(weight * 4)
        # a graph costs more than it saves in models this small
        task.run_eagerly = True
        return task

    return make


@pytest.fixture(scope="session")
def odd_texts(texts):
    """200 texts: words known and unknown, spaces, accents, emoji, nothing, bytes that are not UTF-8."""
    generator = random.Random(1)
    pieces = [
        "alpha",
        "beta",
        "omega",
        "theta",
        "kap",
        "\u00e9",
        "e\u0301",
        "\U0001f600",
        "\u4f60",
        "x",
        "",
        " ",
        "\t",
        ".",
    ]
    odd = [" ".join(generator.choices(pieces, k=generator.randint(0, 5))) for _ in range(97)]
    return [*texts[:100], *odd, "", b"\xff\xfe alpha", "\x00 beta"]
