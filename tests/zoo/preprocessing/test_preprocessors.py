"""Rows of strings as token-level batches, the same eagerly, in `tf.data` and in a SavedModel; saved and restored."""

import random

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.preprocessing import (  # noqa: E402
    CausalLMPreprocessor,
    MaskedLMPreprocessor,
    Seq2SeqLMPreprocessor,
    TextClassifierPreprocessor,
    TextEmbedderPreprocessor,
    TokenClassifierPreprocessor,
    padded_length,
)

TEXTS = ["alpha beta", "", "kapex gamma omega theta alpha beta gamma omega", "\u00e9 \U0001f600"]
LABELS = ["bad", "good"]


@pytest.fixture(scope="module")
def preprocessors(mask_tokenizer, tiny_tokenizer):
    """By name: the preprocessor and `(x, y)` for training; none of the options at its default."""
    lengths = {"sequence_length": 24, "truncate": True}
    words = [text.split() for text in TEXTS]
    return {
        "classifier": (
            TextClassifierPreprocessor(mask_tokenizer, labels=LABELS, segments=True, **lengths),
            (TEXTS, [0, 1, 0, 1]),
        ),
        "pairs": (
            TextClassifierPreprocessor(
                mask_tokenizer, labels=3, problem="multi_label", pairs=True, pair_separators=2, **lengths
            ),
            ((TEXTS, TEXTS[::-1]), [[0], [1, 2], [], [2]]),
        ),
        "tagger": (
            TokenClassifierPreprocessor(mask_tokenizer, labels=["O", "B-X"], split="space", **lengths),
            (words, [["O"] * len(row) for row in words]),
        ),
        "embedder": (
            TextEmbedderPreprocessor(mask_tokenizer, objective="cosine_regression", **lengths),
            ((TEXTS, TEXTS[::-1]), [0.5, -1, 1, 0]),
        ),
        "masked": (
            MaskedLMPreprocessor(mask_tokenizer, mask_rate=0.5, mask_share=0.5, random_share=0.2, whole_words=True),
            (TEXTS, None),
        ),
        "causal": (CausalLMPreprocessor(tiny_tokenizer, add_start_token=False, **lengths), (TEXTS, None)),
        "seq2seq": (
            Seq2SeqLMPreprocessor(
                tiny_tokenizer, decoder_start_token=tiny_tokenizer.id_to_token(tiny_tokenizer.end_id)
            ),
            (TEXTS, TEXTS[::-1]),
        ),
    }


KINDS = ["classifier", "pairs", "tagger", "embedder", "masked", "causal", "seq2seq"]


def arrays(values):
    return keras.tree.map_structure(lambda value: None if value is None else np.asarray(value), values)


def assert_same(first, second):
    keras.tree.assert_same_structure(first, second)
    for one, other in zip(keras.tree.flatten(first), keras.tree.flatten(second), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_eager_is_graph_is_dataset(preprocessors, kind):
    preprocessor, (x, y) = preprocessors[kind]
    weights = np.array([1.0, 0.0, 2.0, 0.5], "float32")
    expected = arrays(preprocessor(x, y, weights))
    checked = preprocessor.check_training_rows(x, "x")
    targets = preprocessor.check_targets(y, checked, "y", "x")
    in_graph = tf.function(lambda: preprocessor.training_batch(checked, targets, weights, seed=1), autograph=False)()
    assert_same(expected, arrays(in_graph))
    columns = (checked, weights) if targets is None else (checked, targets, weights)
    dataset = tf.data.Dataset.from_tensors(columns)
    if targets is None:
        dataset = dataset.map(lambda x, w: preprocessor.training_batch(x, None, w, seed=1))
    else:
        dataset = dataset.map(lambda x, y, w: preprocessor.training_batch(x, y, w, seed=1))
    assert_same(expected, arrays(next(iter(dataset))))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_for_inference(preprocessors, kind):
    preprocessor, (x, _) = preprocessors[kind]
    x = TEXTS if kind == "embedder" else x
    expected = arrays(preprocessor(x))
    checked = preprocessor.check_rows(x, "x")
    assert_same(expected, arrays(tf.function(lambda: preprocessor.inference_batch(checked), autograph=False)()))
    # few lengths, and each row what it is alone
    for name, value in expected.items():
        assert value.shape[1] == padded_length(value.shape[1], preprocessor.sequence_length), name
    lengths = np.asarray(preprocessor.lengths(checked))
    mask = next(value for name, value in expected.items() if name.endswith("padding_mask"))
    longest = preprocessor.sequence_length or lengths.max()
    np.testing.assert_array_equal(mask.sum(1), np.minimum(lengths, longest))


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_restored(preprocessors, kind):
    preprocessor, (x, y) = preprocessors[kind]
    for again in (
        type(preprocessor).from_config(preprocessor.get_config()),
        keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(preprocessor)),
        preprocessor.replace(),
    ):
        assert again.options() == preprocessor.options()
        assert_same(arrays(again(x, y)), arrays(preprocessor(x, y)))
    shorter = preprocessor.replace(sequence_length=5)
    assert (shorter.sequence_length, shorter.truncate) == (5, preprocessor.truncate)


