"""What the benchmark measures: its parts, and the processes of each with their time limits."""

from __future__ import annotations

import dataclasses

from recipes.benchmark.accelerator.jobs import Job
from recipes.benchmark.accelerator.processes import Run
from recipes.benchmark.accelerator.shapes import SHAPES, Shape

PARTS = {
    "attention": "each mask by each path: kernel, time forward and backward, memory, errors",
    "gpt2": "training GPT-2 small: dropout 0 and 0.1, 8 to 64 rows, on random tokens and on text; kernels by time",
    "bert": "training BERT base on padded rows: masked language model, classification",
    "t5": "training T5 small on padded pairs",
    "lora": "training updates of low rank on a model of SmolLM2's shape",
    "generation": "greedy generation of 1, 8 and 64 rows: GPT-2 small, SmolLM2's shape",
    "first_call": "first step and first text, without and with JAX's persistent compilation cache",
    "xla": "training GPT-2 small with options of XLA that others change",
    "tests": "the tests of the layers on the device, in float32 with exact products",
}
# what MaxText and the guides of XLA change, one at a time
XLA_OPTIONS = {
    "no products by Triton": "--xla_gpu_enable_triton_gemm=false",
    "latency-hiding scheduler": "--xla_gpu_enable_latency_hiding_scheduler=true",
    "no command buffers": "--xla_gpu_enable_command_buffer=",
}
LIBRARIES = ("zoo", "keras_hub", "transformers")
# Least seconds that are worth starting a process for.
LEAST_SECONDS = 8.0

_MASKS = (
    *("", "causal", "lengths", "padding", "causal lengths", "causal padding"),
    *("causal packed", "causal window", "causal window lengths", "causal grouped"),
)
_MODULES = {
    "training": {"zoo": "keras_training", "keras_hub": "keras_training", "transformers": "torch_training"},
    "generation": {"zoo": "keras_generation", "keras_hub": "keras_generation", "transformers": "torch_generation"},
}


