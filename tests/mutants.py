"""Changes forty places of the product, one at a time, and shows which tests notice.

    python tests/mutants.py                        # all: about ten minutes of one core
    python tests/mutants.py --only 3 17            # some
    python tests/mutants.py --only 0               # nothing is changed: all tests that follow must pass
    python tests/mutants.py --tests OTHER/tests    # with another version of the tests

Each mutant is a wrong sign, a lost mask, an index that is off by one, a swapped argument or a dropped branch. It is
made in a copy of the tree, and the test files that should notice run there. The first test that fails kills it. A
mutant that survives says that a test is missing. One whose old text is no longer in its file exactly once has to follow
the product.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
# read by a process that imports the libraries once and is forked for each mutant
LIBRARIES = ("pytest", "numpy", "tensorflow", "tensorflow_text", "keras", "hypothesis")
PACKAGES = ("layers", "zoo", "recipes")
SECONDS = 300


class Mutant(NamedTuple):
    file: str
    old: str
    new: str
    tests: str


def attention(name: str, old: str, new: str, tests: str) -> Mutant:
    return Mutant(f"layers/attention/{name}.py", old, new, f"layers/attention/{tests}.py")


MUTANTS = [
    # layers: masks, kernels, caches
    attention(
        "masks",
        "ops.less_equal(key_positions, query_positions)",
        "ops.less(key_positions, query_positions)",
        "test_masks",
    ),
    attention(
        "masks",
        "ops.greater_equal(key_positions, query_positions - left)",
        "ops.greater_equal(key_positions, query_positions - left - 1)",
        "test_masks",
    ),
    attention("masks", "smaller(last, last_query + right + 1)", "smaller(last, last_query + right)", "test_masks"),
    attention(
        "masks",
        "conditions.append(ops.equal(query_segments, key_segments))",
        "conditions.append(ops.equal(query_segments, query_segments))",
        "kernels/test_paths",
    ),
    attention(
        "kernels/blocked",
        "scale if soft_cap is None else scale / soft_cap",
        "scale if soft_cap is None else scale * soft_cap",
        "kernels/test_paths",
    ),
    attention(
        "cache", "return last - (last - ops.arange(slots)) % slots", "return last - ops.arange(slots)", "test_cache"
    ),
    attention("cache", "return ops.where(slots < column(index), slots, -1)", "return slots", "test_cache"),
    attention("cache", "RollingCache(window[0] + 1)", "RollingCache(window[0])", "test_multi_head_cache"),
    # layers: positions, norms, experts, embeddings, dropout
    Mutant(
        "layers/positions/rotary.py",
        "ops.concatenate([-sin, sin], axis=-1)",
        "ops.concatenate([sin, -sin], axis=-1)",
        "layers/positions/test_rotary.py",
    ),
    Mutant(
        "layers/positions/alibi.py",
        "np.arange(1, 2 * power + 1, 2)",
        "np.arange(2, 2 * power + 2, 2)",
        "layers/positions/test_alibi.py",
    ),
    Mutant(
        "layers/positions/shaw.py",
        "ops.clip(distance, -self.max_distance, self.max_distance) + self.max_distance",
        "ops.clip(-distance, -self.max_distance, self.max_distance) + self.max_distance",
        "layers/positions/test_shaw.py",
    ),
    Mutant("layers/norms.py", "ops.maximum(squared_length, self.epsilon**2)", "squared_length", "layers/test_norms.py"),
    Mutant(
        "layers/norms.py",
        "scale = 1.0 + self._wide(self.scale) if",
        "scale = self._wide(self.scale) if",
        "layers/test_norms.py",
    ),
    Mutant(
        "layers/router.py",
        "weights = ops.take_along_axis(scores, experts, axis=-1)",
        "weights = ops.take_along_axis(balanced, experts, axis=-1)",
        "layers/test_mixture_of_experts.py",
    ),
    Mutant(
        "layers/router.py",
        "ops.sign(ops.mean(loads) - loads)",
        "ops.sign(loads - ops.mean(loads))",
        "layers/test_mixture_of_experts.py",
    ),
    Mutant(
        "layers/embeddings.py",
        "vectors = vectors * math.sqrt(self.dim)",
        "vectors = vectors * self.dim",
        "layers/test_embeddings.py",
    ),
    Mutant(
        "layers/dropout.py",
        "(2**bits / (2**bits - numerator))",
        "((2**bits - numerator) / 2**bits)",
        "layers/test_dropout.py",
    ),
    # zoo: generation
    Mutant(
        "zoo/generation/filters.py",
        "last = ops.expand_dims(ops.maximum(count - 1, 0), -1)",
        "last = ops.expand_dims(ops.maximum(count - 2, 0), -1)",
        "zoo/generation/test_processors.py zoo/generation/test_samplers.py",
    ),
    Mutant(
        "zoo/generation/filters.py",
        "enough = mass >= wanted",
        "enough = mass < wanted",
        "zoo/generation/test_samplers.py",
    ),
    Mutant(
        "zoo/generation/penalties.py",
        "ops.where(logits > 0, logits / self.penalty, logits * self.penalty)",
        "logits / self.penalty",
        "zoo/generation/test_processors.py",
    ),
    Mutant(
        "zoo/generation/beam.py",
        '(offset + ops.cast(lengths, "float32")) / (offset + 1.0)',
        'ops.cast(lengths, "float32") / (offset + 1.0)',
        "zoo/generation/test_beam.py",
    ),
    Mutant(
        "zoo/generation/score.py",
        "values = ops.where(mask, token_log_probabilities(logits, labels), 0.0)",
        "values = token_log_probabilities(logits, labels)",
        "zoo/generation/test_score.py",
    ),
    Mutant(
        "zoo/generation/filters.py",
        "ops.logical_and(tied, places <= room)",
        "tied",
        "zoo/generation/test_rows.py",
    ),
    # zoo: losses, schedules, training
    Mutant(
        "zoo/training/losses.py",
        "losses = losses - label_smoothing * ops.mean(logits, axis=-1)",
        "losses = losses + label_smoothing * ops.mean(logits, axis=-1)",
        "zoo/training/test_losses.py",
    ),
    Mutant(
        "zoo/training/losses.py",
        "everywhere - uniform, at_labels - uniform",
        "everywhere, at_labels - uniform",
        "zoo/training/test_losses.py",
    ),
    Mutant(
        "zoo/training/schedules.py",
        "self.peak * ops.sqrt(self.warmup_steps / t)",
        "self.peak * ops.sqrt(self.warmup_steps / (t + 1.0))",
        "zoo/training/test_schedules.py",
    ),
    # zoo: preprocessing
    Mutant(
        "zoo/preprocessing/masked_lm.py",
        "chosen = candidates & (before < wanted)",
        "chosen = candidates & (before <= wanted)",
        "zoo/preprocessing/test_masking.py",
    ),
    Mutant(
        "zoo/preprocessing/masked_lm.py",
        "tf.where(chosen & (action < mask_share + random_share), replaced, token_ids)",
        "tf.where(chosen, replaced, token_ids)",
        "zoo/preprocessing/test_masking.py",
    ),
    Mutant(
        "zoo/preprocessing/packing.py",
        "sequence_ids -= sequence_ids[0]",
        "sequence_ids -= 0",
        "zoo/preprocessing/test_batching.py zoo/tasks/test_causal_lm.py",
    ),
    Mutant(
        "zoo/preprocessing/windows.py",
        "own_end = tf.where(first + size < lengths, step + half, size)",
        "own_end = tf.where(first + size < lengths, step + half - 1, size)",
        "zoo/tasks/test_question_answerer.py",
    ),
    Mutant(
        "zoo/preprocessing/causal_lm.py",
        "return inputs, labels, mask & (shared == 0)",
        "return inputs, labels, mask",
        "zoo/tasks/test_causal_lm.py",
    ),
    # zoo: tokenizers, storage, other libraries, export
    Mutant(
        "zoo/tokenizers/wordpiece.py",
        "tf.gather(characters.sources, ends - 1) + 1",
        "tf.gather(characters.sources, ends - 1)",
        "zoo/tokenizers/test_wordpiece.py",
    ),
    Mutant(
        "zoo/tokenizers/merge_ranks.py",
        "if across < next_left and across <= next_right and across < limit:",
        "if across < next_left and across < next_right and across < limit:",
        "zoo/tokenizers/test_merge_ranks.py",
    ),
    Mutant(
        "zoo/huggingface/rotary.py",
        "base **= (rotary_dim + 1) / rotary_dim",
        "base **= 1",
        "zoo/huggingface/test_rotary.py",
    ),
    Mutant(
        "zoo/huggingface/bert.py",
        "position_offset=padding + 1",
        "position_offset=padding",
        "zoo/huggingface/test_backbones.py",
    ),
    Mutant(
        "zoo/export/versions.py",
        "version = max(known, default=0) + 1",
        "version = len(known) + 1",
        "zoo/export/test_serving_folder.py",
    ),
    # recipes: metrics, server, resuming
    Mutant(
        "recipes/common/evaluation/answer_metrics.py",
        "return 2 * shared / (len(given) + len(expected))",
        "return shared / (len(given) + len(expected) - shared)",
        "recipes/common/data/test_questions.py",
    ),
    Mutant(
        "zoo/serving/dynamic_batch.py",
        "start += call.rows",
        "start += 1",
        "zoo/serving/test_dynamic_batch.py",
    ),
    Mutant(
        "zoo/serving/dynamic_batch.py",
        "call.deadline is not None and call.deadline < now",
        "call.deadline is not None and call.deadline > now",
        "zoo/serving/test_dynamic_batch.py",
    ),
    Mutant(
        "recipes/common/run_folder.py",
        "wanted < epochs + (batches > 0)",
        "wanted < epochs",
        "recipes/common/test_run_folder.py",
    ),
]


def check_places(mutants: list[Mutant], root: Path) -> None:
    """Ends the program if a mutant's old text is not in its file exactly once."""
    wrong = [
        f"{number}: {mutant.file} must have once, got {count} times: {mutant.old!r}"
        for number, mutant in enumerate(mutants, 1)
        if (count := (root / mutant.file).read_text(encoding="utf-8").count(mutant.old)) != 1
    ]
    if wrong:
        sys.exit("\n".join(wrong))


