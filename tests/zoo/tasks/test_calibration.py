"""Temperatures, thresholds and calibration errors of classifiers, saved with them."""

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.huggingface.unsupported_parts import check_options  # noqa: E402
from zoo.tasks import TextClassifier, TokenClassifier  # noqa: E402
from zoo.training.calibration import best_thresholds, calibration_error, fit_temperature  # noqa: E402

LABELS = ["bad", "good", "so-so"]


@pytest.mark.parametrize("several", [False, True])
def test_temperature_of_logits_that_are_too_large(several):
    """Labels drawn from known probabilities: the temperature is what their logits were multiplied by."""
    from sklearn.metrics import log_loss

    generator = np.random.default_rng(0)
    logits = generator.normal(size=(4000, 3)) * 2
    if several:
        labels = (generator.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype("float32")
    else:
        labels = (logits + generator.gumbel(size=logits.shape)).argmax(1)
    found = fit_temperature(logits * 2.5, labels)
    assert found.temperature == pytest.approx(2.5, rel=0.06)

    def measures(logits):
        if several:
            probabilities = 1 / (1 + np.exp(-logits))
            flat, truth = probabilities.ravel(), labels.ravel()
            sure, right = np.maximum(flat, 1 - flat), (flat >= 0.5) == (truth == 1)
            return log_loss(truth, flat), sure, right
        powers = np.exp(logits)
        probabilities = powers / powers.sum(1, keepdims=True)
        right = probabilities.argmax(1) == labels
        return log_loss(labels, probabilities), probabilities.max(1), right

    for temperature, loss, error in zip((1, found.temperature), found[3:], found[1:3], strict=True):
        expected, sure, right = measures(logits * 2.5 / temperature)
        assert loss == pytest.approx(expected, rel=1e-6)
        bins = [(sure > low / 15) & (sure <= (low + 1) / 15) for low in range(15)]
        gaps = sum(abs(right[each].mean() - sure[each].mean()) * each.mean() for each in bins if each.any())
        assert error == pytest.approx(gaps, rel=1e-6)
    assert found.error_after < 0.03 < found.error_before
    assert all(measures(logits * 2.5 / (found.temperature * by))[0] > found.loss_after for by in (0.95, 1.05))


def test_what_no_temperature_is_best_for():
    with pytest.raises(ValueError, match="must hold wrong predictions, got 2 rows without any"):
        fit_temperature(np.array([[3.0, 0.0], [0.0, 3.0]]), np.array([0, 1]))
    with pytest.raises(ValueError, match="at least one decision"):
        calibration_error([], [])


@pytest.mark.parametrize(
    ("logits", "labels", "reason"),
    [
        ([[1.0, 0.0]] * 4, [0, 1, 1, 1], "is 100, the highest that is tried: equal probabilities .* are likelier"),
        ([[1.0, -0.5]] * 3, [[0, 1], [0, 1], [1, 1]], "is 100, .*: equal probabilities .* class weights"),
        ([[3000.0, 0.0]] * 4, [0, 0, 0, 1], "is 100, the highest that is tried: logits are very large"),
        ([[1e-4, 0.0]] * 400, [0] * 399 + [1], "is 0.01, the lowest that is tried: logits are very small"),
    ],
)
def test_temperature_at_a_bound_is_said(logits, labels, reason):
    with pytest.warns(UserWarning, match=reason) as found:
        fit_temperature(np.array(logits), np.array(labels))
    assert found[0].filename == __file__


def test_thresholds_have_the_highest_f1():
    from sklearn.metrics import f1_score

    generator = np.random.default_rng(0)
    labels = (generator.random((60, 3)) < [0.2, 0.5, 0.0]).astype(int)
    # rounded, so that some are equal
    scores = np.round(np.clip(labels * 0.2 + generator.random((60, 3)) * 0.7, 0, 1), 2)
    found = best_thresholds(scores, labels)
    assert found[2] == 0.5
    for label in range(2):
        best = max(f1_score(labels[:, label], scores[:, label] >= value) for value in np.unique(scores[:, label]))
        assert f1_score(labels[:, label], scores[:, label] >= found[label]) == best
    assert best_thresholds(np.array([[0.1], [0.3], [0.4]]), np.array([[0], [1], [1]])) == pytest.approx(0.2)
    assert best_thresholds(np.array([[0.1], [0.9]]), np.array([[0], [1]])) == 0.5


@pytest.fixture(scope="module")
def several(make_task, texts):
    model = make_task(TextClassifier, labels=LABELS, problem="multi_label", pooling="mean")
    y = [[LABELS[index] for index in range(3) if (row >> index) & 1] for row in range(16)]
    logits = np.log(1 / (1 / model.predict(texts[:16]) - 1))
    calibration = model.calibrate(texts[:16], y)
    thresholds = model.tune_thresholds(texts[:16], y)
    assert calibration.temperature == model.temperature != 1 and thresholds == dict(
        zip(LABELS, model.threshold, strict=True)
    )
    np.testing.assert_allclose(model.predict(texts[:16]), 1 / (1 + np.exp(-logits / model.temperature)), rtol=1e-3)
    return model


def test_classifier_keeps_temperature_and_thresholds(several, texts, tmp_path):
    model, some = several, texts[:20]
    expected, names = model.predict(some), model.classify(some)
    holds = expected >= np.array(model.threshold, "float32")
    assert names == [[LABELS[index] for index in np.flatnonzero(row)] for row in holds]
    assert holds.any() and not holds.all() and (holds != (expected >= 0.5)).any()
    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "model.keras")
    for loaded in (TextClassifier.from_preset(tmp_path / "preset"), keras.saving.load_model(tmp_path / "model.keras")):
        loaded.run_eagerly = True
        np.testing.assert_allclose(loaded.predict(some), expected, rtol=1e-4)
        assert loaded.classify(some) == names and loaded.threshold == model.threshold
    served = tf.function(model.endpoints()["serve"].function)(tf.constant(some))
    np.testing.assert_allclose(served["probabilities"], expected, rtol=1e-4)
    np.testing.assert_array_equal(served["has_label"], holds)
    # a head for other labels starts without them
    with pytest.warns(UserWarning, match="starts untrained"):
        other = TextClassifier.from_preset(tmp_path / "preset", labels=["a", "b"])
    assert (other.temperature, other.threshold) == (1, 0.5)
    with pytest.raises(ValueError, match="threshold must be 0.5 in files of another library"):
        model.save_to_huggingface(tmp_path / "huggingface")
    # what is assigned is checked, too
    for name, value in (("temperature", 0), ("threshold", np.array([0.5] * 3)), ("threshold", 2)):
        with pytest.raises(ValueError, match=f"{name} must be"):
            setattr(other, name, value)
    other = TextClassifier(model.backbone, model.tokenizer, labels=2, problem="multi_label", stride=2)
    other.threshold = np.array([0.5, 0.5])
    assert other.threshold == (0.5, 0.5)
    with pytest.warns(UserWarning, match="no place for stride=2: give them to TextClassifier.from_preset again"):
        check_options(other)