def runs(*, tiny: bool, cache_folder: str) -> list[Run]:
    """Returns all processes in the order in which they run.

    The most important come first: what the time of the whole benchmark does not reach is what can be missed most
    easily.

    Args:
        tiny: Whether models are so small that a processor trains them in a moment.
        cache_folder: An empty folder for the programs that "first_call" compiles.
    """
    sizes = _Sizes(tiny)
    gpt2, gpt2_dropout = (sizes.training("gpt2_small", "causal", 32, 1024, rate) for rate in (0.0, 0.1))
    more = [sizes.training("gpt2_small", "causal", rows, 1024) for rows in (8, 64)]
    text = sizes.training("gpt2_small", "text", 32, 1024)
    classes, masked = (sizes.training("bert_base", goal, 64, 512) for goal in ("classes", "masked"))
    t5 = sizes.training("t5_small", "seq2seq", 64, 512)
    lora = sizes.training("smollm2_135m", "lora", 16, 1024)
    short, deep = ([sizes.generation(name, rows) for rows in (1, 8, 64)] for name in ("gpt2_small", "smollm2_135m"))
    attention = [sizes.attention(mask) for mask in _MASKS]
    if tiny:
        # what is left out takes the same way through the code
        more, attention, short, deep = [], attention[1:6], short[:2], deep[:1]
    first = dataclasses.replace(sizes.training("gpt2_small", "causal", 8, 1024), new_tokens=64, steps=2, warm=1)
    tests = Job("tests", tests=("tests/layers/test_dropout.py",) if tiny else ("tests/layers",))
    cache = {
        "JAX_COMPILATION_CACHE_DIR": cache_folder,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    exact = {"JAX_DEFAULT_MATMUL_PRECISION": "highest"}
    if not tiny:
        # products that run once need no search for the fastest kernel
        exact["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
    traced = dataclasses.replace(gpt2, kernels=True)
    planned = [
        sizes.run("gpt2", "zoo", "training", [traced], 45),
        sizes.run("gpt2", "zoo", "training", [gpt2_dropout], 40),
        sizes.run("gpt2", "transformers", "training", [gpt2], 50),
        Run("attention", "zoo", "attention_paths", tuple(attention), sizes.limit(45)),
        sizes.run("bert", "zoo", "training", [classes, masked], 40),
        sizes.run("bert", "transformers", "training", [masked], 40),
        sizes.run("t5", "zoo", "training", [t5], 30),
        sizes.run("t5", "transformers", "training", [t5], 40),
        sizes.run("lora", "zoo", "training", [lora], 35),
        sizes.run("generation", "zoo", "generation", short, 35),
        sizes.run("generation", "zoo", "generation", deep, 40),
        *(
            Run("first_call", "zoo", "first_call", (dataclasses.replace(first, name=name),), sizes.limit(30), cache)
            for name in ("empty cache", "filled cache")
        ),
        Run("tests", "zoo", "layer_tests", (tests,), sizes.limit(40), exact),
        sizes.run("gpt2", "keras_hub", "training", [gpt2], 40),
        sizes.run("generation", "transformers", "generation", short[:2], 30),
        sizes.run("gpt2", "zoo", "training", [text], 35),
        *(
            Run(
                *("xla", "zoo", _MODULES["training"]["zoo"]),
                (dataclasses.replace(gpt2, name=f"{gpt2.name}, {name}"),),
                sizes.limit(30),
                {"XLA_FLAGS": option, "JAX_ENABLE_COMPILATION_CACHE": "false"},
            )
            for name, option in (list(XLA_OPTIONS.items())[:1] if tiny else XLA_OPTIONS.items())
        ),
        sizes.run("gpt2", "zoo", "training", more, 45),
        sizes.run("lora", "transformers", "training", [lora], 60),
        sizes.run("bert", "transformers", "training", [classes], 40),
        sizes.run("generation", "keras_hub", "generation", short[:2], 40),
        sizes.run("gpt2", "transformers", "training", [gpt2_dropout], 50),
        sizes.run("generation", "transformers", "generation", deep[:1], 40),
    ]
    planned = [run for run in planned if run.jobs]
    return _merged(planned) if tiny else planned


def _merged(planned: list[Run]) -> list[Run]:
    """The same jobs in fewer processes: a tiny job takes less time than the start of its process."""
    merged: dict[tuple[str, ...], Run] = {}
    for run in planned:
        # where a part compares processes, they stay apart
        key = (run.part, run.library, *(run.jobs[0].name for _ in run.environment))
        before = merged[key].jobs if key in merged else ()
        merged[key] = dataclasses.replace(run, jobs=(*before, *run.jobs))
    return list(merged.values())


@dataclasses.dataclass(frozen=True)
class _Sizes:
    """Jobs at full size, or tiny ones with the same names."""

    tiny: bool

    def limit(self, seconds: float) -> float:
        # a busy processor is what limits tiny ones
        return 120.0 if self.tiny else seconds

    def shape(self, name: str) -> Shape:
        return SHAPES[name].tiny() if self.tiny else SHAPES[name]

    def run(self, part: str, library: str, work: str, jobs: list[Job], seconds: float) -> Run:
        # the first step of a program that was compiled before says nothing of another user's
        environment = {} if self.tiny else {"JAX_ENABLE_COMPILATION_CACHE": "false"}
        return Run(part, library, _MODULES[work][library], tuple(jobs), self.limit(seconds), environment)

    def training(self, name: str, goal: str, rows: int, length: int, dropout: float = 0.0) -> Job:
        label = f"{name}, {goal}, {rows} x {length}, dropout {dropout:g}"
        if self.tiny:
            return Job(label, self.shape(name), goal, max(2, rows // 16), 16, dropout, steps=2, warm=1)
        # about as long for each number of rows
        steps = max(8, min(40, 24 * 32 * 1024 // (rows * length)))
        return Job(label, self.shape(name), goal, rows, length, dropout, steps=steps, warm=6)

    def generation(self, name: str, rows: int) -> Job:
        label = f"{name}, {rows} {'row' if rows == 1 else 'rows'}"
        length, new_tokens = (4, 4) if self.tiny else (32, 224)
        return Job(label, self.shape(name), "", min(rows, 4) if self.tiny else rows, length, new_tokens=new_tokens)

    def attention(self, mask: str) -> Job:
        rows, heads, length, dim = (2, 4, 32, 8) if self.tiny else (8, 12, 1024, 64)
        return Job(mask or "none", None, "", rows, length, mask=mask, num_heads=heads, head_dim=dim)
