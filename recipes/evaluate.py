"""Evaluate: scores of a saved model on data, with the metrics of its kind.

python -m recipes.evaluate --model runs/dates/model --data dates
python -m recipes.evaluate --model runs/sst2/model --data sst2 --split validation
python -m recipes.evaluate --model hf://owner/name --task CausalLM --data held_out.txt
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

import zoo
from recipes.common.config import run_recipe, setting
from recipes.common.data_sets import is_name, open_part
from recipes.common.errors import ConfigError, DataError, errors_of
from recipes.common.label_metrics import label_scores, tag_scores
from recipes.common.labelled_text import LABELLED, columns_of, read_examples, unknown_labels
from recipes.common.models import TASKS, language_tokens_of, load_task, make_sampler, require_texts_alone
from recipes.common.parallel_text import PARALLEL, check_language_tokens, has_language_token, read_pairs
from recipes.common.plain_text import PLAIN, read_plain
from recipes.common.tagged_words import TAGGED, read_tagged
from recipes.common.text_metrics import perplexity, scores_by_language, translation_scores
from recipes.common.token_windows import TokenWindows
from zoo.training import TokenNegativeLogLikelihood


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    """Scores a saved model: sacreBLEU and chrF2, perplexity, accuracy and F1, or correlation, by its kind."""

    model: str = setting(help="Directory of a saved model, or of one of the Transformers library, or hf://owner/name.")
    data: list[str] = setting(help="Files as the recipe of that kind of model takes them, or the name of a data set.")
    task: str | None = setting(None, f"One of {', '.join(TASKS)}; null for the kind that was saved here.")
    split: Literal["train", "validation", "test"] = setting("test", "Part of a named data set.")
    text_columns: list[str] = setting(["1"], "Column of the text, or those of a pair (classifiers, embedders).")
    label_column: str = setting("2", "Column of the label (classifiers, embedders).")
    header: bool | None = setting(None, "Whether tables begin with column names; null: no, but stop if it looks so.")
    label_separator: str | None = setting(None, "What separates several labels (classifiers).")
    columns: int = setting(2, "Columns of a TSV or CSV file (translation).", least=2, most=10**6)
    keys: list[str] = setting(["source", "target"], "Keys of source and target in JSON lines (translation).")
    word_column: int = setting(1, "Column of the word (taggers).", least=1)
    tag_column: int = setting(2, "Column of the tag (taggers).", least=1)
    language_tokens: list[str] | None = setting(
        None,
        "Tokens of which each source begins with one (translation); null: those of the model, an empty list: none.",
    )
    on_error: Literal["raise", "skip"] = setting("raise", "At a malformed row: stop, or skip and count it.")
    options: dict[str, Any] = setting({}, "Arguments of generate(), for example {sampler: beam} (translation).")


def main(config: EvaluateConfig) -> dict[str, Any]:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The scores.
    """
    require_texts_alone(config.options, "return_scores", "return_cache", "num_results")
    if config.options.get("sampler") is not None:
        make_sampler(config.options["sampler"])
    task = load_task(config.model, config.task)
    if isinstance(task, zoo.QuestionAnswerer):
        raise ConfigError("model must be of a task whose data are read here; a QuestionAnswerer has evaluate() for its")
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
        texts, left_out = open_texts(config, "line")
        with errors_of("data"):
            logs = task.evaluate(texts, return_dict=True, verbose=0)
        results = {"texts": len(texts), "left_out": left_out, **{name: float(value) for name, value in logs.items()}}
    print(json.dumps(results, indent=2))
    return results


def open_rows(config: EvaluateConfig, loaders: Any, read: Any, check: Any = None) -> tuple[list[Any], int]:
    """Returns the rows of the data, and how many were left out."""
    rows, bad = open_part(config.data, config.split, loaders, read, config.on_error, check)
    if rows is None:
        raise DataError(f"{config.data[0]} has no {config.split} part: choose another with --split")
    return rows, bad.total


def evaluate_pairs(config: EvaluateConfig, task: zoo.Seq2SeqLM) -> dict[str, Any]:
    """Returns sacreBLEU, chrF2 and exact match of a Seq2SeqLM."""
    tokens = language_tokens_of(task) if config.language_tokens is None else config.language_tokens
    check_language_tokens(tokens, "language_tokens")
    pairs, left_out = open_rows(
        config,
        PARALLEL,
        lambda files, bad: read_pairs(files, bad, columns=config.columns, keys=config.keys, header=config.header),
        lambda pair, bad: has_language_token(pair, bad, tokens),
    )
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    with errors_of("options"):
        outputs = task.generate(sources, truncate=True, **config.options)
    return {
        "pairs": len(pairs),
        "left_out": left_out,
        **translation_scores(outputs, references),
        **scores_by_language(sources, outputs, references, tokens),
    }


