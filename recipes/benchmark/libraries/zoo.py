"""The works made of this library."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras

import zoo
from recipes.benchmark.configurations import configuration
from recipes.benchmark.libraries.batches import padding_mask, token_ids
from recipes.benchmark.works import Work
from zoo.training import TokenCrossEntropy


class AllLogits(TokenCrossEntropy):
    """The same loss, which a model cannot know to be computed from less than all logits."""


def make(
    work: Work, *, dtype: str = "float32", jit_compile: bool = False, remat: bool = False, all_logits: bool = False
) -> Callable[[], Any]:
    """Returns a function that does the work once.

    Args:
        work: The work.
        dtype: Policy of the model; of its weights, where nothing is trained.
        jit_compile: Whether XLA compiles the step.
        remat: Whether training computes what is inside of a block again in the backward pass.
        all_logits: Whether training holds all logits, as with a loss of the user's own.
    """
    trains = work.job == "train"
    keras.config.set_dtype_policy(dtype if trains else dtype.removeprefix("mixed_"))
    keras.utils.set_random_seed(0)
    if work.model == "encoder":
        model, mask = zoo.Backbone.from_config(configuration(work)), padding_mask(work)
        inputs = {"token_ids": token_ids(work), "padding_mask": mask}
        # compiled for the function of predict_on_batch alone
        model.compile(jit_compile=jit_compile)
        return lambda: model.predict_on_batch(inputs)
    if work.job == "generate":
        return _generation(work, jit_compile)
    model, batch = _task_and_batch(work, remat)
    loss = (AllLogits if all_logits else TokenCrossEntropy)(_SMOOTHING[work.model])
    model.compile(keras.optimizers.Adam(1e-4), loss, jit_compile=jit_compile)
    return lambda: model.train_on_batch(*batch)


_SMOOTHING = {"decoder": 0.0, "encoder_decoder": 0.1}


def _task_and_batch(work: Work, remat: bool) -> tuple[zoo.Task, tuple[Any, ...]]:
    backbone = zoo.Backbone.from_config(dataclasses.replace(configuration(work), remat=remat))
    ids = token_ids(work, longer=1)
    if work.model == "decoder":
        inputs = {"token_ids": ids[:, :-1], "padding_mask": ids[:, :-1] > 0}
        return zoo.CausalLM(backbone), (inputs, ids[:, 1:])
    mask = padding_mask(work)
    sides = {"token_ids": ids[:, :-1], "padding_mask": mask}
    inputs = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sides.items()}
    return zoo.Seq2SeqLM(backbone), (inputs, ids[:, 1:], mask.astype("float32"))


def _generation(work: Work, jit_compile: bool) -> Callable[[], Any]:
    model = zoo.CausalLM(zoo.Backbone.from_config(configuration(work)))
    prompts = token_ids(work).tolist()
    sampler = "greedy" if work.beams == 1 else zoo.Beam(work.beams)
    options = {"max_new_tokens": work.new_tokens, "sampler": sampler, "jit_compile": jit_compile}
    return lambda: model.generate_tokens(prompts, **options)
