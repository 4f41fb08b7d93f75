"""Raw texts in fit and evaluate: every way to pass them, and what is said where they are wrong."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

WORDS = "alpha beta gamma kappa iota lambda omega".split()


@pytest.fixture(scope="module")
def model(tiny_config, tiny_tokenizer):
    """A model that does not learn, so that losses can be compared; eager, because a graph costs more than it saves."""
    import keras

    from zoo import Backbone, Seq2SeqLM
    from zoo.training.losses import TokenCrossEntropy

    keras.utils.set_random_seed(0)
    model = Seq2SeqLM(Backbone.from_config(tiny_config), tiny_tokenizer)
    model.compile(keras.optimizers.SGD(0.0), TokenCrossEntropy(), run_eagerly=True)
    return model


@pytest.fixture(scope="module")
def losses(model):
    """Negative log-likelihood of each word given itself; each is one token, and there is the end token."""
    return -np.array([model.score([word], [word])[0] for word in WORDS])


def mean_loss(losses, rows, weights):
    return (losses[list(rows)] * weights).sum() / (2 * np.count_nonzero(weights))


def ways(x, y):
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    return {
        "lists": (x, y),
        "tuples": (tuple(x), tuple(y)),
        "arrays": (np.array(x), np.array(y)),
        "objects": (np.array(x, dtype=object), np.array([text.encode() for text in y])),
        "tensors": (tf.constant(x), tf.constant(y)),
        "dataset of rows": (dataset,),
        "dataset of batches": (dataset.batch(3),),
    }


@pytest.mark.parametrize("way", ways(WORDS, WORDS))
def test_every_way_to_pass_texts(model, losses, way):
    expected = mean_loss(losses, range(7), np.ones(7))
    options = {} if way == "dataset of batches" else {"batch_size": 7}
    arguments = ways(WORDS, WORDS)[way]
    np.testing.assert_allclose(model.evaluate(*arguments, **options, verbose=0), expected, rtol=1e-4)
    history = model.fit(*arguments, **options, verbose=0).history
    np.testing.assert_allclose(history["loss"][0], expected, rtol=1e-4)


def test_sample_weight(model, losses):
    weights = [1.0, 0.0, 2.0, 0.0, 0.5, 0.0, 0.0]
    expected = mean_loss(losses, range(7), np.array(weights))
    loss = model.evaluate(WORDS, WORDS, sample_weight=weights, batch_size=7, verbose=0)
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    assert abs(expected - mean_loss(losses, range(7), np.ones(7))) > 1e-3
    history = model.fit(WORDS, WORDS, sample_weight=np.array(weights), batch_size=7, verbose=0).history
    np.testing.assert_allclose(history["loss"][0], expected, rtol=1e-4)
    dataset = tf.data.Dataset.from_tensor_slices((WORDS, WORDS, weights))
    np.testing.assert_allclose(model.evaluate(dataset, batch_size=7, verbose=0), expected, rtol=1e-4)


def test_validation_split_takes_the_last_rows(model, losses):
    history = model.fit(WORDS, WORDS, validation_split=0.3, batch_size=7, verbose=0).history
    np.testing.assert_allclose(history["loss"][0], mean_loss(losses, range(4), np.ones(4)), rtol=1e-4)
    np.testing.assert_allclose(history["val_loss"][0], mean_loss(losses, range(4, 7), np.ones(3)), rtol=1e-4)


@pytest.mark.parametrize("kind", ["pair", "triple", "dataset", "token level"])
def test_validation_data(model, losses, kind):
    pair = (WORDS[:2], WORDS[:2])
    validation, expected = {
        "pair": (pair, np.ones(2)),
        "triple": ((*pair, [1.0, 0.0]), np.array([1.0, 0.0])),
        "dataset": (tf.data.Dataset.from_tensor_slices(pair).batch(2), np.ones(2)),
        "token level": (tf.data.Dataset.from_tensors(model.preprocessor.training_batch(*pair)), np.ones(2)),
    }[kind]
    history = model.fit(WORDS, WORDS, validation_data=validation, verbose=0).history
    np.testing.assert_allclose(history["val_loss"][0], mean_loss(losses, range(2), expected), rtol=1e-4)


LONG = "theta " * 40


@pytest.mark.parametrize(
    ("x", "y", "options", "message"),
    [
        ([], [], {}, "x must hold at least one text, got none"),
        (WORDS, WORDS[:-1], {}, "y must hold one target text per source text, got 6 for 7 in x"),
        (WORDS, None, {}, "got None for 7 in x"),
        (["alpha", None], ["a", "b"], {}, r"x\[1\] must be a string, got NoneType None"),
        ([7, "alpha"], ["a", "b"], {}, r"x\[0\] must be a string, got int 7"),
        (WORDS, [*WORDS[:-1], 1.5], {}, r"y\[6\] must be a string, got float 1.5"),
        ("alpha", "beta", {}, "x must be a list of texts, got one text 'alpha': put it in a list"),
        (WORDS, [*WORDS[:-1], LONG], {}, r"y\[6\] has 41 tokens with its end token, .* max_length=32 \(1 of 7 rows"),
        (WORDS, WORDS, {"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        (WORDS, WORDS, {"batch_size": 2.5}, "batch_size must be an integer of at least 1, got 2.5"),
        (
            WORDS,
            WORDS,
            {"sample_weight": [1.0]},
            r"one number for each of the 7 rows, .*\(1,\)",
        ),
        (WORDS, WORDS, {"sample_weight": ["a"] * 7}, "sample_weight must hold one number per row, got"),
        (
            WORDS,
            WORDS,
            {"sample_weight": [*range(6), np.nan]},
            r"sample_weight\[6\] must be .* got nan",
        ),
        (WORDS, WORDS, {"sample_weight": [-1.0] * 7}, r"sample_weight\[0\] must be a finite number of at least 0"),
        (WORDS, WORDS, {"validation_split": 1.5}, "validation_split must be at least 0 and below 1, got 1.5"),
        (WORDS[:1], WORDS[:1], {"validation_split": 0.1}, "of 1 rows leaves 0 for training and 1 for validation"),
        (WORDS, WORDS, {"validation_data": (WORDS, 3)}, r"validation_data\[1\] must be a list, array or tensor"),
        (WORDS, WORDS, {"validation_data": (["a", 3], ["b", "c"])}, r"validation_data\[0\]\[1\] must be a string"),
        (
            WORDS,
            WORDS,
            {"validation_data": (WORDS, WORDS), "validation_split": 0.2},
            "validation_split must be 0 .* 0.2",
        ),
    ],
)
def test_what_is_wrong_is_named_before_the_first_step(model, x, y, options, message):
    before = int(model.optimizer.iterations)
    with pytest.raises((TypeError, ValueError), match=message):
        model.fit(x, y, **options, verbose=0)
    assert int(model.optimizer.iterations) == before


def test_datasets_of_texts_that_are_wrong(model):
    rows = tf.data.Dataset.from_tensor_slices((WORDS, WORDS))
    with pytest.raises(ValueError, match="y must be None where x is a dataset"):
        model.fit(rows, WORDS, verbose=0)
    with pytest.raises(ValueError, match="batch_size must be None with a dataset that holds batches already, got 4"):
        model.fit(rows.batch(2), batch_size=4, verbose=0)
    with pytest.raises(ValueError, match="validation_split must be 0 with a dataset, .*, got 0.5"):
        model.fit(rows, validation_split=0.5, verbose=0)
    long = tf.data.Dataset.from_tensors((["alpha", LONG], ["alpha", "beta"]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"more tokens than the model takes \(32\).*\[1\] \[41\]"):
        model.evaluate(long, verbose=0)


def test_odd_texts_have_defined_results(model):
    odd = ["", " ", "\x00", b"\xff\xfe", "e\u0301 \U0001f600", "\n\t"]
    assert np.isfinite(model.evaluate(odd, odd[::-1], verbose=0))
    assert np.isfinite(model.score(odd, odd[::-1])).all()
