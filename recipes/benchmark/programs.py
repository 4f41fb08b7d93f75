"""What XLA makes of a training step: operations, bytes and kernels, for sizes that a processor need not run.

    KERAS_BACKEND=jax python -m recipes.benchmark programs --presets gpt2_small transformer_base --length 1024

The step is compiled and not run: loss and gradients of all weights in bfloat16. Its operations, as XLA counts them,
stand beside those of the matrix products by the formula of `zoo.planning`, and beside the time that these would take on
an accelerator of given speed. XLA's choices for an accelerator (fusions, kernels for attention) are others than those
seen here.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import time
from typing import Any

import keras
import numpy as np

import zoo
from recipes.benchmark.step_data import write_table
from recipes.common.config import setting
from recipes.common.errors import ConfigError

_MODELS = {"decoder": "CausalLM", "encoder_decoder": "Seq2SeqLM"}
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.-]+ = \S+ ([\w-]+)\(", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Config:
    """Counts operations, bytes and kernels of compiled training steps."""

    presets: list[str] = setting(["gpt2_small", "transformer_base"], "Names of decoders and encoder-decoders.")
    batch_size: int = setting(8, "Number of rows per batch.", above=0)
    length: int = setting(1024, "Number of tokens of a row. An encoder-decoder has as many on each side.", above=0)
    operations_per_second: float = setting(
        989e12, "Operations per second of the accelerator. An H100 has 989e12 in bfloat16.", above=0
    )
    bytes_per_second: float = setting(
        3.35e12, "Bytes per second of the memory of the accelerator. An H100 has 3.35e12.", above=0
    )
    folder: str = setting("runs/benchmark/programs", "Folder for the table.", offers="paths")


def main(config: Config) -> list[dict[str, Any]]:
    """Runs the benchmark and prints the table.

    Args:
        config: The configuration.

    Returns:
        A row for each preset: operations by XLA and by formula, bytes, kernels by kind, seconds of compiling.

    Raises:
        ConfigError: On another backend than JAX, or with a preset of another kind.
    """
    if keras.backend.backend() != "jax":
        raise ConfigError(f"programs are compiled by JAX: set KERAS_BACKEND=jax, got {keras.backend.backend()}")
    rows = []
    for preset in config.presets:
        print(f"{preset}: compiling")
        rows.append({"preset": preset, **count(preset, config.batch_size, config.length)})
    write_table(config.folder, table(rows, config))
    return rows


def count(preset: str, batch_size: int, length: int, **options: Any) -> dict[str, Any]:
    """Returns what XLA says of a training step.

    Args:
        preset: Name of a decoder or an encoder-decoder.
        batch_size: Rows.
        length: Tokens of a row.
        **options: Fields of the architecture that are replaced.

    Raises:
        ConfigError: If the preset is neither.
    """
    import jax

    architecture = zoo.preset_config(preset, max_length=length, dropout=0.0, **options)
    if architecture.architecture not in _MODELS:
        raise ConfigError(f"presets must be decoders and encoder-decoders, got {preset!r}: {architecture.architecture}")
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        task = getattr(zoo, _MODELS[architecture.architecture])(zoo.Backbone.from_config(architecture))
    finally:
        keras.config.set_dtype_policy(before)
    sides = ("",) if architecture.architecture == "decoder" else ("encoder_", "decoder_")
    inputs = {}
    for side in sides:
        inputs[f"{side}token_ids"] = jax.ShapeDtypeStruct((batch_size, length), "int32")
        inputs[f"{side}padding_mask"] = jax.ShapeDtypeStruct((batch_size, length), "bool")

    def loss(trainable: Any, fixed: Any, inputs: Any, labels: Any) -> Any:
        logits, _ = task.stateless_call(trainable, fixed, inputs, training=True)
        return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))

    trainable = [_shape_of(variable) for variable in task.trainable_variables]
    fixed = [_shape_of(variable) for variable in task.non_trainable_variables]
    started = time.perf_counter()
    step = jax.jit(jax.value_and_grad(loss))
    program = step.lower(trainable, fixed, inputs, jax.ShapeDtypeStruct((batch_size, length), "int32")).compile()
    seconds = time.perf_counter() - started
    analysis = program.cost_analysis()
    kinds = collections.Counter(_INSTRUCTION.findall(_entry(program.as_text())))
    shape, job = zoo.planning.model_shape(task.backbone), zoo.planning.Job(architecture, batch_size, length)
    return {
        "parameters": int(sum(np.prod(variable.shape) for variable in task.trainable_variables)),
        "operations": float(analysis["flops"]),
        "operations_by_formula": zoo.planning.operations_of(shape, job).model,
        "bytes": float(analysis["bytes accessed"]),
        "kernels": {name: number for name, number in kinds.most_common() if name not in ("parameter", "tuple")},
        "seconds": seconds,
    }


def table(rows: list[dict[str, Any]], config: Config) -> str:
    """Returns a Markdown table of what `count` returned, and what it would mean for the accelerator."""
    lines = [
        "| model | parameters | TFLOP by XLA | by formula | GB read and written | fusions, products, other kernels | "
        "milliseconds of the products at full speed | of the bytes |",
        "| --- |" + " --- |" * 7,
    ]
    for row in rows:
        kernels = row["kernels"]
        fusions, products = kernels.get("fusion", 0), kernels.get("dot", 0)
        lines.append(
            f"| {row['preset']}, {config.batch_size} x {config.length} | {row['parameters']:,} | "
            f"{row['operations'] / 1e12:.2f} | {row['operations_by_formula'] / 1e12:.2f} | {row['bytes'] / 1e9:.0f} | "
            f"{fusions}, {products}, {sum(kernels.values()) - fusions - products} | "
            f"{1e3 * row['operations_by_formula'] / config.operations_per_second:.1f} | "
            f"{1e3 * row['bytes'] / config.bytes_per_second:.0f} |"
        )
    return "\n".join(lines) + "\n"


def _shape_of(variable: Any) -> Any:
    import jax

    return jax.ShapeDtypeStruct(variable.shape, variable.dtype)


def _entry(text: str) -> str:
    """The instructions of the program's entry, without those inside of fusions."""
    return text[text.index("\nENTRY ") :]
