"""Evaluate: scores of a saved model on data, with the metrics of its kind.

python -m recipes.evaluate --model runs/dates/model --data dates
python -m recipes.evaluate --model runs/sst2/model --data sst2 --split validation
python -m recipes.evaluate --model hf://owner/name --task CausalLM --data held_out.txt
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, Literal

import numpy as np

import zoo
from recipes.common import command_line
from recipes.common.config import setting
from recipes.common.errors import ConfigError, DataError
from recipes.common.finish import TASKS, load_task
from recipes.common.label_metrics import label_scores, tag_scores
from recipes.common.labelled_text import columns_of, open_examples
from recipes.common.language_tokens import LanguageTokenPairs, scores_by_language
from recipes.common.named_data import is_name
from recipes.common.parallel_datasets import open_pairs
from recipes.common.plain_text import open_plain
from recipes.common.tagged_words import open_tagged
from recipes.common.text_metrics import translation_scores
from recipes.common.token_windows import TokenWindows
from zoo.training import TokenNegativeLogLikelihood


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    """Scores a saved model: BLEU and chrF, perplexity, accuracy and F1, or correlation, by its kind."""

    model: str = setting(help="Directory of a saved model, or of one of the Transformers library, or hf://owner/name.")
    data: list[str] = setting(help="Files as the recipe of that kind of model takes them, or the name of a data set.")
    task: str | None = setting(None, f"One of {', '.join(TASKS)}; null for the kind that was saved here.")
    split: Literal["train", "validation", "test"] = setting("test", "Part of a named data set.")
    text_columns: list[str] = setting(["1"], "Column of the text, or those of a pair (classifiers, embedders).")
    label_column: str = setting("2", "Column of the label (classifiers, embedders).")
    header: bool = setting(False, "Whether files begin with the names of their columns (classifiers, embedders).")
    label_separator: str | None = setting(None, "What separates several labels (classifiers).")
    word_column: int = setting(1, "Column of the word (taggers).")
    tag_column: int = setting(2, "Column of the tag (taggers).")
    language_tokens: list[str] = setting([], "Tokens of which each source begins with one (translation).")
    on_error: Literal["raise", "skip"] = setting("raise", "At a malformed row: stop, or skip and count it.")
    options: dict[str, Any] = setting({}, "Arguments of generate(), for example {sampler: beam} (translation).")


def main(config: EvaluateConfig) -> dict[str, Any]:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The scores.
    """
    task = load_task(config.model, config.task)
    for name in ("options", "language_tokens"):
        if getattr(config, name) and not isinstance(task, zoo.Seq2SeqLM):
            raise ConfigError(f"{name} must be empty for a {type(task).__name__}, got {getattr(config, name)!r}")
    if isinstance(task, zoo.Seq2SeqLM):
        results = evaluate_pairs(config, task)
    elif isinstance(task, zoo.CausalLM):
        results = evaluate_language_model(config, task)
    elif isinstance(task, (zoo.TextClassifier, zoo.TextEmbedder)):
        results = evaluate_labels(config, task)
    elif isinstance(task, zoo.TokenClassifier):
        results = evaluate_tags(config, task)
    else:
        texts, bad = _open_plain(config, "line")
        logs = task.evaluate(texts, return_dict=True, verbose=0)
        results = {"texts": len(texts), "left_out": bad.total, **{name: float(value) for name, value in logs.items()}}
    print(json.dumps(results, indent=2))
    return results


def evaluate_pairs(config: EvaluateConfig, task: zoo.Seq2SeqLM) -> dict[str, Any]:
    """Returns BLEU, chrF and exact match of a Seq2SeqLM."""
    pairs = _present(open_pairs(config.data, config.split, on_error=config.on_error), config)
    if config.language_tokens:
        pairs = LanguageTokenPairs(pairs, config.language_tokens, config.on_error)
    bad = getattr(pairs, "bad_lines", None)
    pairs = list(pairs)
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    try:
        outputs = task.generate(sources, truncate=True, **config.options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"options: {error}") from error
    left_out = 0 if bad is None else bad.total
    return {
        "pairs": len(pairs),
        "left_out": left_out,
        **translation_scores(outputs, references),
        **scores_by_language(sources, outputs, references, config.language_tokens),
    }


def evaluate_language_model(config: EvaluateConfig, task: zoo.CausalLM) -> dict[str, Any]:
    """Returns the perplexity of a CausalLM on windows that follow each other."""
    documents, bad = _open_plain(config, "file")
    ids = task.tokenizer.tokenize(documents).values.numpy()
    windows = TokenWindows(ids, length=task.backbone.config.max_length, batch_size=16)
    task.compile(loss=task.default_loss(), weighted_metrics=[TokenNegativeLogLikelihood(name="nll")])
    nll = float(task.evaluate(windows.dataset, return_dict=True, verbose=0)["nll"])
    return {
        "tokens": windows.number_of_tokens,
        "left_out": bad.total,
        "nll_per_token": round(nll, 4),
        "perplexity": round(math.exp(nll), 3),
        "bits_per_character": round(nll / math.log(2) * windows.number_of_tokens / sum(map(len, documents)), 4),
    }


def evaluate_labels(config: EvaluateConfig, task: Any) -> dict[str, Any]:
    """Returns the scores of a TextClassifier, or the correlations of a TextEmbedder."""
    is_embedder = isinstance(task, zoo.TextEmbedder)
    examples, bad = open_examples(
        config.data,
        config.split,
        text_columns=config.text_columns,
        label_column=config.label_column,
        header=config.header,
        label_separator=config.label_separator,
        numeric=is_embedder or task.problem == "regression",
        on_error=config.on_error,
    )
    texts, truth = columns_of(_present(examples, config))
    if is_embedder:
        if not isinstance(texts, tuple):
            raise DataError("an embedder is evaluated on pairs of texts: text_columns must name two columns")
        similarity = np.sum(task.embed(texts[0]) * task.embed(texts[1]), axis=1)
        scores = label_scores(truth, similarity, "regression")
        scores = {name: scores[name] for name in ("pearson", "spearman")}  # similarities have a scale of their own
    else:
        scores = label_scores(truth, task.classify(texts), task.problem)
    return {"examples": len(truth), "left_out": bad.total, **scores}


def evaluate_tags(config: EvaluateConfig, task: zoo.TokenClassifier) -> dict[str, Any]:
    """Returns the scores of a TokenClassifier."""
    columns = {"word_column": config.word_column, "tag_column": config.tag_column}
    sentences, bad = open_tagged(config.data, config.split, on_error=config.on_error, **columns)
    sentences = _present(sentences, config)
    predicted = task.tag([list(sentence.words) for sentence in sentences])
    scores = tag_scores([sentence.tags for sentence in sentences], predicted)
    return {"sentences": len(sentences), "left_out": bad.total, **scores}


def _open_plain(config: EvaluateConfig, unit: str) -> tuple[list[str], Any]:
    split = config.split
    if split == "test":
        split = "validation"
        if is_name(config.data):
            print(f"{config.data[0]} has no test part; this is its validation part")
    return open_plain(config.data, split, unit=unit, on_error=config.on_error)


def _present(part: Any, config: EvaluateConfig) -> Any:
    if part is None:
        raise DataError(f"{config.data[0]} has no {config.split} part: choose another with --split")
    return part


if __name__ == "__main__":
    command_line.run(main, EvaluateConfig, "evaluate")
