"""How recipes end: results, then the final steps: pictures, the export, which is tried, model card and pages."""

from __future__ import annotations

import dataclasses
import json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import huggingface_hub
import keras
import numpy as np

import zoo
from recipes.command.printing import print_result
from recipes.common.export_process import export_with_tensorflow
from recipes.common.report import PAGE, REPORT, write_inspection, write_report
from recipes.common.run_folder import RunFolder
from recipes.common.training.fitting import save_adapter
from recipes.common.training.models import count_trained

TEST_IS_VALIDATION = (
    "The test data are the validation data, on which the epoch, temperature and thresholds may have been chosen: new "
    "data would have lower scores."
)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What the steps of a recipe have made: the trained task, what was measured, and how its export is tried.

    Args:
        task: The trained task.
        results: What was measured, plain values.
        trial: Given the loaded SavedModel, tries it: `(input, output, what the task itself gives)` of a few examples,
            the latter two strings, lists of strings, or arrays of numbers.
        examples: A few inputs of the export, as its model card shows them and servers try them first.
        export: Arguments of `task.export`, plain values, if the config asks for an export.
        test_is_validation: Whether the test scores are of the validation data, which is said; None without a test.
        numbers: What the arrays of `trial` are.
    """

    task: zoo.Task
    results: Mapping[str, Any]
    trial: Callable[[Any], Iterable[tuple[Any, Any, Any]]]
    examples: Sequence[Any]
    export: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    test_is_validation: bool | None = None
    numbers: str = ""


def finish(run: RunFolder, recipe: str, outcome: Outcome, started: float) -> dict[str, Any]:
    """Writes the results, and then what may fail: pictures, adapter, export, model card, inspection and report.

    The names of final steps that failed, or have not been done yet, are in the results as `failed`.

    Args:
        run: The run folder, of a config with the key `export`.
        recipe: Name of the recipe.
        outcome: The trained task and what was measured; sizes and times are added, the best epoch, and how many weights
            trained where not all did.
        started: `time.monotonic()` when the recipe began.

    Returns:
        The results.

    Raises:
        UnfinishedError: If a final step has failed.
    """
    task, is_validation = outcome.task, outcome.test_is_validation
    results = {"parameters": task.count_params(), **outcome.results, **run.best}
    results["training_seconds"] = round(run.training_seconds, 1)
    trained = count_trained(task)
    if trained < task.count_params():
        results["trained_parameters"] = trained
    results.update(run.data.counts)
    if is_validation is not None:
        results["test_is_validation"] = is_validation
    if is_validation:
        print(TEST_IS_VALIDATION)

    # once: the card and the results state the same
    results["total_seconds"] = round(time.monotonic() - started, 1)

    def write_results() -> None:
        # a run that is killed before they are done has not ended
        unfinished = {"failed": run.final_steps.unfinished} if run.final_steps.unfinished else {}
        run.write_text("results.json", json.dumps({**results, **unfinished}, indent=2) + "\n")

    def write_export() -> None:
        results["export_megabytes"] = round(export_model(run, outcome) / 1e6, 2)

    def write_card() -> None:
        run.write_text("model_card.md", str(model_card(run, recipe, task, results)))

    steps = run.final_steps
    steps.add("adapter", save_adapter, task, run)
    if run.config.export:
        steps.add("export", write_export)
    steps.add("model_card.md", write_card)
    steps.add(PAGE, write_inspection, run, task, outcome.examples)
    steps.add(REPORT, lambda: print(f"report: {write_report(run, recipe, task, list(_flat(results)))}"))
    write_results()
    steps.run()
    if steps.failed:
        results["failed"] = list(steps.failed)
    write_results()
    print_result(json.dumps(results, indent=2))
    steps.raise_failed()
    return results


def export_model(run: RunFolder, outcome: Outcome) -> int:
    """Exports the model as a new version and tries it; returns its size in bytes.

    Args:
        run: The run folder.
        outcome: The trained task, and how its export is tried.

    Raises:
        RuntimeError: If the export gives other outputs than the task.
    """
    task, options, examples = outcome.task, dict(outcome.export), outcome.examples
    version = zoo.export.new_version(run.export)
    # a server may wait for it: it appears when it has been tried
    with zoo.storage.replace_folder(version, lambda old: False, "new version") as folder:
        if keras.backend.backend() == "tensorflow":
            task.export(folder, **options, examples=examples)
        else:
            export_with_tensorflow(run.path / "model", folder, options, examples, type(task).__name__)
        try_export(folder, outcome.trial, outcome.numbers)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"export: {version}")
    return size


def try_export(folder: Path, trial: Callable[[Any], Iterable[tuple[Any, Any, Any]]], numbers: str = "") -> None:
    """Prints what an export makes of a few examples.

    Args:
        folder: Its folder.
        trial, numbers: See `Outcome`.

    Raises:
        RuntimeError: If it gives other outputs than the task.
    """
    import tensorflow as tf

    # another backend rounds otherwise in 16 bits, and a text may then go on with another token
    may_differ = keras.backend.backend() != "tensorflow" and keras.config.dtype_policy().name != "float32"
    for given, output, expected in trial(tf.saved_model.load(str(folder))):
        is_text = isinstance(expected, str | list)
        if not (output == expected if is_text else np.allclose(output, expected, rtol=1e-4, atol=1e-5)):
            message = f"The export makes {output!r} of {given!r}, the task {expected!r}."
            if not may_differ:
                raise RuntimeError(message)
            print(f"export: {message} The task computes in {keras.config.dtype_policy().name} with another backend.")
        shown = output
        if not is_text:
            array = np.array2string(np.asarray(output), precision=3, threshold=8, edgeitems=3, suppress_small=True)
            shown = f"{numbers} {array}".strip()
        print(f"export: {given!r} -> {shown}")


def model_card(run: RunFolder, recipe: str, task: zoo.Task, results: dict[str, Any]) -> huggingface_hub.ModelCard:
    """Returns the model card of a run: what was trained, how, and what came out.

    Args:
        run: The run folder.
        recipe: Name of the recipe.
        task: The trained task.
        results: What was measured, plain values.

    Example:

    >>> model_card(run, "translate", model, {"exact_match": 0.99}).data.library_name
    'keras'
    """
    rows = "\n".join(f"| {_cell(name)} | {_cell(value)} |" for name, value in _flat(results))
    note = f"\n{TEST_IS_VALIDATION}\n" if results.get("test_is_validation") else ""
    pictures = "\n".join(f"![{path.stem}](plots/{path.name})" for path in sorted(run.plots.glob("*.png")))
    data = huggingface_hub.ModelCardData(library_name="keras", tags=["keras-transformer-zoo", recipe])
    return huggingface_hub.ModelCard(f"""---
{data.to_yaml()}
---

