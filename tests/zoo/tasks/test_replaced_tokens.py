"""Replaced tokens: labels, training, places, export."""

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.tasks import ReplacedTokenDetector  # noqa: E402


@pytest.fixture(scope="module")
def detector(make_task):
    return make_task(ReplacedTokenDetector, replace_rate=0.4)


def test_labels_tell_what_was_replaced(detector, texts, mask_tokenizer):
    true, ids = detector.preprocessor(texts[:16]), mask_tokenizer.tokenize(texts[:16])
    inputs, labels, weights = detector.preprocessor.training_batch(tf.constant(texts[:16]), None, None, 3)
    changed = inputs["token_ids"].numpy() != true["token_ids"].numpy()
    np.testing.assert_array_equal(labels.numpy()[:, :, 0], changed)
    np.testing.assert_array_equal(weights.numpy(), true["padding_mask"].numpy())
    special = [mask_tokenizer.token_to_id(token) for token in mask_tokenizer.special_tokens]
    assert not np.isin(inputs["token_ids"].numpy()[changed], special).any()
    places = np.arange(changed.shape[1])[None]
    assert not changed[(places < 1) | (places > ids.row_lengths().numpy()[:, None])].any()
    assert 0.2 < changed.sum() / ids.row_lengths().numpy().sum() < 0.45
    again = detector.preprocessor.training_batch(tf.constant(texts[:16]), None, None, 3)
    np.testing.assert_array_equal(inputs["token_ids"], again[0]["token_ids"])


def test_loss_is_the_mean_over_tokens(detector, texts):
    inputs, labels, weights = detector.preprocessor.training_batch(tf.constant(texts[:8]), seed=1)
    logits = np.array(detector({name: value.numpy() for name, value in inputs.items()}), "float64")[:, :, 0]
    truth, mask = labels.numpy()[:, :, 0], weights.numpy() > 0
    losses = np.log1p(np.exp(np.where(truth == 1, -logits, logits)))[mask]
    found = detector.evaluate(texts[:8], batch_size=8, verbose=0)
    np.testing.assert_allclose(found, [losses.mean(), ((logits > 0) == truth)[mask].mean()], rtol=1e-4)


@pytest.mark.slow
def test_detects_and_is_served(make_task, texts, tmp_path):
    model = make_task(ReplacedTokenDetector, truncate=True, sequence_length=12)
    model.compile(keras.optimizers.Adam(0.01), run_eagerly=True)
    losses = model.fit(texts[:32], epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    rows = ["alpha \u00fcber beta", "", "omega " * 30]
    found = model.detect(rows)
    assert [len(row) for row in found][1:] == [0, 10] and found[0] == model.detect(rows[0])
    for row, probabilities, text in zip(found, model.predict(rows), rows, strict=True):
        np.testing.assert_allclose([token.probability for token in row], probabilities)
        assert all(text[token.start : token.end] == token.text for token in row)
        assert "".join(token.text for token in row).split() == text.split()[: 10 if len(row) == 10 else None]
    model.export(tmp_path / "export")
    served = tf.saved_model.load(tmp_path / "export")
    output = {name: value.numpy() for name, value in served.serve(rows).items()}
    for index, row in enumerate(found):
        count = output["counts"][index]
        assert count == len(row) and not output["probabilities"][index, count:].any()
        np.testing.assert_allclose(output["probabilities"][index, :count], [token[3] for token in row], rtol=1e-3)
        places = list(zip(output["starts"][index], output["ends"][index], strict=True))[:count]
        found_texts = [rows[index].encode()[start:end].decode("utf-8", "replace") for start, end in places]
        assert found_texts == [token.text for token in row]
    with pytest.raises(ValueError, match="replace_rate must be above 0 and below 1, got 1"):
        make_task(ReplacedTokenDetector, replace_rate=1)
