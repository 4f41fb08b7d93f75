import numpy as np
import pytest

from recipes.common.errors import DataError
from recipes.common.source_batches import SourceBatches

TEXTS = ["ccc", "a", "", "eeeeeee", "bb", "dddd", "é"]


def decode(batch):
    rows = []
    for ids, mask in zip(batch["encoder_token_ids"].numpy(), batch["encoder_padding_mask"].numpy(), strict=True):
        real = ids[mask]
        assert not ids[~mask].any()
        assert not np.any(np.diff(mask.astype(int)) > 0)
        if real.size:
            assert real[-1] == 2
        rows.append("".join(map(chr, real[:-1])))
    return rows


def test_results_come_back_in_order(character_tokenizer):
    batches = SourceBatches(TEXTS, character_tokenizer, batch_size=3, max_length=8, number_of_buckets=2)
    outputs, shapes = [], []
    for batch in batches.dataset:
        outputs += decode(batch)
        shapes.append(tuple(batch["encoder_token_ids"].shape))
    assert len(outputs) == 9
    assert batches.restore_order(outputs) == TEXTS
    assert batches.truncated == []
    # Long ones first; few shapes.
    assert [length for _, length in shapes] == sorted((length for _, length in shapes), reverse=True)
    assert {size for size, _ in shapes} == {3}
    assert len(set(shapes)) == 2
    with pytest.raises(ValueError, match="there must be 9 results, one for each row; got 7"):
        batches.restore_order(TEXTS)


def test_many_texts(character_tokenizer):
    texts = ["x" * (index * 7 % 31) + str(index) for index in range(300)]
    batches = SourceBatches(texts, character_tokenizer, batch_size=16, max_length=50)
    outputs = [row for batch in batches.dataset for row in decode(batch)]
    assert batches.restore_order(outputs) == texts
    assert len(outputs) == 304
    assert len({batch["encoder_token_ids"].shape[1] for batch in batches.dataset}) <= 8


def test_long_texts(character_tokenizer):
    # Seven characters and the end token.
    with pytest.raises(DataError, match="text number 4 of 7 has 8 tokens with its end token, at most 5 .*; 1 texts"):
        SourceBatches(TEXTS, character_tokenizer, batch_size=3, max_length=5)
    batches = SourceBatches(TEXTS, character_tokenizer, batch_size=3, max_length=5, on_long="truncate")
    outputs = [row for batch in batches.dataset for row in decode(batch)]
    assert batches.restore_order(outputs) == ["ccc", "a", "", "eeee", "bb", "dddd", "é"]
    assert batches.truncated == [3]


@pytest.mark.parametrize(
    ("texts", "arguments", "message"),
    [
        ([], {}, "texts must be a list of at least one text"),
        ("abc", {}, "texts must be a list"),
        (["a"], {"batch_size": 0}, "batch_size must be at least 1; got 0"),
        (["a"], {"max_length": 0}, "max_length must be at least 1; got 0"),
        (["a"], {"on_long": "skip"}, "on_long must be 'raise' or 'truncate'; got 'skip'"),
    ],
)
def test_bad_arguments(character_tokenizer, texts, arguments, message):
    with pytest.raises(ValueError, match=message):
        SourceBatches(texts, character_tokenizer, **{"batch_size": 2, "max_length": 5, **arguments})
