"""Labels of classifiers in configurations of the Transformers library."""

from collections.abc import Sequence
from typing import Any

from zoo.config.checks import require
from zoo.huggingface.config_reader import ConfigReader
from zoo.storage import quote, require_type

PROBLEMS = {
    "single_label_classification": "single_label",
    "multi_label_classification": "multi_label",
    "regression": "regression",
}
# what cross-encoders apply to their logits, and the problem of a single one and of several that has it
SCORES = {"Identity": ("regression", "single_label"), "Sigmoid": ("multi_label", "multi_label")}
MODULES = {
    "regression": "linear.Identity",
    "single_label": "linear.Identity",
    "multi_label": "activation.Sigmoid",
}


def label_names(reader: ConfigReader) -> int | list[str]:
    """Returns the names of the labels, or their number where they have none.

    Args:
        reader: The configuration: `id2label`; `num_labels` where it is missing.

    Raises:
        ValueError: If they are not numbered from 0 on.
    """
    names = reader.take("id2label", None)
    if not names:
        return reader.take_number("num_labels", 2)
    if len(names) > reader.elements:
        raise ValueError(
            f"id2label must name fewer labels, got {len(names)} where {reader.source} holds {reader.elements:.0f} "
            "weights."
        )
    if not all(number.isdecimal() and len(number) < 10 for number in names):
        raise ValueError(f"id2label must number the labels from 0 on, got {quote(names)}.")
    numbers = {int(number): name for number, name in names.items()}
    if sorted(numbers) != list(range(len(numbers))):
        raise ValueError(f"id2label must number the labels from 0 on, got {quote(names)}.")
    ordered = [str(numbers[number]) for number in range(len(numbers))]
    return len(ordered) if ordered == written_names(len(ordered)) else ordered


def labels_and_problem(reader: ConfigReader) -> dict[str, Any]:
    """Returns the arguments `labels` and `problem` of a `TextClassifier`, and `pairs` for a cross-encoder.

    Args:
        reader: The configuration: `id2label`, `problem_type`, and what the Sentence Transformers library adds to those
            of its cross-encoders.

    Raises:
        ValueError: If a value is not known.
    """
    names = label_names(reader)
    count = names if isinstance(names, int) else len(names)
    problem = PROBLEMS.get(reader.take_only("problem_type", None, *PROBLEMS))
    activation = _activation_of_pairs(reader)
    if activation is not None:
        require(activation in SCORES, "activation_fn of a cross-encoder", activation, f"one of {sorted(SCORES)}")
        single, several = SCORES[activation]
        if count == 1 or problem is None or activation == "Sigmoid":
            problem = single if count == 1 else several
        return {"labels": names, "problem": problem, "pairs": True}
    if problem is None:
        problem = "regression" if count == 1 else "single_label"
    return {"labels": names, "problem": problem}


def _activation_of_pairs(reader: ConfigReader) -> str | None:
    """The function that a cross-encoder applies to its logits; None where the configuration is of no cross-encoder."""
    newer, older = (reader.take(key, None) for key in ("sentence_transformers", "sbert_ce_default_activation_function"))
    require_type(newer, dict[str, Any] | None, "sentence_transformers")
    name = (newer or {}).get("activation_fn", older)
    require_type(name, str | None, "activation_fn of a cross-encoder")
    return name and name.rpartition(".")[2]


def written_names(labels: int | Sequence[str]) -> list[str]:
    """Returns the names of labels as configurations hold them, where all have one.

    Args:
        labels: Their names, or their number.
    """
    return [f"LABEL_{number}" for number in range(labels)] if isinstance(labels, int) else list(labels)


def write_labels(options: dict[str, Any]) -> dict[str, Any]:
    """Returns `id2label`, `label2id` and `problem_type` for the options of a classifier.

    Args:
        options: What `options()` of the task returned.
    """
    names = written_names(options["labels"])
    values = {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }
    if "problem" in options:
        values["problem_type"] = {our: their for their, our in PROBLEMS.items()}[options["problem"]]
    if options.get("pairs"):  # for versions of that library before 6
        values["sentence_transformers"] = {"activation_fn": f"torch.nn.modules.{MODULES[options['problem']]}"}
    return values
