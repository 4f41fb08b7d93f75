"""The journey of a published checkpoint: stories260K tells the same story wherever it is taken."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from safetensors.numpy import load_file  # noqa: E402

from zoo import CausalLM  # noqa: E402
from zoo.presets.llama2c import load_llama2c  # noqa: E402
from zoo.tokenizers import SentencePieceTokenizer  # noqa: E402

FOLDER = Path(os.environ.get("ZOO_DATA", "")) / "checkpoints" / "stories260K"
pytestmark = pytest.mark.skipif(
    "ZOO_DATA" not in os.environ or not FOLDER.is_dir(),
    reason="needs ZOO_DATA, a folder with checkpoints/stories260K (huggingface.co/karpathy/tinyllamas)",
)
# run.c writes 256 tokens after the start token
OPTIONS = {"max_new_tokens": 256, "jit_compile": False}
SERVE = """
import json, sys
import tensorflow as tf
import tensorflow_text
model = tf.saved_model.load(sys.argv[1])
texts = model.serve(tf.constant(["", "Lily\'s mom said"])).numpy()
assert not {"sentencepiece", "zoo", "layers"} & set(sys.modules)
print(json.dumps([text.decode() for text in texts]))
"""
TRANSFORMERS = """
import json, sys
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], attn_implementation="eager")
print(json.dumps(model.generate(torch.tensor([[1]]), max_new_tokens=256, do_sample=False)[0].tolist()))
"""


def run(python, code, path):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([python, "-c", code, str(path)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def story():
    page = (FOLDER / "stories260K.md").read_text(encoding="utf-8")
    return page.split("-t 0.0\n", 1)[1].split("\n```", 1)[0]


@pytest.fixture(scope="module")
def model():
    proto = (FOLDER / "tok512.model").read_bytes()
    tokenizer = SentencePieceTokenizer(proto, start_token="<s>", end_token="</s>")
    return CausalLM(load_llama2c(FOLDER / "stories260K.bin"), tokenizer)


@pytest.fixture(scope="module")
def written(model, tmp_path_factory):
    """The model as one of the Transformers library."""
    folder = tmp_path_factory.mktemp("stories") / "transformers"
    with pytest.warns(UserWarning, match="has no equal in a tokenizer.json"):
        assert model.save_to_huggingface(folder) == "llama"
    return folder


def test_greedily_and_in_a_stream(model, story):
    assert model.generate("", **OPTIONS) == story
    parts = list(model.stream("", chunk=50, **OPTIONS))
    assert len(parts) > 5 and "".join(parts) == story


def test_served_by_strings(model, story, tmp_path):
    model.export(tmp_path / "served", **OPTIONS)
    first, second = run(sys.executable, SERVE, tmp_path / "served")
    assert first == story
    assert second == model.generate("Lily's mom said", **OPTIONS)


def test_made_int8(model, story, tmp_path):
    model.save_to_preset(tmp_path / "float32")
    small = CausalLM.from_preset(tmp_path / "float32")
    small.quantize("int8")
    text = small.generate("", **OPTIONS)
    assert text.startswith(story[:172])  # up to "it was too high."
    small.save_to_preset(tmp_path / "int8")
    sizes = [(tmp_path / name / "model.weights.h5").stat().st_size for name in ("float32", "int8")]
    assert sizes[1] < 0.5 * sizes[0]
    assert CausalLM.from_preset(tmp_path / "int8").generate("", **OPTIONS) == text


def test_written_and_read_back(model, story, written, tmp_path):
    again = CausalLM.from_preset(written)
    assert again.backbone.config.position.layout is None  # half and half, where the checkpoint has pairs
    assert again.generate("", **OPTIONS) == story
    with pytest.warns(UserWarning, match="has no equal in a tokenizer.json"):
        again.save_to_huggingface(tmp_path / "again")
    tensors, others = (load_file(folder / "model.safetensors") for folder in (written, tmp_path / "again"))
    assert len(tensors) == 47 and tensors.keys() == others.keys()
    assert all(tensors[name].tobytes() == others[name].tobytes() for name in tensors)
    # only queries and keys are in another order: 0, 2, 4, 6, 1, 3, 5, 7 of each head
    block = model.backbone.decoder.blocks[0]
    for part, heads in (("query", 8), ("key", 4), ("value", 4)):
        kernel = np.asarray(getattr(block.attention, f"{part}_projection").kernel).T.reshape(heads, 8, 64)
        kernel = kernel if part == "value" else kernel[:, [0, 2, 4, 6, 1, 3, 5, 7]]
        stored = tensors[f"model.layers.0.self_attn.{part[0]}_proj.weight"]
        np.testing.assert_array_equal(stored.reshape(heads, 8, 64), kernel)


def test_told_by_the_transformers_library(model, story, written):
    has_both = all(importlib.util.find_spec(name) for name in ("transformers", "torch"))
    python = os.environ.get("ZOO_TRANSFORMERS", sys.executable if has_both else None)
    if python is None:
        pytest.skip("needs transformers and torch, or ZOO_TRANSFORMERS, the path of a Python that has them")
    token_ids = run(python, TRANSFORMERS, written)
    assert token_ids[:4] == [1, 403, 407, 261]
    assert model.tokenizer.detokenize([token_ids[1:]])[0] == story
