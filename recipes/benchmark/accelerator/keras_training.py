"""Training steps of this library and of KerasHub on JAX: `model.fit` in mixed bfloat16."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

import zoo
from recipes.benchmark.accelerator.devices import jax_device, jax_peak_bytes
from recipes.benchmark.accelerator.jobs import Job, UnavailableError, training_row
from recipes.benchmark.accelerator.kernels import traced_kernels

# Steps that are traced for the list of kernels.
_TRACED = 3
# Most tokens of the tokenizer that is learned from the text of the benchmark.
_LEARNED_TOKENS = 2048


def device() -> str:
    """Returns the name of the device."""
    return jax_device()[0]


def measure(library: str, job: Job) -> Iterator[dict[str, Any]]:
    """Trains a few steps and yields their row, and the kernels by time where the job asks for them.

    Args:
        library: "zoo" or "keras_hub".
        job: The job.
    """
    keras.config.set_dtype_policy("mixed_bfloat16")
    keras.utils.set_random_seed(0)
    model, batch, loss = (_zoo if library == "zoo" else _keras_hub)(job)
    model.compile(keras.optimizers.AdamW(1e-4), loss, jit_compile=True)
    clock = _Clock(job)
    started = time.perf_counter()
    if job.goal == "text":
        history = _fit_texts(model, job, clock)
    else:
        history = model.fit(_Batches(job, batch), verbose=0, callbacks=[clock])
    # the last loss is read at the end of an epoch, when the device has done all steps
    seconds = time.perf_counter() - clock.times[job.warm - 1]
    yield training_row(
        job,
        seconds=seconds,
        first_step=clock.times[0] - started,
        peak_bytes=jax_peak_bytes(),
        loss=float(history.history["loss"][-1]),
    )
    if job.kernels:
        yield _kernels(model, batch(0), seconds / job.steps)


def _kernels(model: keras.Model, batch: tuple[Any, ...], step_seconds: float) -> dict[str, Any]:
    for _ in range(2):
        model.train_on_batch(*batch)

    def steps() -> None:
        for _ in range(_TRACED):
            model.train_on_batch(*batch)

    kernels = [(name, seconds / _TRACED) for name, seconds in traced_kernels(steps)]
    busy = sum(seconds for _, seconds in kernels)
    return {"kind": "kernels", "kernels": kernels[:40], "busy_seconds": busy, "step_seconds": step_seconds}


class _Clock(keras.callbacks.Callback):
    def __init__(self, job: Job) -> None:
        super().__init__()
        self.times: list[float] = []
        self._most = job.warm + job.steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.times.append(time.perf_counter())
        if len(self.times) == self._most:
            # of texts nobody knows beforehand how many rows they fill
            self.model.stop_training = True


class _Batches(keras.utils.PyDataset):
    def __init__(self, job: Job, batch: Callable[[int], tuple[Any, ...]]) -> None:
        super().__init__()
        # made before the clock runs: random numbers are no part of a training loop
        self._batches = [batch(index) for index in range(job.warm + job.steps)]

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return self._batches[index]


def _zoo(job: Job) -> tuple[Any, Callable[[int], tuple[Any, ...]], Any]:
    backbone = zoo.Backbone.from_config(zoo_config(job))
    if job.goal == "masked":
        model = zoo.MaskedLM(backbone)
    elif job.goal == "classes":
        model = zoo.TextClassifier(backbone, labels=["no", "yes"], head_dropout=job.dropout)
    elif job.goal == "seq2seq":
        model = zoo.Seq2SeqLM(backbone)
    elif job.goal == "text":
        model = zoo.CausalLM(backbone, _tokenizer(job))
    else:
        model = zoo.CausalLM(backbone)
    if job.goal == "lora":
        model.enable_lora(8, targets=("query", "value"))
    loss = model.default_loss() if job.goal == "classes" else zoo.training.TokenCrossEntropy()

    def batch(index: int) -> tuple[Any, ...]:
        made = job.batch(index)
        inputs = {name: made[name] for name in ("token_ids", "padding_mask")}
        if job.goal == "masked":
            places = made["masked_positions"]
            return {**inputs, "mask_positions": places}, np.take_along_axis(made["token_ids"], places, axis=1)
        if job.goal == "classes":
            return inputs, made["classes"]
        if job.goal == "seq2seq":
            sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in inputs.items()}
            return sides, made["labels"], made["padding_mask"].astype("float32")
        return inputs, made["labels"]

    return model, batch, loss


def zoo_config(job: Job) -> Any:
    """Returns the configuration of this library's model.

    Args:
        job: The job.
    """
    shape = job.shape
    return zoo.preset_config(
        shape.preset,
        vocabulary_size=shape.vocabulary_size,
        hidden_dim=shape.hidden_dim,
        num_layers=shape.num_layers,
        dropout=job.dropout,
        attention={
            "num_heads": shape.num_heads,
            "num_key_value_heads": shape.num_key_value_heads,
            "head_dim": shape.hidden_dim // shape.num_heads,
            "dropout": job.dropout,
        },
        feed_forward={"intermediate_dim": shape.intermediate_dim, "dropout": 0.0},
    )


def _keras_hub(job: Job) -> tuple[Any, Callable[[int], tuple[Any, ...]], Any]:
    if job.goal != "causal":
        raise UnavailableError(f"KerasHub is compared in training on random tokens, not in {job.goal!r}")
    backbone = hub_backbone(job)
    task = backbone[1](backbone=backbone[0], preprocessor=None)
    # without the text pipeline of the task, which needs TensorFlow or Grain
    model = keras.Model(task.input, task.output)

    def batch(index: int) -> tuple[Any, ...]:
        made = job.batch(index)
        inputs = {"token_ids": made["token_ids"], "padding_mask": made["padding_mask"].astype("int32")}
        return inputs, made["labels"]

    return model, batch, keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def hub_backbone(job: Job) -> tuple[Any, type]:
    """Returns KerasHub's backbone of a decoder, and the class of its language model.

    Args:
        job: The job.

    Raises:
        UnavailableError: If KerasHub is not installed.
    """
    if importlib.util.find_spec("keras_hub") is None:
        raise UnavailableError("keras_hub is not installed")
    import keras_hub

    shape = job.shape
    sizes = {
        "vocabulary_size": shape.vocabulary_size,
        "num_layers": shape.num_layers,
        "hidden_dim": shape.hidden_dim,
        "intermediate_dim": shape.intermediate_dim,
    }
    if shape.preset == "gpt2_small":
        made = keras_hub.models.GPT2Backbone(
            **sizes, num_heads=shape.num_heads, dropout=job.dropout, max_sequence_length=1024
        )
        return made, keras_hub.models.GPT2CausalLM
    heads = {"num_query_heads": shape.num_heads, "num_key_value_heads": shape.num_key_value_heads}
    made = keras_hub.models.LlamaBackbone(**sizes, **heads, dropout=job.dropout, tie_word_embeddings=True)
    return made, keras_hub.models.LlamaCausalLM


def _texts() -> list[str]:
    """English paragraphs that every Python has: the pages of its language reference behind `help()`."""
    from pydoc_data.topics import topics

    return [text for page in topics.values() for text in page.split("\n\n") if text.strip()]


def _tokenizer(job: Job) -> Any:
    if importlib.util.find_spec("tensorflow") is None or importlib.util.find_spec("tensorflow_text") is None:
        raise UnavailableError("training on texts needs tensorflow and tensorflow-text, which tokenize them")
    return zoo.tokenizers.ByteLevelBPETokenizer.train(_texts()[:2000], min(_LEARNED_TOKENS, job.shape.vocabulary_size))


def _fit_texts(model: Any, job: Job, clock: _Clock) -> keras.callbacks.History:
    texts = _texts()
    # a byte is at least a fifth of a token: more than enough, and the clock stops the training
    wanted = 5 * job.batch_size * job.length * (job.steps + job.warm)
    times = max(1, -(-wanted // sum(map(len, texts))))
    return model.fit(
        texts * times, batch_size=job.batch_size, packed=job.length, shuffle=True, verbose=0, callbacks=[clock]
    )
