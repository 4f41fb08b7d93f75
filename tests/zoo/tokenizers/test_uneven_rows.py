"""Many short texts beside a long one: memory grows with the tokens, not with rows by the longest row."""

import numpy as np
import pytest
import tensorflow as tf

from zoo.tokenizers import ByteLevelBPETokenizer, SentencePieceTokenizer, WordPieceTokenizer
from zoo.tokenizers.tensors import keep_values, repeat, row_ids

TEXTS = ["hello world a b c w1 w2 w3"] * 50 + [f"the quick brown fox {number}" for number in range(50)]
SHORT, LONG = 50_000, 60_000  # a matrix of these has more numbers than int32 counts
KINDS = {
    "byte-level": lambda: ByteLevelBPETokenizer.train(TEXTS, 300, end_token="<end>"),
    "WordPiece": lambda: WordPieceTokenizer.train(TEXTS, 120, lowercase=True),
    "SentencePiece": lambda: SentencePieceTokenizer.train(TEXTS, 60, model_type="bpe"),
}
ROWS = {
    "usual": [[1, 2], [3], [4, 5, 6]],
    "empty ones": [[], [1], [], [], [2, 3], []],
    "one": [[1, 2, 3]],
    "no values": [[], []],
    "none": [],
}


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_operations_are_those_of_tensorflow(rows, dtype):
    ragged = tf.ragged.constant(rows, tf.int32, ragged_rank=1, row_splits_dtype=dtype)
    ids = row_ids(ragged.row_splits)
    assert ids.dtype == dtype
    np.testing.assert_array_equal(ids, ragged.value_rowids())
    values = np.arange(len(rows)) * 10
    np.testing.assert_array_equal(repeat(values, ragged.row_lengths()), np.repeat(values, [len(row) for row in rows]))
    kept = keep_values(ragged, ragged.values % 2 == 1)
    assert kept.to_list() == [[value for value in row if value % 2] for row in rows]
    assert kept.row_splits.dtype == dtype


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_text_among_short_ones(kind):
    tokenizer = KINDS[kind]()
    long = " ".join(f"w{number % 4}" for number in range(LONG))
    texts = ["hello world"] * SHORT + [long]
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    assert ids[-1].numpy().tolist() == tokenizer.tokenize(long).numpy().tolist()
    assert int(ends[-1][-1]) == len(long) and starts[0].numpy().tolist() == starts[SHORT - 1].numpy().tolist()
    back = tokenizer.detokenize(ids)
    assert back[0].numpy().decode() == "hello world" and back[-1].numpy().decode() == long
