"""What several folders of tests use: a small tokenizer and a small sequence-to-sequence model."""

import random

import pytest

WORDS = "alpha beta gamma kappa iota lambda omega theta".split()


def word_sequences(count, seed=0, longest=4):
    """Texts of two to `longest` words."""
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(2, longest))) for _ in range(count)]


@pytest.fixture(scope="session")
def texts():
    return word_sequences(200)


@pytest.fixture(scope="session")
def tiny_tokenizer(texts):
    pytest.importorskip("sentencepiece")
    from zoo.tokenizers import SentencePieceTokenizer

    return SentencePieceTokenizer.train(texts, vocabulary_size=26)


@pytest.fixture(scope="session")
def tiny_config(tiny_tokenizer):
    """Of a model that learns to copy `texts` in seconds."""
    from zoo import AttentionConfig, EmbeddingConfig, FeedForwardConfig, NormConfig, TransformerConfig

    return TransformerConfig(
        "encoder_decoder",
        vocabulary_size=tiny_tokenizer.vocabulary_size,
        hidden_dim=32,
        num_layers=1,
        max_length=32,
        attention=AttentionConfig(num_heads=4),
        feed_forward=FeedForwardConfig(64),
        norm=NormConfig(placement="pre"),
        embedding=EmbeddingConfig(scale=True),
        dropout=0.0,
    )


@pytest.fixture
def untrained(tiny_config, tiny_tokenizer):
    """A fresh model with random weights."""
    import keras

    from zoo import Backbone, Seq2SeqLM

    keras.utils.set_random_seed(0)
    return Seq2SeqLM(Backbone.from_config(tiny_config), tiny_tokenizer)
