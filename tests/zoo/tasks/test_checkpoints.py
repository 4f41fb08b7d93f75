"""`ModelCheckpoint` in `fit`, and a fresh process that only imports `zoo` and calls `keras.models.load_model`."""

import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

pytest.importorskip("tensorflow")

from zoo.tasks import TextClassifier, TokenClassifier  # noqa: E402

CLIENT = """
import json, sys
import keras
import zoo

results = {}
for name, path in json.load(sys.stdin).items():
    model = keras.models.load_model(path)
    model.run_eagerly = True
    values = model.predict(["alpha beta", "omega"])
    lora = [weight.path for weight in model.trainable_variables if "lora" in weight.path]
    results[name] = {"kind": type(model).__name__, "values": [value.tolist() for value in values], "lora": len(lora)}
print(json.dumps(results))
"""


@pytest.mark.slow
def test_best_models_load_in_a_fresh_process(make_task, texts, tmp_path):
    x, y = texts[:16], [int("alpha" in text) for text in texts[:16]]
    models = {
        "classifier": make_task(TextClassifier, labels=2, head_dropout=0.0),
        "adapted": make_task(TextClassifier, labels=2, head_dropout=0.0, seed=1),
    }
    models["adapted"].enable_lora(2)
    paths, expected = {}, {}
    for name, model in models.items():
        paths[name] = str(tmp_path / name / "best.keras")
        model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
        callback = keras.callbacks.ModelCheckpoint(paths[name], save_best_only=True)
        model.fit(x, y, validation_data=(x, y), callbacks=[callback], batch_size=16, verbose=0)
        expected[name] = model.predict(["alpha beta", "omega"])
    # a task whose predictions are lists
    models["tagger"] = make_task(TokenClassifier, labels=3)
    paths["tagger"] = str(tmp_path / "tagger.keras")
    models["tagger"].save(paths["tagger"])
    expected["tagger"] = models["tagger"].predict(["alpha beta", "omega"])
    root = Path(__file__).parents[3]
    result = subprocess.run(
        [sys.executable, "-c", CLIENT], input=json.dumps(paths), capture_output=True, text=True, cwd=root
    )
    assert result.returncode == 0, result.stderr[-2000:]
    found = json.loads(result.stdout.splitlines()[-1])
    for name, model in models.items():
        assert found[name]["kind"] == type(model).__name__
        assert found[name]["lora"] == (4 if name == "adapted" else 0)
        for one, other in zip(found[name]["values"], expected[name], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
