"""Compiles training steps on JAX and prints what XLA says of each: `python compiled_step.py '[{...}, ...]'`.

Options of each: `config` (of a Transformer, as `to_dict` writes it), `batch_size`, `length`, `mesh` (of 4 devices, such
as `{"data": 2, "model": 2}`; left out for one), `dtype` (policy), `run` (whether a step also runs, and by how much the
resident set grows).
"""

import json
import os
import re
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_NUM_CPU_DEVICES"] = "4"

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402

import zoo  # noqa: E402
from zoo import distribution  # noqa: E402

TASKS = {"decoder": zoo.CausalLM, "encoder_decoder": zoo.Seq2SeqLM}
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8}
KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
COLLECTIVE = re.compile(rf"= (?P<shapes>\([^=]*?\)|\S+) (?P<kind>{KINDS})(?:-start)?\(")
SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
GROUPS = re.compile(r"replica_groups=(\{\{[^}]*\}|\[[\d,]+\]<=)")
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


def make_task(config, dtype):
    keras.config.set_dtype_policy(dtype)
    task = TASKS[config.architecture](zoo.Backbone.from_config(config))
    task.compile()
    task.optimizer.build(task.trainable_variables)
    return task


def make_batch(config, rows, length, layouts):
    sides = ("",) if config.architecture == "decoder" else ("encoder_", "decoder_")
    ids = np.random.default_rng(0).integers(0, config.vocabulary_size, (rows, length)).astype("int32")
    inputs = {}
    for side in sides:
        inputs |= {f"{side}token_ids": ids, f"{side}padding_mask": np.ones((rows, length), "bool")}
    batch = (inputs, ids, np.ones((rows, length), "float32"))
    if layouts is None:
        return keras.tree.map_structure(jax.numpy.asarray, batch)
    return keras.tree.map_structure(
        lambda array: jax.device_put(array, layouts.get_data_layout(array.shape).backend_layout), batch
    )


def computations(text):
    """The lines of each computation of a program, by its name."""
    found, name = {}, None
    for line in text.splitlines():
        start = re.match(r"(?:ENTRY )?%?([\w.\-]+) .*\{$", line)
        if start and not line.startswith(" "):
            name = "ENTRY" if line.startswith("ENTRY") else start[1]
            found[name] = []
        elif name:
            found[name].append(line)
    return found


def collectives(text):
    """Kind, bytes, devices of a group and number of times of each collective of a program."""
    bodies, rows = computations(text), []

    def visit(name, times):
        for line in bodies.get(name, ()):
            loop = re.search(r"\bwhile\(.*body=%?([\w.\-]+)", line)
            if loop:
                trips = TRIPS.search(line)
                visit(loop[1], times * (int(trips[1]) if trips else 1))
            called = re.search(r"\bcall\(.*to_apply=%?([\w.\-]+)", line)
            if called:
                visit(called[1], times)
            match = COLLECTIVE.search(re.sub(r"/\*.*?\*/", "", line))
            if match:
                size = sum(
                    BYTES[kind] * int(np.prod([int(axis) for axis in axes.split(",") if axis]))
                    for kind, axes in SHAPE.findall(match["shapes"])
                )
                groups = re.search(r"replica_groups=\{\{([\d,]*)\}", line)
                iota = re.search(r"replica_groups=\[(\d+),(\d+)\]<=(\S+?),", line)
                of = [int(n) for n in groups[1].split(",")] if groups else [int(iota[2])] if iota else []
                step = of[1] - of[0] if groups and len(of) > 1 else (0 if not iota else iota[3])
                name_ = re.search(r'op_name="([^"]*)"', line)
                rows.append(
                    {
                        "kind": match["kind"],
                        "shapes": match["shapes"],
                        "bytes": size,
                        "times": times,
                        "group": len(of) if groups else of[0] if of else 0,
                        "step": step,
                        "name": name_[1] if name_ else "",
                    }
                )

    visit("ENTRY", 1)
    return rows


def compile_step(options):
    config = zoo.TransformerConfig.from_dict(options["config"])
    distribution.use(options.get("mesh"))
    task = make_task(config, options.get("dtype", "float32"))
    layouts = keras.distribution.distribution()
    batch = make_batch(config, options["batch_size"], options["length"], layouts)
    task._symbolic_build(data_batch=batch)  # as `fit` does
    state = tuple(
        [variable.value for variable in variables]
        for variables in (
            task.trainable_variables,
            task.non_trainable_variables,
            task.optimizer.variables,
            task.metrics_variables,
        )
    )
    step = jax.jit(task.train_step, donate_argnums=0).lower(state, batch).compile()
    memory, cost = step.memory_analysis(), step.cost_analysis()
    text = step.as_text()
    if options.get("text"):
        Path(options["text"]).write_text(text)
    result = {
        "parameters": task.backbone.count_params(),
        "operations": cost["flops"],
        "arguments": memory.argument_size_in_bytes,
        "temporary": memory.temp_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "aliased": memory.alias_size_in_bytes,
        "collectives": collectives(text),
    }
    if options.get("run"):
        from recipes.benchmark.peak_memory import measure

        result["grown"] = measure(lambda: jax.block_until_ready(step(state, batch)))
    return result


if __name__ == "__main__":
    for each in json.loads(sys.argv[1]):
        print(json.dumps(compile_step(each)), flush=True)
