"""Which of our tasks a model of the Transformers library is."""

import os
from pathlib import Path

from zoo.huggingface.cross_encoder import is_cross_encoder
from zoo.huggingface.family import get_family
from zoo.huggingface.sentence_modules import MODULES_FILE
from zoo.storage import errors_of_file, quote
from zoo.storage.checkpoint import CONFIG_FILE, read_config_file


def task_of(directory: str | os.PathLike[str]) -> str:
    """Returns the name of the task whose head a directory holds, as its `architectures` say.

    Directories of the Sentence Transformers library hold embedders, unless they say that they hold a cross-encoder.

    Args:
        directory: A directory of the Transformers library.

    Raises:
        ValueError: If the family or the head is not supported.

    Example:

    >>> task_of("path/to/bert-base-uncased")
    'MaskedLM'
    """
    directory = Path(directory)
    if (directory / MODULES_FILE).is_file() and not is_cross_encoder(directory):
        return "TextEmbedder"
    values = read_config_file(directory)
    with errors_of_file(directory / CONFIG_FILE):
        heads = get_family(values.get("model_type")).heads
        given = values.get("architectures")
        for task, head in heads.items():
            if isinstance(given, list) and not {head.architecture, *head.others}.isdisjoint(map(str, given)):
                return task
        known = sorted(name for head in heads.values() for name in (head.architecture, *head.others))
        classes = ", ".join(f"zoo.{task}" for task in heads)
        raise ValueError(
            f"architectures must name one of {known}, whose heads are known, got {quote(given)}. from_preset() of the "
            f"class of a task ({classes}) does not ask for it."
        )
