"""What models that write texts make of test data: translations and summaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import zoo
from recipes.common.errors import errors_of
from recipes.common.evaluation.evaluation import Evaluation
from recipes.common.evaluation.rouge import rouge_metrics, rouge_signature
from recipes.common.evaluation.translation_metrics import scores_by_language, translation_metrics
from recipes.common.training.windowed import count_cut_sources


def evaluate_translation(
    task: zoo.Seq2SeqLM,
    sources: list[str],
    references: list[str],
    *,
    language: str | None = None,
    tokenization: str | None = None,
    tokens: Sequence[str] = (),
    part: str = "data",
    **options: Any,
) -> Evaluation:
    """Returns sacreBLEU, chrF2 and exact match of a translation model.

    Args:
        task: The model.
        sources, references: The texts and their translations.
        language, tokenization: See `translation_metrics`.
        tokens: Language tokens, see `scores_by_language`.
        part: The part of the data, for what is printed.
        **options: Arguments of `generate`.
    """
    outputs = _generated(task, sources, options)
    return Evaluation(
        [{"source": source, "reference": right} for source, right in zip(sources, references, strict=True)],
        outputs,
        {"pairs": len(sources), "sources_cut": count_cut_sources(part, task, sources)},
        translation_metrics(outputs, references, language, tokenization),
        scores_by_language(sources, outputs, references, tokens, tokenization),
    )


def evaluate_summaries(
    task: zoo.Seq2SeqLM,
    texts: list[str],
    summaries: list[tuple[str, ...]],
    *,
    language: str | None = None,
    part: str = "data",
    **options: Any,
) -> Evaluation:
    """Returns ROUGE of a model that summarizes.

    Args:
        task: The model.
        texts: The texts.
        summaries: One right summary of each, or several.
        language: See `rouge_metrics`.
        part: The part of the data, for what is printed.
        **options: Arguments of `generate`.
    """
    outputs = _generated(task, texts, options)
    return Evaluation(
        [{"source": text, "reference": list(right)} for text, right in zip(texts, summaries, strict=True)],
        outputs,
        {"texts": len(texts), "sources_cut": count_cut_sources(part, task, texts)},
        rouge_metrics(outputs, summaries, language),
        {"rouge_signature": rouge_signature(language)},
    )


def _generated(task: zoo.Seq2SeqLM, texts: list[str], options: Mapping[str, Any]) -> list[str]:
    with errors_of("options"):
        return task.generate(texts, truncate=True, **options)
