"""Estimates the memory, operations, traffic and time of a training run on a mesh of devices.

python -m recipes.plan --preset llama_3_8b --mesh '{"data": 8, "model": 8}' --device h100 --length 8192 --batch 512
python -m recipes.plan --preset gpt2_small --batch 64 --lora_rank 8 --json true

Nothing is trained or allocated, and no accelerator is needed. What is assumed is said where it is computed, in
`zoo.planning`: `job` (what lies where), `memory`, `operations`, `traffic`, `duration`. docs/guides/scale.md compares
the figures with measured ones.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

import zoo
from recipes.common.config import run_recipe, setting
from recipes.common.errors import ConfigError, errors_of
from recipes.common.output_file import check_output_file
from recipes.common.training.optimizers import OPTIMIZER_HELP, OPTIMIZERS

_SECONDS = {
    "products": "products",
    "optimizer": "optimizer",
    "gradients": "sums of gradients",
    "activations": "sums of activations",
    "update": "an update, nothing overlapped",
    "at_least": "an update, gradients overlapped",
}


@dataclasses.dataclass(frozen=True)
class PlanConfig:
    """Plans the training of a named architecture."""

    preset: str = setting(help="Name of an architecture, see `zoo presets`.", offers="presets")
    options: dict[str, Any] = setting({}, "Fields of the architecture to replace.")
    mesh: dict[str, int] | None = setting(
        None,
        "Number of devices along the axes data or fsdp, and model: {data: 8, model: 8}. null: the smallest mesh of "
        "data and model that fits.",
    )
    device: str = setting("h100", "Name of a device: a100, h100, h200, b200, tpu_v5e.")
    figures: dict[str, float] = setting(
        {}, "Figures of the device to replace: operations, memory, link, network, ..., in bytes and seconds."
    )
    batch: int = setting(512, "Number of rows per update, on all devices together.", least=1)
    length: int | None = setting(
        None, "Number of tokens of a row. null: the longest that the architecture takes.", least=1
    )
    accumulation: int = setting(1, "Number of batches whose gradients are averaged before an update.", least=1)
    dtype: Literal["float32", "bfloat16", "mixed_bfloat16", "mixed_float16"] = setting(
        "mixed_bfloat16", "Dtype policy of Keras."
    )
    optimizer: str = setting("adam", OPTIMIZER_HELP, offers=OPTIMIZERS)
    lora_rank: int | None = setting(
        None, "Rank of low-rank updates. Only the updates train. null: all weights train.", least=1
    )
    lora_targets: list[str] = setting(
        ["query", "value"], "Layers that get low-rank updates: query, up, ..., all, or paths."
    )
    lora_dora: bool = setting(False, "Whether the updates also learn the norm of each column of the kernels (DoRA).")
    freeze: list[str] = setting([], "Parts that do not train: embeddings, decoder, block_0, ...")
    attention: Literal["scores", "flash"] = setting(
        "scores", "scores: attention weights are kept in memory. flash: a kernel that keeps none."
    )
    tokens: float | None = setting(None, "Number of tokens of the whole training. null: 20 for each weight.", above=0)
    share_of_peak: float = setting(
        0.5, "Share of the device's peak operations per second that matrix products reach.", above=0, most=1
    )
    share_of_memory: float = setting(0.9, "Share of the device's memory that may be filled.", above=0, most=1)
    latency: float = setting(1e-5, "Seconds that a message between two devices takes.", least=0)
    json: bool = setting(False, "Whether to print JSON instead of the table.")
    output: str | None = setting(None, "JSON file to write.", offers="paths")


def main(config: PlanConfig) -> dict[str, Any]:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        What is printed: sizes of the model, and a plan without and with `remat`.

    Raises:
        ConfigError: If preset, device or optimizer are unknown, the mesh does not divide the model, the batch has fewer
            rows than the mesh parts, rows are longer than the model is made for, or no mesh was given and none fits.
    """
    if config.output is not None:
        check_output_file(config.output)
    with errors_of("preset"):
        architecture = zoo.preset_config(config.preset, **config.options)
        if not isinstance(architecture, zoo.TransformerConfig):
            raise ConfigError(f"preset must be a Transformer to be planned, got {config.preset!r}, which is recurrent")
        backbone = zoo.planning.without_values(architecture)
    _adapt(backbone, config)
    with errors_of("device"):
        device = zoo.planning.device_of(config.device, **config.figures)
    if config.accumulation > config.batch:
        raise ConfigError(f"accumulation must be at most the {config.batch} rows of batch, got {config.accumulation}")
    axes = set(config.mesh or {})
    if config.mesh is not None and (not axes or axes - {"data", "fsdp", "model"} or {"data", "fsdp"} <= axes):
        raise ConfigError(f"mesh must have the axes data or fsdp, and model, got {config.mesh}")
    length = config.length or architecture.max_length
    plans = [_plan(config, backbone, device, length, remat) for remat in (False, True)]
    if config.mesh is None and not any(plan["fits"] for plan in plans):
        raise ConfigError(f"mesh: {plans[1]['smallest_mesh']}")
    result = {
        "config": dataclasses.asdict(config),
        "device": {**dataclasses.asdict(device), "unverified": list(device.unverified)},
        "parameters": plans[0]["parameters"],
        "length": length,
        "remarks": _remarks(architecture, config.attention),
        "plans": plans,
    }
    print(json.dumps(result, indent=2) if config.json else table(result))
    if config.output is not None:
        with errors_of("output"):
            Path(config.output).parent.mkdir(parents=True, exist_ok=True)
            zoo.storage.write_text_atomically(Path(config.output), json.dumps(result, indent=2) + "\n")
    return result