def run_tests(tree: Path, tests: list[str], output: Path) -> int:
    """Runs tests of a tree in a fork of this process; returns pytest's exit status.

    Args:
        tree: The folder of packages and tests.
        tests: Test files in it.
        output: The file of what pytest prints.
    """
    child = os.fork()
    if child:
        end = time.monotonic() + SECONDS
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                os.killpg(child, 9)  # it hangs: that is noticed, too
                os.waitpid(child, 0)
                output.write_text(f"FAILED {tests[0]} (after {SECONDS} seconds)\n")
                return 1
            time.sleep(0.05)
    os.setpgid(0, 0)
    os.chdir(tree)
    paths = [str(tree), str(tree / "tests/helpers")]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    with open(output, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    import pytest

    options = ["-x", "-n", "0", "-p", "no:cacheprovider", "-rfE", "--tb=no", "--no-header"]
    status = int(pytest.main([*options, *tests]))
    packages = [sys.modules.get(name) for name in PACKAGES]
    if any(package and not package.__file__.startswith(str(tree)) for package in packages):
        status = 9
    sys.stdout.flush()
    os._exit(status)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", type=int, nargs="+", help="numbers of mutants, from 1; 0 changes nothing")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests", help="the folder of the tests")
    given = parser.parse_args()
    check_places(MUTANTS, ROOT)
    for name in LIBRARIES:
        __import__(name)
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree").resolve()
        for name in PACKAGES:
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(given.tests, tree / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "setup.cfg", tree)
        print("| | mutant | killed by | seconds |\n| --- | --- | --- | --- |", flush=True)
        for number in given.only or range(1, len(MUTANTS) + 1):
            mutant = MUTANTS[number - 1] if number else Mutant("nothing", "", "", " ".join(m.tests for m in MUTANTS))
            tests = [f"tests/{name}" for name in dict.fromkeys(mutant.tests.split())]
            changed, original = tree / mutant.file, ""
            if number:
                original = changed.read_text(encoding="utf-8")
                changed.write_text(original.replace(mutant.old, mutant.new), encoding="utf-8")
            output, began = Path(folder, "output"), time.monotonic()
            status = run_tests(tree, tests, output)
            seconds = time.monotonic() - began
            if number:
                changed.write_text(original, encoding="utf-8")
            said = output.read_text(encoding="utf-8", errors="replace")
            if status not in (0, 1):
                sys.exit(f"{number}: pytest ended with status {status}:\n{said[-3000:]}")
            killer = re.search(r"^(?:FAILED|ERROR) (?:tests/)?(.*?)(?: - |$)", said, re.MULTILINE)
            survived += number > 0 and status == 0
            shown = f"`{killer[1]}`" if killer else "**nothing**" if number else "nothing, as it should be"
            print(f"| {number} | `{mutant.file}` | {shown} | {seconds:.0f} |", flush=True)
    print(f"\n{survived} survived.")
    sys.exit(survived > 0)


if __name__ == "__main__":
    main()
