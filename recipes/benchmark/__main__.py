"""Runs a benchmark: `python -m recipes.benchmark <name> [--key value]`."""

import importlib
import os
import sys

from recipes.command.printing import lasting_output

BENCHMARKS = {
    "accelerator": "training, generation and attention on one GPU with JAX, compared with KerasHub and Transformers",
    "comparison": "training, inference and generation compared with KerasHub and Transformers, and with the machine",
    "recurrent_step": "a training step of recurrent models compared with the same models made of keras.layers.GRU",
    "start": "time from the first call of fit or generate to two steps or a token, compared with KerasHub",
    "tracing": "first steps and first answers of deep models, with layers traced once and each by itself",
    "ablations": "real models without each mechanism that exists for speed: first step, step, memory",
    "command": "seconds of the help and of the lists of the command zoo, imports of recipes, size of their extra",
    "memory": "peak of memory of training, compared with KerasHub, and of reading long texts through a window",
    "tokenizers": "tokenizers compared with the tokenizers library: lines that differ, and speed",
    "prompt_lookup": "generation that proposes what stood in the text before, compared with one token at a time",
    "grammars": "texts that follow grammars: reading a grammar, and knowing at each token what may come next",
    "exported": "generation by a SavedModel compared with that in Python",
    "formats": "a model in the formats of several runtimes beside its SavedModel: size, start, latency, agreement",
    "programs": "operations, bytes and kernels of compiled training steps, for sizes of accelerators",
    "loading": "time and peak of memory of loading a model from the files of each library",
    "corpora": "prepared corpora: formats, batches beside those of Grain, preparing beside other tools, memory",
    "distribution": "training on several devices compared with one: weights after 20 updates, tokens per second",
    "serving": "a server of exported models under load: latency, throughput, wrong answers, memory",
    "waiting": "a request for a few tokens beside requests for long texts, in the batch of a server",
    "inspection_page": "the page of an inspection: size, and time until a browser has drawn another layer or head",
    "layers": "growth of layers with the length, and attention compared with that of Keras and KerasHub",
}


@lasting_output()
def main() -> None:
    """Runs the benchmark that the first word names."""
    if sys.argv[1:2] == ["accelerator"] and "_ARGCOMPLETE" not in os.environ:
        # before what needs the extra `recipes`: a machine with a GPU often has JAX, Keras and little more
        importlib.import_module("recipes.benchmark.accelerator.command").main(sys.argv[2:])
        return
    from recipes.common.config import PROGRAM, run_recipe

    if "_ARGCOMPLETE" in os.environ:
        _complete()
    if len(sys.argv) < 2 or sys.argv[1] not in BENCHMARKS:
        wanted = f"there is no benchmark {sys.argv[1]!r}\n" if len(sys.argv) > 1 and sys.argv[1][:1] != "-" else ""
        names = "\n".join(f"  {name:16s} {what}" for name, what in BENCHMARKS.items())
        program = PROGRAM.get().format("benchmark")
        print(f"{wanted}{program} <name> [--key value ...]\n{names}", file=sys.stderr)
        raise SystemExit(2 if wanted else 0)
    name = sys.argv[1]
    module = importlib.import_module(f"recipes.benchmark.{name}")
    run_recipe(module.main, module.Config, f"benchmark {name}", sys.argv[2:], prints_results=True)


def _complete() -> None:
    """Answers a shell that asks for the name of a benchmark; behind the name, the benchmark's own keys are next."""
    from recipes.common.completion import complete, complete_name

    if len(sys.argv) < 2 or sys.argv[1] not in BENCHMARKS:
        complete_name(BENCHMARKS)
    os.environ["_ARGCOMPLETE"] = str(int(os.environ["_ARGCOMPLETE"]) + 1)
    if sys.argv[1] == "accelerator":
        from recipes.benchmark.accelerator.plan import LIBRARIES, PARTS

        paths = {"output": None, "transformers_python": None}
        complete({"parts": list(PARTS), "libraries": list(LIBRARIES), "seconds": [], "tiny": [], **paths})


if __name__ == "__main__":
    main()
