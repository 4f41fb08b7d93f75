"""Compiles training steps on JAX and prints what XLA says of each: `python compiled_step.py '[{...}, ...]'`.

Options of each: `config` (of a Transformer, as `to_dict` writes it), `batch_size` (rows of a step), `length`, `mesh`
(of 4 devices, such as `{"data": 2, "model": 2}`; left out for one), `dtype` (policy), `optimizer` (its name),
`accumulation` (steps of an update), `lora_rank`, `freeze` (parts that do not train), `run` (whether a step also runs,
and by how much the resident set grows), `topology` (name of devices that are not there, such as "v5e:2x2" for four TPUs
that the library libtpu compiles for).
"""

import json
import math
import os
import re
import sys
import time

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_NUM_CPU_DEVICES"] = "4"
# what XLA says of a program does not depend on how well LLVM makes code of it
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding  # noqa: E402

import zoo  # noqa: E402
from zoo import distribution  # noqa: E402

TASKS = {"decoder": zoo.CausalLM, "encoder_decoder": zoo.Seq2SeqLM, "encoder": zoo.TextClassifier}
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8}
KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
COLLECTIVE = re.compile(rf"= (?P<shapes>\([^=]*?\)|\S+) (?P<kind>{KINDS})(?:-start)?\(")
SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")


def make_task(config, options):
    keras.config.set_dtype_policy(options.get("dtype", "float32"))
    labels = {"labels": ["no", "yes"]} if config.architecture == "encoder" else {}
    task = TASKS[config.architecture](zoo.Backbone.from_config(config), **labels)
    if options.get("lora_rank"):
        task.enable_lora(options["lora_rank"])
    if options.get("freeze"):
        task.freeze(*options["freeze"])
    accumulation = options.get("accumulation", 1)
    kind = {kind.__name__.lower(): kind for kind in zoo.training.OPTIMIZERS}[options.get("optimizer", "adam")]
    given = {"gradient_accumulation_steps": accumulation} if accumulation > 1 else {}
    task.compile(kind(1e-4, global_clipnorm=1.0, **given))
    task.optimizer.build(task.trainable_variables)
    return task


def make_batch(config, rows, length, layouts):
    sides = ("encoder_", "decoder_") if config.architecture == "encoder_decoder" else ("",)
    ids = np.random.default_rng(0).integers(0, config.vocabulary_size, (rows, length)).astype("int32")
    inputs = {}
    for side in sides:
        inputs |= {f"{side}token_ids": ids, f"{side}padding_mask": np.ones((rows, length), "bool")}
    batch = (inputs, ids, np.ones((rows, length), "float32"))
    if config.architecture == "encoder":
        batch = (inputs, ids[:, 0] % 2, np.ones(rows, "float32"))
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
    """Kind and bytes of each collective of a program, and whether it is in a loop, where it counts once."""
    bodies, found = computations(text), []

    def visit(name, in_loop=False):
        for line in bodies.get(name, ()):
            line = re.sub(r"/\*.*?\*/", "", line)
            inner = re.search(r"\b(?:while\(.*body|call\(.*to_apply)=%?([\w.\-]+)", line)
            if inner:
                visit(inner[1], in_loop or "while(" in line)
            match = COLLECTIVE.search(line)
            if match:
                sizes = [
                    BYTES[kind] * math.prod(int(axis) for axis in axes.split(",") if axis)
                    for kind, axes in SHAPE.findall(match["shapes"])
                ]
                found.append({"kind": match["kind"], "bytes": sum(sizes), "in_loop": in_loop})

    visit("ENTRY")
    return found


def on_topology(name, arrays):
    """Shapes of arrays as they would lie on devices that need not be there."""
    devices = np.array(topologies.get_topology_desc(name, "tpu").devices)

    def move(array):
        layout = array.sharding
        if isinstance(layout, NamedSharding):
            mesh = layout.mesh.devices
            moved = Mesh(devices[: mesh.size].reshape(mesh.shape), layout.mesh.axis_names)
            layout = NamedSharding(moved, layout.spec)
        else:
            layout = SingleDeviceSharding(devices[0])
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=layout)

    return jax.tree.map(move, arrays)


def compile_step(options):
    config = zoo.TransformerConfig.from_dict(options["config"])
    distribution.use(options.get("mesh"))
    task = make_task(config, options)
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
    if "topology" in options:
        state, batch = on_topology(options["topology"], (state, batch))
    step = jax.jit(task.train_step, donate_argnums=0).lower(state, batch).compile()
    memory, cost = step.memory_analysis(), step.cost_analysis()
    result = {
        "parameters": task.count_params(),
        "operations": cost["flops"],
        "arguments": memory.argument_size_in_bytes,
        "temporary": memory.temp_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "aliased": memory.alias_size_in_bytes,
        "collectives": collectives(step.as_text()),
    }
    if options.get("run"):
        from recipes.benchmark.peak_memory import measure

        # what the first step loads is no part of what a step needs
        _, state = jax.block_until_ready(step(state, batch))
        time.sleep(2)  # a thread of XLA gives back what the step needed
        result["grown"] = measure(lambda: jax.block_until_ready(step(state, batch)))
    return result


if __name__ == "__main__":
    for each in json.loads(sys.argv[1]):
        print(json.dumps(compile_step(each)), flush=True)