# {type(task).__name__} trained with `recipes.{recipe}`

## Results

| measure | value |
| --- | --- |
{rows}
{note}
Keras {keras.__version__}, backend {keras.backend.backend()}, Python {platform.python_version()}, {platform.machine()}.

## Use

```python
import zoo

model = zoo.{type(task).__name__}.from_preset("model")
```

{_use_of_export(run)}
## Configuration

```yaml
{run.config_yaml.read_text(encoding="utf-8").strip()}
```

## Architecture

```json
{json.dumps(task.backbone.config.to_dict(), indent=2)}
```

## Pictures

{pictures}
""")


def decoded(texts: Any) -> list[str]:
    """Returns a string tensor as a list of texts.

    Args:
        texts: `tf.string` tensor `(batch,)`.
    """
    return [text.decode("utf-8") for text in texts.numpy()]


def _flat(results: Mapping[str, Any], group: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values, those of a mapping one by one behind its name."""
    for name, value in results.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{group}{name}, ")
        else:
            yield group + name, value


def _use_of_export(run: RunFolder) -> str:
    """How the SavedModel is used; nothing where there is none."""
    if not zoo.export.versions(run.export):
        return ""
    folder = zoo.export.newest_version(run.export)
    signature = json.loads((folder / zoo.export.DESCRIPTION_FILE).read_text(encoding="utf-8"))
    inputs = signature["endpoints"]["serve"]["inputs"]
    given = '["..."]' if len(inputs) == 1 else ", ".join(f"{field['name']}=['...']" for field in inputs)
    return f"""or, with `tensorflow` and `tensorflow_text` alone:

```python
import tensorflow as tf
import tensorflow_text

served = tf.saved_model.load({json.dumps(folder.relative_to(run.path).as_posix(), ensure_ascii=False)})
served.serve({given})
```
"""


def _cell(value: Any) -> str:
    # neither a column nor a tag of HTML
    return str(value).replace("|", "\\|").replace("<", "&lt;")