def evaluate_language_model(config: EvaluateConfig, task: zoo.CausalLM) -> dict[str, Any]:
    """Returns the perplexity of a CausalLM on windows that follow each other."""
    documents, left_out = open_texts(config, "file")
    ids = task.tokenizer.tokenize(documents).values.numpy()
    windows = TokenWindows(ids, length=task.backbone.config.max_length, batch_size=16)
    task.compile(loss=task.default_loss(), weighted_metrics=[TokenNegativeLogLikelihood(name="nll")])
    nll = float(task.evaluate(windows.dataset, return_dict=True, verbose=0)["nll"])
    return {
        "tokens": windows.number_of_tokens,
        "left_out": left_out,
        "nll_per_token": round(nll, 4),
        "perplexity": perplexity(nll),
        "bits_per_character": round(nll / math.log(2) * windows.number_of_tokens / sum(map(len, documents)), 4),
    }


def evaluate_labels(config: EvaluateConfig, task: Any) -> dict[str, Any]:
    """Returns the scores of a TextClassifier, or the correlations of a TextEmbedder."""
    is_embedder = isinstance(task, zoo.TextEmbedder)
    examples, left_out = open_rows(
        config,
        LABELLED,
        lambda files, bad: read_examples(
            files,
            bad,
            text_columns=config.text_columns,
            label_column=config.label_column,
            header=config.header,
            label_separator=config.label_separator,
            numeric=is_embedder or task.preprocessor.problem == "regression",
        ),
    )
    texts, truth = columns_of(examples)
    unknown = {}
    if not is_embedder and task.preprocessor.problem != "regression":
        several = task.preprocessor.problem == "multi_label"
        rows = [(example.label if several else [example.label], example.origin) for example in examples]
        unknown = unknown_labels(task.labels.strings, rows, "label")
    needed = 2 if is_embedder or task.preprocessor.pairs else 1
    found = len(texts) if isinstance(texts, tuple) else 1
    if found != needed:
        raise DataError(f"text_columns must name {needed} for this {type(task).__name__}, the data have {found}")
    if is_embedder:
        with errors_of("data"):
            similarity = np.sum(task.embed(texts[0]) * task.embed(texts[1]), axis=1)
        scores = label_scores(truth, similarity, "regression")
        scores = {name: scores[name] for name in ("pearson", "spearman")}  # similarities have a scale of their own
    else:
        with errors_of("data"):
            predicted = task.classify(texts)
        if task.preprocessor.problem != "regression":
            predicted = as_strings(predicted)
        scores = label_scores(truth, predicted, task.preprocessor.problem)
    return {"examples": len(truth), "left_out": left_out, **unknown, **scores}


def evaluate_tags(config: EvaluateConfig, task: zoo.TokenClassifier) -> dict[str, Any]:
    """Returns the scores of a TokenClassifier."""
    columns = {"word_column": config.word_column, "tag_column": config.tag_column}
    sentences, left_out = open_rows(config, TAGGED, lambda files, bad: read_tagged(files, bad, **columns))
    unknown = unknown_labels(task.labels.strings, [(sentence.tags, sentence.origin) for sentence in sentences], "tag")
    with errors_of("data"):
        predicted = task.tag([list(sentence.words) for sentence in sentences])
    scores = tag_scores([sentence.tags for sentence in sentences], as_strings(predicted))
    return {"sentences": len(sentences), "left_out": left_out, **unknown, **scores}


def as_strings(labels: Sequence[Any]) -> list[Any]:
    """Returns the labels of rows, which may be numbers, as files hold them.

    Args:
        labels: Of each row a label, or a list of labels.

    Example:

    >>> as_strings([1, [0, 1]])
    ['1', ['0', '1']]
    """
    return [as_strings(label) if isinstance(label, list) else str(label) for label in labels]


def open_texts(config: EvaluateConfig, unit: str) -> tuple[list[str], int]:
    """Returns the texts of the data, and how many lines were left out; no named data set has a test part."""
    if config.split == "test" and is_name(config.data):
        print(f"{config.data[0]} has no test part; this is its validation part")
        config = dataclasses.replace(config, split="validation")
    return open_rows(config, PLAIN, lambda files, bad: read_plain(files, bad, unit=unit))


if __name__ == "__main__":
    run_recipe(main, EvaluateConfig, "evaluate")
