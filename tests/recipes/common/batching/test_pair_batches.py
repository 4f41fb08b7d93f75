import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from recipes.common.batching import PairBatches
from recipes.common.data import dates
from recipes.common.errors import DataError
from zoo.tokenizers import SentencePieceTokenizer


def make_pairs(number=203, seed=0):
    """Distinct pairs of random lengths; the number of the pair is in both texts."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, 20, (number, 2))
    return [
        (f"{index:04d}" + "a" * source, f"{index:04d}" + "b" * target, f"f:{index + 1}")
        for index, (source, target) in enumerate(lengths)
    ]


def make_batches(pairs, tokenizer, **arguments):
    defaults = {"tokens_per_batch": 400, "max_source_length": 40, "max_target_length": 40, "number_of_buckets": 4}
    return PairBatches(pairs, tokenizer, **{**defaults, **arguments})


def collect(batches):
    return [tf.nest.map_structure(lambda tensor: tensor.numpy(), batch) for batch in batches.dataset]


def assert_equal_batches(first, second):
    assert len(first) == len(second)
    for batch, other in zip(first, second, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, batch, other)


def text_of(ids):
    return "".join(map(chr, ids))


def texts_of(batches):
    """The pairs of texts in batches, after checks of every array against what the texts say it must hold."""
    pairs = []
    for inputs, labels, weights in batches:
        for row in range(len(labels)):
            source_mask, target_mask = inputs["encoder_padding_mask"][row], inputs["decoder_padding_mask"][row]
            source = inputs["encoder_token_ids"][row]
            decoder, label = inputs["decoder_token_ids"][row], labels[row]
            for ids, mask in ((source, source_mask), (decoder, target_mask), (label, target_mask)):
                # Real tokens come first; the padding token is 0.
                assert not np.any(np.diff(mask.astype(int)) > 0)
                assert not ids[~mask].any()
                assert ids[mask].all()
            np.testing.assert_array_equal(weights[row], target_mask)
            if not source_mask.any():
                assert not target_mask.any()
                continue
            source, decoder, label = source[source_mask], decoder[target_mask], label[target_mask]
            assert source[-1] == label[-1] == 2
            assert decoder[0] == 1
            np.testing.assert_array_equal(decoder[1:], label[:-1])
            pairs.append((text_of(source[:-1]), text_of(label[:-1])))
    return pairs


def test_every_pair_is_in_each_epoch_once(character_tokenizer):
    pairs = make_pairs()
    batches = make_batches(pairs, character_tokenizer)
    orders = []
    for epoch in (0, 1):
        batches.start_epoch(epoch)
        result = collect(batches)
        assert len(result) == batches.number_of_batches == len(batches.dataset)
        orders.append(texts_of(result))
        assert sorted(orders[-1]) == sorted(pair[:2] for pair in pairs)
        assert sum(w.sum() + i["encoder_padding_mask"].sum() for i, _, w in result) == batches.number_of_tokens
    assert orders[0] != orders[1]
    assert batches.number_of_pairs == len(pairs)
    assert batches.dropped.report() == "skipped 0"


def test_types_and_few_shapes(character_tokenizer):
    batches = make_batches(make_pairs(), character_tokenizer)
    shapes = set()
    for inputs, labels, weights in collect(batches):
        assert list(inputs) == [
            "encoder_token_ids",
            "encoder_padding_mask",
            "decoder_token_ids",
            "decoder_padding_mask",
        ]
        assert {inputs[key].dtype for key in inputs if key.endswith("ids")} == {labels.dtype} == {np.dtype(np.int32)}
        assert {inputs[key].dtype for key in inputs if key.endswith("mask")} == {np.dtype(bool)}
        assert weights.dtype == np.float32
        assert {array.shape for array in (*inputs.values(), labels, weights)} == {labels.shape}
        assert 2 * labels.size <= 400
        shapes.add(labels.shape)
    assert shapes <= set(zip(batches.batch_sizes, batches.bucket_lengths, strict=True))
    assert len(shapes) == 4
    for size, length in shapes:
        assert 2 * (size + 1) * length > 400


def test_small_vocabulary_is_stored_as_16_bits_without_loss(character_tokenizer):
    pairs = [("caf\uffffé", "z", "f:1")]
    character_tokenizer.vocabulary_size = 2**16
    assert texts_of(collect(make_batches(pairs, character_tokenizer))) == [("caf\uffffé", "z")]
    character_tokenizer.vocabulary_size = 2**16 + 1
    pairs = [("caf\U00010000é", "z", "f:1")]
    assert texts_of(collect(make_batches(pairs, character_tokenizer))) == [("caf\U00010000é", "z")]


def test_order_is_a_function_of_seed_and_epoch_only(character_tokenizer):
    first, second, other = (make_batches(make_pairs(), character_tokenizer, seed=seed) for seed in (1, 1, 2))

    def epoch(batches, number):
        batches.start_epoch(number)
        return collect(batches)

    reference = epoch(first, 4)
    assert texts_of(reference) != texts_of(epoch(second, 5))
    assert_equal_batches(reference, epoch(second, 4))
    assert texts_of(reference) != texts_of(epoch(other, 4))


def test_skipping_batches_goes_on_inside_the_epoch(character_tokenizer):
    batches = make_batches(make_pairs(), character_tokenizer)
    batches.start_epoch(3)
    whole = collect(batches)
    for skipped in (1, 7, len(whole)):
        batches.start_epoch(3, skip_batches=skipped)
        assert_equal_batches(collect(batches), whole[skipped:])
    # The next epoch is a whole one again.
    batches.start_epoch(4)
    assert len(collect(batches)) == len(whole)


def test_without_shuffling_short_pairs_come_first(character_tokenizer):
    batches = make_batches(make_pairs(), character_tokenizer, shuffle=False)
    first = collect(batches)
    lengths = [labels.shape[1] for _, labels, _ in first]
    assert lengths == sorted(lengths)
    batches.start_epoch(1)
    assert_equal_batches(first, collect(batches))


def test_long_pairs_are_dropped_counted_and_listed(character_tokenizer):
    pairs = [
        ("a" * 9, "b", "f:1"),
        ("a" * 10, "b", "f:2"),
        ("a", "b" * 5, "f:3"),
        ("a" * 10, "b" * 5, "f:4"),
        ("", "b", "f:5"),
        ("a", "", "f:6"),
        ("a", "b" * 4, "f:7"),
    ]
    limits = {"max_source_length": 10, "max_target_length": 5}
    batches = make_batches(pairs, character_tokenizer, **limits)
    # The end token counts: nine characters fit into ten tokens, ten do not.
    assert sorted(texts_of(collect(batches))) == [("a", "bbbb"), ("aaaaaaaaa", "b")]
    assert batches.dropped.origins == {
        "source longer than 10 tokens": ["f:2", "f:4"],
        "target longer than 5 tokens": ["f:3"],
        "source without tokens": ["f:5"],
        "target without tokens": ["f:6"],
    }
    assert batches.number_of_pairs + batches.dropped.total == len(pairs)
    assert len(collect(batches)) == batches.number_of_batches


def test_data_without_usable_pairs(character_tokenizer):
    for pairs in ([], [("a" * 50, "b", "f:1")]):
        with pytest.raises(DataError, match="no pair of texts is left: skipped"):
            make_batches(pairs, character_tokenizer)


def test_a_batch_has_no_more_rows_than_there_are(character_tokenizer):
    """A batch is filled up to its size, so a size without bounds would fill the memory with padding."""
    batches = make_batches(make_pairs(50), character_tokenizer, tokens_per_batch=10**9)
    ((_, labels, _),) = collect(batches)
    assert labels.shape == (50, batches.bucket_lengths[-1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokens_per_batch": 45}, "tokens_per_batch must be at least 48, as the longest pair takes 24 .* got 45"),
        ({"max_source_length": 0}, "max_source_length must be at least 1, got 0"),
        ({"number_of_buckets": 0}, "number_of_buckets must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_arguments_out_of_range(character_tokenizer, arguments, message):
    with pytest.raises(ValueError, match=message):
        make_batches(make_pairs(), character_tokenizer, **arguments)


def test_epochs_and_tokenizers_out_of_range(character_tokenizer):
    batches = make_batches(make_pairs(), character_tokenizer)
    with pytest.raises(ValueError, match="epoch must be at least 0, got -1"):
        batches.start_epoch(-1)
    with pytest.raises(ValueError, match=rf"skip_batches must be 0 to {batches.number_of_batches}, got 1000"):
        batches.start_epoch(0, 1000)
    character_tokenizer.end_id = None
    with pytest.raises(ValueError, match="the tokenizer has no end_id"):
        make_batches(make_pairs(), character_tokenizer)


def test_texts_that_begin_with_the_start_token(character_tokenizer):
    """BART: both sides begin with the start token, and the decoder sees another token first."""
    pairs = [("ab", "c", "f:1"), ("", "d", "f:2")]
    options = {"add_start_token": True, "decoder_start_id": character_tokenizer.end_id}
    ((inputs, labels, _),) = collect(make_batches(pairs, character_tokenizer, **options))
    start, end = character_tokenizer.start_id, character_tokenizer.end_id
    row = inputs["encoder_padding_mask"].any(axis=1).argmax()
    assert inputs["encoder_token_ids"][row].tolist() == [start, ord("a"), ord("b"), end]
    assert labels[row].tolist()[:3] == [start, ord("c"), end]
    assert inputs["decoder_token_ids"][row].tolist()[:3] == [end, start, ord("c")]
    assert inputs["encoder_padding_mask"].any(axis=1).sum() == 1  # a source without tokens is still left out


def test_trained_tokenizer():
    pairs = dates.generate(train=200, validation=0, test=0).train
    tokenizer = SentencePieceTokenizer.train((text for pair in pairs for text in pair[:2]), 150, character_coverage=1.0)
    limits = {"tokens_per_batch": 1000, "max_source_length": 50, "max_target_length": 50}
    batches = PairBatches(pairs, tokenizer, **limits)
    texts = []
    for inputs, labels, _ in collect(batches):
        real = inputs["encoder_padding_mask"].any(axis=1)
        sides = (tokenizer.detokenize(ids[real]).numpy() for ids in (inputs["encoder_token_ids"], labels))
        texts += [tuple(side.decode() for side in pair) for pair in zip(*sides, strict=True)]
    assert sorted(texts) == sorted(pair[:2] for pair in pairs)


class Scorer(keras.Model):
    """The smallest model with the inputs and outputs of a sequence-to-sequence model."""

    def __init__(self):
        super().__init__()
        self.embedding = keras.layers.Embedding(128, 128)

    def call(self, inputs):
        return self.embedding(inputs["decoder_token_ids"]) + self.embedding(inputs["encoder_token_ids"])


class Record(keras.callbacks.Callback):
    """Sets the epoch of the data, as a training-state callback does, and records the loss after each batch."""

    def __init__(self, batches, first_epoch=0, skip_batches=0, stop_after=None):
        super().__init__()
        self.batches, self.first, self.stop_after = batches, (first_epoch, skip_batches), stop_after
        self.losses = []

    def on_epoch_begin(self, epoch, logs=None):
        first_epoch, skip_batches = self.first
        self.batches.start_epoch(epoch, skip_batches if epoch == first_epoch else 0)
        self.losses.append([])

    def on_train_batch_end(self, batch, logs=None):
        self.losses[-1].append(logs["loss"])
        if (len(self.losses) - 1, batch + 1) == self.stop_after:
            self.model.stop_training = True


def test_fit_resumed_inside_an_epoch_equals_an_uninterrupted_one(character_tokenizer):
    def fit(model, epochs, **arguments):
        batches = make_batches(make_pairs(), character_tokenizer)
        record = Record(batches, **arguments)
        first_epoch = arguments.get("first_epoch", 0)
        model.fit(batches.dataset, initial_epoch=first_epoch, epochs=epochs, callbacks=[record], verbose=0)
        return record.losses, batches.number_of_batches

    def make_model():
        keras.utils.set_random_seed(5)
        model = Scorer()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.5), loss, jit_compile=False)
        return model

    uninterrupted, number_of_batches = fit(make_model(), 3)
    assert [len(epoch) for epoch in uninterrupted] == [number_of_batches] * 3

    model = make_model()
    before, _ = fit(model, 2, stop_after=(1, 3))
    assert [len(epoch) for epoch in before] == [number_of_batches, 3]
    with warnings.catch_warnings():
        # Keras expects as many batches of the resumed epoch as of a whole one.
        warnings.filterwarnings("ignore", "Your input ran out of data")
        after, _ = fit(model, 3, first_epoch=1, skip_batches=3)
    # The later epoch is whole.
    assert [len(epoch) for epoch in after] == [number_of_batches - 3, number_of_batches]
    # `logs` hold running means over an epoch, so the later epoch is compared; the same operations on the same
    # numbers in the same order give the same bits.
    assert after[1:] == uninterrupted[2:]
