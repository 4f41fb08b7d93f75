"""Writes a page that shows how a saved model processes a text: attention, predictions, gradients.

python -m recipes.inspect runs/dates --text "4 May 1999"
python -m recipes.inspect runs/dates --text "4 May 1999" --target "1999-05-04" --output date.html
python -m recipes.inspect runs/squad --text "Who wrote it?" "Ada wrote it."
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import zoo
from recipes.common.config import run_recipe, setting
from recipes.common.errors import ConfigError, errors_of
from recipes.common.output_file import check_output_file
from recipes.common.saved_models import TASKS, load_task


@dataclasses.dataclass(frozen=True)
class InspectConfig:
    """Writes one HTML page that shows what a saved model does with a text."""

    model: str = setting(
        help="Folder of a run, or directory of a saved model, also of the Transformers library, or hf://owner/name.",
        words="first",
        offers="paths",
    )
    task: str | None = setting(None, f"One of {', '.join(TASKS)}; null for the kind that was saved here.", offers=TASKS)
    text: list[str] = setting([], "The text. A task of pairs takes two, such as question and context.")
    target: str | None = setting(None, "Target text of an encoder-decoder. null: the text that the model generates.")
    chat: bool = setting(False, "Whether the text is the message of a user, to which a chat model replies.")
    top_k: int = setting(5, "Number of choices that are shown at each position.", least=1, most=100)
    gradients: bool = setting(True, "Whether gradients are computed. They take most of the time.")
    output: str = setting("inspect.html", "The file to write, .html.", offers="paths")


def main(config: InspectConfig) -> Path:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The page.
    """
    if len(config.text) not in (1, 2):
        raise ConfigError(f"text must hold one text, or two for a task of pairs, got {len(config.text)}")
    if config.chat and len(config.text) > 1:
        raise ConfigError("text must hold one message with chat true, got 2 texts")
    check_output_file(config.output, ".html")
    task = load_task(config.model, config.task)
    if len(config.text) > 1 and isinstance(task, zoo.Seq2SeqLM):
        raise ConfigError("text must hold one source for a Seq2SeqLM, got 2 texts; target takes the target text")
    text: Any = config.text[0] if len(config.text) == 1 else tuple(config.text)
    if config.chat:
        text = [{"role": "user", "content": text}]
    with errors_of("text"):
        found = task.inspect(text, config.target, top_k=config.top_k, gradients=config.gradients)
    with errors_of("output"):
        path = found.save_html(config.output)
    print(f"{path}: {found!r}")
    return path


if __name__ == "__main__":
    run_recipe(main, InspectConfig, "inspect", prints_results=True)
