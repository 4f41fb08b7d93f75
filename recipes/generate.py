"""Applies a saved model to texts: continuations, translations, labels, tags, vectors, masked words.

python -m recipes.generate runs/dates --texts "4 May 1999" "am 3. Juni 2001"
python -m recipes.generate hf://owner/name --task CausalLM --file prompts.txt --output answers.jsonl
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np

import zoo
from recipes.command.printing import print_lines_of_json
from recipes.common.config import run_recipe, setting
from recipes.common.data.parallel_text import check_language_tokens, language_token
from recipes.common.data.plain_text import read_plain
from recipes.common.errors import BadLines, ConfigError, errors_of, shown
from recipes.common.output_file import check_output_file
from recipes.common.saved_models import TASKS, language_tokens_of, load_task, require_texts_alone


@dataclasses.dataclass(frozen=True)
class GenerateConfig:
    """Applies a saved model to texts and prints, or writes, one JSON object per text."""

    model: str = setting(
        help="Folder of a run, or directory of a saved model, also of the Transformers library, or hf://owner/name.",
        words="first",
        offers="paths",
    )
    task: str | None = setting(None, f"One of {', '.join(TASKS)}; null for the kind that was saved here.", offers=TASKS)
    texts: list[str] = setting([], "Texts to apply the model to.")
    file: str | None = setting(None, "File with one text per line. They follow --texts.", offers="paths")
    output: str | None = setting(None, "JSON-lines file to write. null: the outputs are printed.", offers="paths")
    options: dict[str, Any] = setting(
        {}, "Arguments of the task's method, for example {sampler: beam, max_length: 64}; scores are not returned."
    )
    language_tokens: list[str] | None = setting(
        None,
        "Translation: each source begins with one of these tokens. null: those of the model. An empty list: none.",
    )
    batch_size: int = setting(32, "Number of texts per batch.", least=1, most=1 << 16)


def main(config: GenerateConfig) -> list[dict[str, Any]]:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        One dictionary per text: `text` and `output`.
    """
    require_texts_alone(config.options, "return_scores", "return_cache")
    if config.output is not None:
        check_output_file(config.output)
    texts = list(config.texts)
    if config.file is not None:
        texts += read_plain([config.file], BadLines("raise"), unit="line")
    if not texts:
        raise ConfigError("texts or file must be given")
    task = load_task(config.model, config.task)
    if isinstance(task, zoo.QuestionAnswerer):
        raise ConfigError("model must be of a task that takes single texts; a QuestionAnswerer has answer() for pairs")
    tokens = config.language_tokens
    if tokens and not isinstance(task, zoo.Seq2SeqLM):
        raise ConfigError(f"language_tokens must be null for a {type(task).__name__}, got {tokens!r}")
    if tokens is None:
        tokens = language_tokens_of(task) if isinstance(task, zoo.Seq2SeqLM) else []
    check_language_tokens(tokens, "language_tokens")
    for text in texts:
        if tokens and language_token(text) not in tokens:
            raise ConfigError(f"texts must begin with one of {', '.join(tokens)} each, got {shown(text)}")
    with errors_of("options"):
        outputs = apply(task, texts, {"batch_size": config.batch_size, **config.options})
    rows = [{"text": text, "output": output} for text, output in zip(texts, outputs, strict=True)]
    if config.output is None:
        print_lines_of_json(rows)
    else:
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        with errors_of("output"):
            zoo.storage.write_text_atomically(config.output, lines)
    return rows


def apply(task: zoo.Task, texts: list[str], options: dict[str, Any]) -> list[Any]:
    """Returns what a task makes of texts, as JSON values.

    Args:
        task: The task.
        texts: The texts.
        options: Arguments of its method.
    """
    if isinstance(task, (zoo.CausalLM, zoo.Seq2SeqLM)):
        return task.generate(texts, **options)
    if isinstance(task, zoo.TextClassifier):
        return task.classify(texts, **options)
    if isinstance(task, zoo.TokenClassifier):
        return tagged(task, texts, options)
    if isinstance(task, zoo.TextEmbedder):
        return np.asarray(task.embed(texts, **options)).tolist()
    if isinstance(task, zoo.ReplacedTokenDetector):
        return [[token._asdict() for token in tokens] for tokens in task.detect(texts, **options)]
    return task.fill_mask(texts, **options)


def tagged(task: zoo.TokenClassifier, texts: list[str], options: dict[str, Any]) -> list[Any]:
    """Returns the spans that BIO tags mark in texts, or each word with its tag.

    Args:
        task: The task; it splits texts into words as in its training.
        texts: The texts.
        options: Arguments of its method.
    """
    if zoo.tasks.entities.are_tags(task.labels.names):
        names = ("label", "text", "start", "end", "score")
        rows = task.entities(texts, **options)
        return [[{name: getattr(entity, name) for name in names} for entity in row] for row in rows]
    words = zoo.preprocessing.split_words(texts, task.preprocessor.split)[0].to_list()
    rows = zip(words, task.tag(texts, **options), strict=True)
    return [[[word.decode(), tag] for word, tag in zip(*row, strict=True)] for row in rows]


if __name__ == "__main__":
    run_recipe(main, GenerateConfig, "generate", prints_results=True)
