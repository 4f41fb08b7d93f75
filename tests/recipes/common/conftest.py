import os
from pathlib import Path

import pytest


class CharacterTokenizer:
    """Every character is a token, its id the Unicode code point. Stands in for a trained tokenizer."""

    pad_id, start_id, end_id = 0, 1, 2

    def __init__(self, vocabulary_size: int = 0x110000):
        self.vocabulary_size = vocabulary_size

    def tokenize(self, texts):
        import tensorflow as tf

        return tf.cast(tf.strings.unicode_decode(tf.convert_to_tensor(texts), "UTF-8"), tf.int32)

    @property
    def of_targets(self):
        return self


@pytest.fixture
def character_tokenizer():
    return CharacterTokenizer()


@pytest.fixture
def data_folder() -> Path:
    """The folder of real data sets."""
    folder = os.environ.get("ZOO_DATA")
    if not folder:
        pytest.skip("needs real data: set ZOO_DATA to the folder of the data sets")
    return Path(folder)
