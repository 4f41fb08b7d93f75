"""Batches of prepared corpora: each row once, the same when entered anywhere and shared by any number of processes."""

import numpy as np
import pytest

pytest.importorskip("array_record", reason="the extra 'corpus' is not installed")

import json  # noqa: E402

from recipes.common.batching import CorpusBatches, CorpusRows  # noqa: E402
from recipes.common.corpus.shards import Corpus, join_documents, packed_rows, write_shard  # noqa: E402
from recipes.common.errors import ConfigError, DataError  # noqa: E402

END, LENGTH = 0, 8


def make_corpus(folder, documents, start_id=None, shards=2):
    """A corpus of documents that are lists of tokens."""
    (folder / "shards").mkdir(parents=True)
    index = {"format": 1, "length": LENGTH, "dtype": "uint16", "start_id": start_id, "end_id": END, "shards": []}
    for number in range(shards):
        part = documents[number * len(documents) // shards : (number + 1) * len(documents) // shards]
        ids, lengths = np.array(sum(part, []), np.int64), np.array([len(document) for document in part])
        path = folder / "shards" / f"{number}.array_record"
        rows = write_shard(path, packed_rows([join_documents(ids, lengths, start_id, END)], LENGTH), "uint16")
        index["shards"].append({"file": f"shards/{number}.array_record", "bytes": path.stat().st_size, "rows": rows})
    index.update(rows=sum(shard["rows"] for shard in index["shards"]), tokens=0)
    (folder / "corpus.json").write_text(json.dumps(index))
    return Corpus(folder)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    generator = np.random.default_rng(0)
    made = []
    for first, count in ((1, 40), (1000, 15)):
        lengths = generator.integers(1, 20, size=count)
        # every token is another number, so rows can be told apart
        numbers = iter(range(first, 10**6))
        documents = [[next(numbers) for _ in range(length)] for length in lengths]
        made.append(make_corpus(tmp_path_factory.mktemp("corpus"), documents))
    return made


def rows_of(batches, epoch, skip=0):
    batches.start_epoch(epoch, skip)
    return [
        tuple(row[:length].tolist())
        for batch in batches.dataset
        for row, length in zip(*map(np.array, batch), strict=True)
    ]


def all_rows(corpora):
    rows = []
    for corpus in corpora:
        tokens, lengths = corpus.read(np.arange(corpus.rows))
        rows += [tuple(row[:length].tolist()) for row, length in zip(tokens, lengths, strict=True)]
    return rows


def test_each_row_once_in_a_pass(corpora):
    expected = all_rows(corpora)
    batches = CorpusBatches(corpora, batch_size=1, seed=3)
    first, second = rows_of(batches, 0), rows_of(batches, 1)
    assert sorted(first) == sorted(second) == sorted(expected)
    assert first != second and first != expected
    assert rows_of(CorpusBatches(corpora, batch_size=1, seed=4), 0) != first
    # rows of a batch that is not full begin the next epoch
    batches = CorpusBatches(corpora, batch_size=8, seed=3)
    assert batches.number_of_batches == len(expected) // 8
    joined = [row for epoch in range(3) for row in rows_of(batches, epoch)]
    third = rows_of(CorpusBatches(corpora, batch_size=1, seed=3), 2)
    assert joined == [*first, *second, *third][: len(joined)]


@pytest.mark.parametrize("weights", [None, [1, 2]])
def test_entered_at_any_batch(corpora, weights):
    options = {"batch_size": 6, "batches_per_epoch": 5, "weights": weights, "seed": 1}
    whole = rows_of(CorpusBatches(corpora, **options), 2)
    for skip in range(6):
        assert rows_of(CorpusBatches(corpora, **options), 2, skip) == whole[6 * skip :]


def test_what_was_trained_on_is_not_read_again(corpora):
    asked = []

    class Watched(CorpusBatches):
        def arrays(self, number):
            asked.append(int(number))
            return super().arrays(number)

    rows_of(Watched(corpora, batch_size=2, batches_per_epoch=12), 3, 9)
    assert asked == [45, 46, 47]


def test_corpus_smaller_than_a_batch(corpora):
    rows = all_rows(corpora)
    batches = CorpusBatches(corpora, batch_size=2 * len(rows) + 1, processes=1)
    assert batches.number_of_batches == 1
    first = rows_of(batches, 0)
    # two passes, and the first row of a third
    assert sorted(first[:-1]) == sorted(rows * 2)
    assert rows_of(batches, 1) != first


@pytest.mark.parametrize("weights", [None, [1, 2]])
@pytest.mark.parametrize("processes", [1, 2, 3, 6])
def test_on_any_number_of_processes(corpora, weights, processes):
    options = {"batch_size": 6, "batches_per_epoch": 4, "weights": weights, "seed": 1}
    whole = rows_of(CorpusBatches(corpora, **options), 1, 1)
    shares = [
        rows_of(CorpusBatches(corpora, **options, process=process, processes=processes), 1, 1)
        for process in range(processes)
    ]
    size = 6 // processes
    parts = [share[size * batch : size * (batch + 1)] for batch in range(3) for share in shares]
    assert [row for part in parts for row in part] == whole


def test_every_token_is_predicted_once(corpora):
    corpus = corpora[0]
    batches = CorpusRows([corpus], separate=False, batch_size=1)
    labels = []
    for inputs, targets, weights in batches.dataset:
        inputs = {name: value.numpy() for name, value in inputs.items()}
        np.testing.assert_array_equal(inputs["padding_mask"], weights.numpy() > 0)
        labels += targets.numpy()[weights.numpy() > 0].tolist()
    streams = [
        [token for row in all_rows([corpus])[start:end] for token in row[1:]]
        for start, end in zip([0, corpus._ends[0]], corpus._ends, strict=True)
    ]
    assert sorted(labels) == sorted(streams[0] + streams[1])
    texts = [label for label in labels if label != END]
    # all tokens of the documents but the first of each shard
    assert len(texts) == len(set(texts)) == max(texts) - 2


@pytest.mark.parametrize("start_id", [None, 9999])
def test_separate_documents(tmp_path, start_id):
    """Sequence ids and positions by a loop over the tokens; what follows an end token has no weight."""
    generator = np.random.default_rng(1)
    documents = [generator.integers(1, 900, size=generator.integers(1, 12)).tolist() for _ in range(30)]
    corpus = make_corpus(tmp_path / "corpus", documents, start_id, shards=1)
    for inputs, labels, weights in CorpusRows([corpus], separate=True, batch_size=4).dataset:
        for row in range(4):
            ids, mask, sequences, positions = (
                inputs[name].numpy()[row] for name in ("token_ids", "padding_mask", "sequence_ids", "positions")
            )
            number = place = 0
            for column, token in enumerate(ids):
                if not mask[column]:
                    assert sequences[column] == -1 and positions[column] == 0 and weights[row, column] == 0
                    continue
                assert (sequences[column], positions[column]) == (number, place)
                assert weights[row, column] == (token != END)
                place += 1
                if token == END:
                    number, place = number + 1, 0
                elif column + 1 < LENGTH and mask[column + 1]:
                    assert labels[row, column] == ids[column + 1]


def test_mistakes(corpora, tmp_path):
    with pytest.raises(ConfigError, match="multiple of the 4 processes"):
        CorpusBatches(corpora, batch_size=6, processes=4)
    for weights in ([1], [1, 0], [1, -1], [1, float("nan")], [1, 2, 3]):
        with pytest.raises(ConfigError, match="data.weights must be 2 numbers above 0"):
            CorpusBatches(corpora, batch_size=6, weights=weights)
    with pytest.raises(ConfigError, match="data.weights must be at least about 1/4096 of their sum"):
        CorpusBatches(corpora, batch_size=6, weights=[1e6, 1])
    with pytest.raises(DataError, match="no corpus"):
        Corpus(tmp_path)
    with pytest.raises(ValueError, match="numbers must be from 0"):
        corpora[0].read([corpora[0].rows])