def test_lengths_are_those_of_the_backbone(mask_tokenizer, encoder_config):
    open_one = TextClassifierPreprocessor(mask_tokenizer, labels=2)
    assert (open_one.sequence_length, open_one.segments) == (None, None)
    assert open_one(["alpha " * 100])["token_ids"].shape == (1, padded_length(102))
    adapted = open_one.for_backbone(encoder_config)
    assert (adapted.sequence_length, adapted.segments) == (24, True) and "segment_ids" in adapted(["alpha"])
    assert open_one.sequence_length is None
    with pytest.raises(ValueError, match=r"x\[0\] has 102 tokens with its special tokens.*max_length=24"):
        adapted(["alpha " * 100])
    with pytest.raises(ValueError, match="sequence_length must be an integer from 1 to 24, got 25"):
        open_one.replace(sequence_length=25).for_backbone(encoder_config)


def test_prompts(tiny_tokenizer):
    """Token by token: start token, the end of a prompt that is cut, shifted labels."""
    preprocessor = CausalLMPreprocessor(tiny_tokenizer)
    start, end = tiny_tokenizer.start_id, tiny_tokenizer.end_id
    ids = [tiny_tokenizer.tokenize(text).numpy().tolist() for text in TEXTS]
    assert preprocessor.prompt_ids(tf.constant(TEXTS)).to_list() == [[start, *row] for row in ids]
    assert preprocessor.prompt_ids(tf.constant(TEXTS), keep=3).to_list() == [[start, *row[-2:]] for row in ids]
    assert preprocessor.text_ids(tf.constant(TEXTS)).to_list() == [[start, *row, end] for row in ids]
    inputs, labels, weights = preprocessor(TEXTS, sample_weight=[1.0, 2.0, 0.5, 1.0])
    for row, tokens in enumerate(ids):
        count = len(tokens) + 1
        assert inputs["token_ids"][row, :count].numpy().tolist() == [start, *tokens]
        assert labels[row, :count].numpy().tolist() == [*tokens, end]
        assert weights[row].numpy().sum() == count * [1.0, 2.0, 0.5, 1.0][row]
        assert inputs["padding_mask"][row].numpy().sum() == count


def test_texts_with_weights_end_to_end(tiny_tokenizer):
    preprocessor = CausalLMPreprocessor(tiny_tokenizer, sequence_length=8)
    generator = random.Random(0)
    texts = [" ".join(generator.choices(["alpha", "beta", "omega"], k=generator.randint(0, 6))) for _ in range(20)]
    weights = np.arange(20) / 8
    batches = list(preprocessor.packed_dataset(texts, 4, sample_weight=weights, shuffle=False))
    labels, of_tokens = (np.concatenate([batch[part].numpy().ravel() for batch in batches]) for part in (1, 2))
    expected = [
        (label, weight)
        for text, weight in zip(texts, weights, strict=True)
        for label in [*tiny_tokenizer.tokenize(text).numpy(), tiny_tokenizer.end_id]
    ]
    count = len(expected)
    np.testing.assert_array_equal(labels[:count], [label for label, _ in expected])
    np.testing.assert_allclose(of_tokens[:count], [weight for _, weight in expected])
    assert not of_tokens[count:].any()


def test_sources_that_are_cut_keep_their_end(tiny_tokenizer):
    preprocessor = Seq2SeqLMPreprocessor(tiny_tokenizer, sequence_length=5)
    long, short = "alpha beta " * 10, "omega"
    end = tiny_tokenizer.end_id
    cut = [*tiny_tokenizer.tokenize(long).numpy().tolist()[:4], end]
    ids, mask = preprocessor.source_batch(tf.constant([long, short]), truncate=True)
    assert ids[0].numpy().tolist() == cut and mask.numpy().sum(1).tolist() == [5, 2]
    with pytest.raises(ValueError, match=r"x\[0\] has 21 tokens with its end token"):
        preprocessor([long])
    inputs, labels, _ = preprocessor.replace(truncate=True)([short, long], [long, short])
    assert labels[0].numpy().tolist() == cut
    assert inputs["decoder_token_ids"][0].numpy().tolist() == [tiny_tokenizer.start_id, *cut[:4]]
    assert inputs["encoder_token_ids"][1].numpy().tolist() == cut
