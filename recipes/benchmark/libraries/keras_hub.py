"""The works made of KerasHub."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import keras_nlp
import numpy as np

from recipes.benchmark.libraries.batches import padding_mask, token_ids
from recipes.benchmark.step_data import symbolic_inputs
from recipes.benchmark.works import Work


def make(work: Work, *, dtype: str = "float32", jit_compile: bool = False) -> Callable[[], Any]:
    """Returns a function that does the work once.

    Args:
        work: The work.
        dtype: Policy of the model; of its weights, where nothing is trained.
        jit_compile: Whether XLA compiles the step.
    """
    keras.config.set_dtype_policy(dtype if work.job == "train" else dtype.removeprefix("mixed_"))
    keras.utils.set_random_seed(0)
    sizes = {
        "vocabulary_size": work.vocabulary_size,
        "num_layers": work.num_layers,
        "num_heads": work.num_heads,
        "hidden_dim": work.hidden_dim,
        "intermediate_dim": work.intermediate_dim,
        "dropout": work.dropout,
    }
    ids = token_ids(work, longer=1)
    if work.model == "encoder":
        model = keras_nlp.models.BertBackbone(**sizes, max_sequence_length=512)
        model.compile(jit_compile=jit_compile)
        inputs = {"token_ids": ids[:, :-1], "padding_mask": padding_mask(work), "segment_ids": 0 * ids[:, :-1]}
        return lambda: model.predict_on_batch(inputs)
    if work.model == "encoder_decoder":
        model, mask = encoder_decoder(work), padding_mask(work)
        sides = {"token_ids": ids[:, :-1], "padding_mask": mask}
        inputs = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sides.items()}
        return _training(model, jit_compile, inputs, ids[:, 1:], mask.astype("float32"))
    backbone = keras_nlp.models.GPT2Backbone(**sizes, max_sequence_length=1024)
    model = keras_nlp.models.GPT2CausalLM(backbone=backbone, preprocessor=None)
    if work.job == "train":
        inputs = {"token_ids": ids[:, :-1], "padding_mask": np.ones_like(ids[:, :-1])}
        return _training(model, jit_compile, inputs, ids[:, 1:])
    sampler = "greedy" if work.beams == 1 else keras_nlp.samplers.BeamSampler(num_beams=work.beams)
    model.compile(sampler=sampler, jit_compile=jit_compile)
    # the output has the length of the inputs
    padding = ((0, 0), (0, work.new_tokens))
    prompts = np.pad(token_ids(work), padding)
    inputs = {"token_ids": prompts, "padding_mask": np.pad(np.ones_like(token_ids(work)), padding)}
    return lambda: model.generate(inputs, stop_token_ids=None)


def _training(model: Any, jit_compile: bool, *batch: Any) -> Callable[[], Any]:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # its tasks add metrics where none are named
    model.compile(keras.optimizers.Adam(1e-4), loss, weighted_metrics=[], jit_compile=jit_compile)
    return lambda: model.train_on_batch(*batch)


def encoder_decoder(work: Work) -> keras.Model:
    """Returns a Transformer as the documentation of KerasHub composes it, with one embedding shared three ways.

    Args:
        work: The sizes.
    """
    inputs = symbolic_inputs()
    embedding = keras_nlp.layers.ReversibleEmbedding(work.vocabulary_size, work.hidden_dim)

    def embed(ids: Any) -> Any:
        x = embedding(ids) * work.hidden_dim**0.5
        return keras.layers.Dropout(work.dropout)(x + keras_nlp.layers.SinePositionEncoding()(x))

    options = {"intermediate_dim": work.intermediate_dim, "num_heads": work.num_heads, "dropout": work.dropout}
    x = embed(inputs["encoder_token_ids"])
    for _ in range(work.num_layers):
        x = keras_nlp.layers.TransformerEncoder(**options)(x, padding_mask=inputs["encoder_padding_mask"])
    y = embed(inputs["decoder_token_ids"])
    for _ in range(work.num_layers):
        y = keras_nlp.layers.TransformerDecoder(**options)(
            y,
            x,
            decoder_padding_mask=inputs["decoder_padding_mask"],
            encoder_padding_mask=inputs["encoder_padding_mask"],
        )
    return keras.Model(inputs, embedding(y, reverse=True))