def _adapt(backbone: Any, config: PlanConfig) -> None:
    """Adds low-rank updates and freezes parts, as training does."""
    for name in ("lora_targets", "lora_dora"):
        value = getattr(config, name)
        if config.lora_rank is None and value != getattr(PlanConfig(config.preset), name):
            raise ConfigError(f"{name} must be left out without lora_rank, got {value}")
    if config.lora_rank is None and not config.freeze:
        return
    task = {"encoder": zoo.TextEmbedder, "decoder": zoo.CausalLM, "encoder_decoder": zoo.Seq2SeqLM}
    with zoo.storage.deferred.shapes_only():
        adapted = task[backbone.config.architecture](backbone)
        if config.lora_rank is not None:
            with errors_of("lora_targets"):
                adapted.enable_lora(config.lora_rank, targets=config.lora_targets, dora=config.lora_dora)
        if config.freeze:
            with errors_of("freeze"):
                adapted.freeze(*config.freeze)


def _plan(config: PlanConfig, backbone: Any, device: Any, length: int, remat: bool) -> dict[str, Any]:
    """The plan of a training without or with `remat`; where no mesh was given, on the smallest that fits."""
    names = ("dtype", "attention", "accumulation", "optimizer")
    options = {name: getattr(config, name) for name in names} | {"remat": remat, "device_memory": device.memory}
    with errors_of("plan"):
        job = zoo.planning.Job(backbone.config, config.batch, length, **options)
    with errors_of("mesh"):
        job = dataclasses.replace(job, **_sizes(config.mesh or {}))
    try:
        found = zoo.planning.smallest_mesh(backbone, job, device, share_of_memory=config.share_of_memory)
        smallest = _mesh_of(found)
    except ValueError as error:
        found, smallest = None, str(error)
    if config.mesh is None:
        job = found or job
    with errors_of("mesh"):
        shape = zoo.planning.model_shape(backbone, job.model)
    memory = zoo.planning.memory_of(shape, job)
    duration = zoo.planning.duration_of(shape, job, device, share_of_peak=config.share_of_peak, latency=config.latency)
    tokens = config.tokens or zoo.planning.TOKENS_PER_PARAMETER * shape.parameters
    updates = -(-tokens // (config.batch * length))
    operations = zoo.planning.operations_of(shape, job)
    return {
        "remat": remat,
        "mesh": _mesh_of(job),
        "parameters": shape.parameters,
        "trainable_parameters": shape.trainable,
        "parameters_of_device": sum(weight.kept(job.along_data) for weight in shape.weights),
        "memory": {**memory._asdict(), "peak": memory.peak},
        "fits": memory.peak <= config.share_of_memory * device.memory,
        "operations": operations._asdict(),
        "traffic": {axis: traffic._asdict() for axis, traffic in zoo.planning.traffic_of(shape, job).items()},
        "seconds": {**duration._asdict(), "update": duration.seconds, "at_least": duration.seconds_at_least},
        "bottleneck": duration.bottleneck,
        "share_of_peak": operations.model / (duration.seconds * job.devices * device.peak(job.itemsize)),
        "updates": updates,
        "days": updates * duration.seconds / 86400,
        "hours_between_failures": zoo.planning.hours_between_failures(job.devices),
        "smallest_mesh": smallest,
    }


def _sizes(mesh: dict[str, int]) -> dict[str, Any]:
    """The fields of a job that a mesh sets."""
    fsdp = {"data": mesh["fsdp"], "fsdp": True} if "fsdp" in mesh else {}
    return {axis: size for axis, size in mesh.items() if axis != "fsdp"} | fsdp


def _mesh_of(job: zoo.planning.Job) -> dict[str, int]:
    return {"fsdp" if job.fsdp else "data": job.data, "model": job.model}


def _remarks(architecture: Any, attention: str) -> list[str]:
    """What is left out of this plan."""
    remarks = []
    if architecture.attention.dropout and attention == "scores":
        remarks.append("dropout of attention weights may take several times the memory of all else")
    if architecture.architecture == "encoder":
        remarks.append("the head of a task, with its loss")
    return remarks


def table(result: dict[str, Any]) -> str:
    """Returns a Markdown table of what `main` returns.

    Args:
        result: The plans.
    """
    config, plans = result["config"], result["plans"]
    device, unverified = result["device"], result["device"]["unverified"]
    head = [
        f"{config['preset']}: {result['parameters']:,} parameters, {plans[0]['trainable_parameters']:,} train; "
        f"{config['batch']} rows of {result['length']} tokens, {config['dtype']}, {config['optimizer']}",
        "",
        f"{device['name']}, figures by {device['source']}",
        *([f"without a source: {', '.join(unverified)}"] if unverified else []),
        *([f"not planned: {'; '.join(result['remarks'])}"] if result["remarks"] else []),
        "",
        "| | without remat | with remat |",
        "| --- | ---: | ---: |",
    ]
    rows = [("mesh", [_mesh(plan["mesh"]) for plan in plans])]
    rows.append(("parameters of a device", [f"{plan['parameters_of_device']:,}" for plan in plans]))
    for name in plans[0]["memory"]:
        rows.append((f"memory, {name.replace('_', ' ')}, GB", [_gigabytes(plan["memory"][name]) for plan in plans]))
    limit = f"{config['share_of_memory']:.0%} of {_gigabytes(device['memory'])} GB"
    rows.append((f"fits into {limit}", ["yes" if plan["fits"] else "no" for plan in plans]))
    rows.append(("PFLOP of an update", [f"{plan['operations']['model'] / 1e15:,.3f}" for plan in plans]))
    rows.append(("PFLOP computed", [f"{plan['operations']['computed'] / 1e15:,.3f}" for plan in plans]))
    for axis in plans[0]["traffic"]:
        cells = [_gigabytes(plan["traffic"][axis]["bytes"]) for plan in plans]
        rows.append((f"sent by a device along {axis}, GB", cells))
    for name in plans[0]["seconds"]:
        rows.append((f"{_SECONDS[name]}, s", [f"{plan['seconds'][name]:,.4f}" for plan in plans]))
    rows.append(("bottleneck", [_SECONDS[plan["bottleneck"]] for plan in plans]))
    rows.append(("share of the peak", [f"{plan['share_of_peak']:.1%}" for plan in plans]))
    rows.append(("updates of the run", [f"{plan['updates']:,.0f}" for plan in plans]))
    rows.append(("days of the run", [f"{plan['days']:,.1f}" for plan in plans]))
    rows.append(("hours between failures", [f"{plan['hours_between_failures']:,.0f}" for plan in plans]))
    rows.append(("smallest mesh that fits", [_mesh(plan["smallest_mesh"]) for plan in plans]))
    return "\n".join([*head, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows)])


def _mesh(found: dict[str, int] | str) -> str:
    return found if isinstance(found, str) else ", ".join(f"{axis} {size}" for axis, size in found.items())


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:,.2f}"


if __name__ == "__main__":
    run_recipe(main, PlanConfig, "plan", prints_results=True)
