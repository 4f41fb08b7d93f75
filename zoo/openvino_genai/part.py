"""What each kind of task gives to an export for OpenVINO GenAI."""

import abc
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from zoo.export.agreement import TOLERANCE

MODEL_FILE = "openvino_model.xml"


class Part(abc.ABC):
    """What a kind of task gives to an export, besides what all kinds share.

    Args:
        task: The task.
    """

    # what the card calls the model
    kind: ClassVar[str]
    # the class of `openvino_genai` that opens the folder
    pipeline: ClassVar[str]
    # the output of the graph
    output: ClassVar[str]

    def __init__(self, task: Any) -> None:
        self.task = task

    @abc.abstractmethod
    def require(self) -> None:
        """Raises a ValueError if the pipeline cannot hold the task."""

    @abc.abstractmethod
    def write_files(self, folder: Path) -> None:
        """Writes the tokenizer, and the settings that the pipeline reads.

        Args:
            folder: The folder of the export.

        Raises:
            ValueError: If the pipeline cannot do what the task does.
        """

    @abc.abstractmethod
    def graph(self) -> Any:
        """Returns the `openvino.Model`."""

    @abc.abstractmethod
    def agreement(self, path: Path, exact: bool) -> dict[str, float]:
        """Returns how far the outputs of the graph are from those of Python.

        Args:
            path: The file of the graph.
            exact: Whether they must be equal, up to the order of sums.

        Raises:
            ValueError: If they differ and must be equal.
        """

    def options(self) -> dict[str, Any]:
        """Returns the arguments that the pipeline needs to compute what the task computes."""
        return {}

    @abc.abstractmethod
    def use(self) -> str:
        """Returns the lines of the card that use a `pipeline`."""

    @abc.abstractmethod
    def notes(self) -> str:
        """Returns what the card says of the pipeline and its limits."""


def differences(output: str, found: np.ndarray, expected: np.ndarray, exact: bool) -> dict[str, float]:
    """Returns the largest difference of outputs from those of Python.

    Args:
        output: Their name.
        found, expected: Arrays of one shape.
        exact: Whether they must be equal, up to the order of sums.

    Raises:
        ValueError: If they differ and must be equal.
    """
    difference = float(f"{np.abs(found - expected).max():.3g}")
    if exact and not np.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE):
        raise ValueError(
            f"The {output} of {MODEL_FILE} differ from Python's by {difference}: OpenVINO does not compute what this "
            "model computes. A SavedModel (format='tf_saved_model') holds every model."
        )
    return {"largest_difference": difference, "largest_value": float(f"{np.abs(expected).max():.3g}")}