def test_tagger_keeps_its_temperature(make_task, tmp_path):
    tagger = make_task(TokenClassifier, labels=["O", "B-X", "I-X"])
    words = [["alpha", "kapex", "", "beta"], [], ["omega"], ["gamma", "beta"]]
    tags = [["O", "B-X", "O", "I-X"], [], ["B-X"], ["O", "B-X"]]
    before = [np.log(np.maximum(row, 1e-30)) for row in tagger.predict(words)]
    found = tagger.calibrate(words, tags)
    # the word without tokens does not count
    flat = np.delete(np.concatenate(before), 2, axis=0)
    expected = fit_temperature(flat, np.array([0, 1, 2, 1, 0, 1]))
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    after = tagger.predict(words)
    powers = np.exp(before[0][1] / found.temperature)
    np.testing.assert_allclose(after[0][1], powers / powers.sum(), rtol=1e-4)
    tagger.save_to_preset(tmp_path / "preset")
    loaded = TokenClassifier.from_preset(tmp_path / "preset")
    assert loaded.temperature == tagger.temperature
    loaded.run_eagerly = True
    np.testing.assert_allclose(loaded.predict(words)[0], after[0], rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature must be a finite number above 0, got 0.0"),
        ({"problem": "regression", "temperature": 2.0}, "temperature must be 1 in a regression, got 2.0"),
        ({"threshold": 0.3}, "threshold must be 0.5 with problem='single_label', got 0.3"),
        ({"problem": "multi_label", "threshold": [0.3]}, "one for each of the 3 labels, got .0.3."),
        ({"problem": "multi_label", "threshold": 1.5}, "threshold must be from 0 to 1, got 1.5"),
    ],
)
def test_wrong_choices(make_task, options, message):
    with pytest.raises(ValueError, match=message):
        make_task(TextClassifier, labels=3, **options)


def test_what_needs_labels(make_task):
    values = make_task(TextClassifier, labels=1, problem="regression")
    with pytest.raises(ValueError, match=r"calibrate\(\) needs labels"):
        values.calibrate(["alpha"], [1.0])
    with pytest.raises(ValueError, match=r"tune_thresholds\(\) needs several labels per text, got a regression"):
        values.tune_thresholds(["alpha"], [1.0])
    with pytest.raises(ValueError, match="threshold must be None where a text does not have several labels"):
        values.classify(["alpha"], threshold=0.3)
