"""What models make of test data, beside what is right: outputs, scores, and what intervals and tests are made of."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sacrebleu

import zoo
from recipes.common.data.labelled_text import LabelledText, columns_of, unknown_labels
from recipes.common.data.questions import Question
from recipes.common.data.spanned_text import span_scores
from recipes.common.errors import DataError, errors_of
from recipes.common.evaluation.answer_metrics import answer_scores
from recipes.common.evaluation.label_metrics import entities_of, label_scores, tag_scores
from recipes.common.evaluation.rouge import rouge_of_each, rouge_signature
from recipes.common.evaluation.significance import Measure, correlation_of, f1_of, mean_of
from recipes.common.evaluation.translation_metrics import (
    bleu_metric,
    corpus_measure,
    has_moses_tokens,
    moses_metric,
    moses_tokens,
    scores_by_language,
    translation_scores,
)
from recipes.common.training.windowed import count_cut, count_cut_questions, count_cut_sources, count_unseen_words


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The results of one model on the test data.

    Args:
        rows: Each row of the data, without what the model makes of it: names to plain values.
        outputs: What it makes of each row, a plain value.
        scores: The scores, as they stand in the results.
        measures: By name the scores that are functions of how often each row counts.
        guessed: By name of a measure what tells its tokens from those of another model, where it counts tokens.
    """

    rows: list[dict[str, Any]]
    outputs: list[Any]
    scores: dict[str, Any]
    measures: Mapping[str, Measure] = dataclasses.field(default_factory=dict)
    guessed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Tells whether models were given the same rows."""
        return hashlib.sha256(ascii(self.rows).encode()).hexdigest()


def evaluate_translation(
    task: zoo.Seq2SeqLM,
    sources: list[str],
    references: list[str],
    *,
    language: str | None = None,
    tokenization: str | None = None,
    tokens: Sequence[str] = (),
    **options: Any,
) -> Evaluation:
    """Returns sacreBLEU, chrF2 and exact match of a translation model.

    Args:
        task: The model.
        sources, references: The texts and their translations.
        language, tokenization: See `translation_scores`.
        tokens: Language tokens, see `scores_by_language`.
        **options: Arguments of `generate`.
    """
    outputs = _generated(task, sources, options)
    same = np.array(outputs, object) == np.array(references, object)
    measures = {
        "exact_match": mean_of(same),
        "sacreBLEU": corpus_measure(bleu_metric(references, language, tokenization), outputs, references),
        "chrF2": corpus_measure(sacrebleu.CHRF(), outputs, references),
    }
    if language is not None and has_moses_tokens(language):
        tokenised = (moses_tokens(texts, language) for texts in (outputs, references))
        measures["tokenised lower-cased BLEU"] = corpus_measure(moses_metric(), *tokenised)
    scores = {
        **translation_scores(outputs, references, language, tokenization),
        **scores_by_language(sources, outputs, references, tokens, tokenization),
    }
    rows = [{"source": source, "reference": right} for source, right in zip(sources, references, strict=True)]
    counts = {"pairs": len(rows), "sources_cut": count_cut_sources("data", task, sources)}
    return Evaluation(rows, outputs, {**counts, **scores}, measures)


def evaluate_summaries(
    task: zoo.Seq2SeqLM,
    texts: list[str],
    summaries: list[tuple[str, ...]],
    *,
    language: str | None = None,
    **options: Any,
) -> Evaluation:
    """Returns ROUGE of a model that summarizes.

    Args:
        task: The model.
        texts: The texts.
        summaries: One right summary of each, or several.
        language: See `rouge`.
        **options: Arguments of `generate`.
    """
    outputs = _generated(task, texts, options)
    each = rouge_of_each(outputs, summaries, language)
    rows = [{"source": text, "reference": list(right)} for text, right in zip(texts, summaries, strict=True)]
    scores: dict[str, Any] = {name: round(float(np.mean(values)), 2) for name, values in each.items()}
    scores["rouge_signature"] = rouge_signature(language)
    measures = {name: mean_of(values) for name, values in each.items()}
    counts = {"texts": len(rows), "sources_cut": count_cut_sources("data", task, texts)}
    return Evaluation(rows, outputs, {**counts, **scores}, measures)


def _generated(task: zoo.Seq2SeqLM, texts: list[str], options: Mapping[str, Any]) -> list[str]:
    with errors_of("options"):
        return task.generate(texts, truncate=True, **options)


def evaluate_labels(task: zoo.TextClassifier, examples: Sequence[LabelledText]) -> Evaluation:
    """Returns accuracy and F1 of a classifier, or error and correlation of one that predicts numbers.

    Args:
        task: The model.
        examples: The examples.

    Raises:
        DataError: If the model knows none of the labels.
    """
    problem = task.preprocessor.problem
    texts, truth = columns_of(examples)
    unknown = {}
    if problem != "regression":
        rows = [(each.label if problem == "multi_label" else [each.label], each.origin) for each in examples]
        unknown = unknown_labels(task.labels.strings, rows, "label")
    with errors_of("data"):
        predicted = task.classify(texts)
    if problem == "regression":
        predicted = [float(value) for value in predicted]
        errors = np.abs(np.subtract(truth, predicted))
        measures = {"mean_absolute_error": mean_of(errors), **_correlations(truth, predicted)}
    else:
        predicted = as_strings(predicted)
        measures = _label_measures(truth, predicted, problem)
    scores = label_scores(truth, predicted, problem)
    counts = {"examples": len(truth), "examples_cut": count_cut("data", task.preprocessor, texts)}
    return Evaluation(_rows_of(examples), predicted, {**counts, **unknown, **scores}, measures)


def _label_measures(truth: Sequence[Any], predicted: Sequence[Any], problem: str) -> dict[str, Measure]:
    several = problem == "multi_label"
    right, found = ([set(each) if several else {each} for each in labels] for labels in (truth, predicted))
    names = sorted(set().union(*right, *found))
    relevant, positive = (
        np.array([[name in each for name in names] for each in sets], bool) for sets in (right, found)
    )
    counts = (relevant & positive, positive, relevant)
    same = mean_of([first == second for first, second in zip(right, found, strict=True)])
    if not several:
        return {"accuracy": same, "macro_f1": f1_of(*counts, macro=True)}
    return {"micro_f1": f1_of(*counts), "macro_f1": f1_of(*counts, macro=True), "exact_match": same}


def _correlations(truth: Sequence[float], predicted: Sequence[float]) -> dict[str, Measure]:
    names = {"pearson": False, "spearman": True}
    return {name: correlation_of(truth, predicted, ranks=ranks) for name, ranks in names.items()}


def evaluate_similarity(task: zoo.TextEmbedder, examples: Sequence[LabelledText]) -> Evaluation:
    """Returns the correlations of cosine similarities with right ones.

    Args:
        task: The model.
        examples: Pairs of texts with their similarity, on any scale.
    """
    columns, truth = columns_of(examples)
    if not isinstance(columns, tuple):
        raise DataError("data.text_columns must name 2 for a TextEmbedder, the data have 1")
    with errors_of("data"):
        similarity = np.sum(np.multiply(*embedded(task, columns)), axis=1)
    # similarities have a scale of their own, so there is no error
    scores = label_scores(truth, similarity, "regression")
    prompted = map(task.preprocessor.with_prompt, prompts_of(task, columns))
    cut = sum(count_cut("data", *each, "texts") for each in zip(prompted, columns, strict=True))
    counts = {"pairs": len(truth), "texts_cut": cut}
    scores = {**counts, **{name: scores[name] for name in ("pearson", "spearman")}}
    return Evaluation(_rows_of(examples), similarity.round(4).tolist(), scores, _correlations(truth, similarity))


def prompts_of(task: zoo.TextEmbedder, columns: Sequence[Any]) -> list[str]:
    """Returns the prompt of training of each column of texts, "" for none.

    Args:
        task: The model.
        columns: The columns.
    """
    return [task.preprocessor.training_prompt(index) or "" for index in range(len(columns))]


def embedded(task: zoo.TextEmbedder, columns: Sequence[Sequence[str]], width: int | None = None) -> list[np.ndarray]:
    """Returns vectors of length 1 of the first and the second texts of rows, with the prompts of training.

    Args:
        task: The model.
        columns: The texts.
        width: Width of the vectors; None for that of the model.
    """
    prompts = prompts_of(task, columns)
    vectors = [task.embed(texts, prompt=prompt, width=width) for texts, prompt in zip(columns, prompts, strict=True)]
    return [each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-12) for each in vectors]


def _rows_of(examples: Sequence[LabelledText]) -> list[dict[str, Any]]:
    return [
        {"text": each.texts[0] if len(each.texts) == 1 else list(each.texts), "reference": each.label}
        for each in examples
    ]


def evaluate_tags(task: zoo.TokenClassifier, sentences: Sequence[Any]) -> Evaluation:
    """Returns accuracy and the F1 of entities of a tagger.

    Args:
        task: The model.
        sentences: What `read_tagged` returns.

    Raises:
        DataError: If the model knows none of the tags.
    """
    truth = [list(sentence.tags) for sentence in sentences]
    unknown = unknown_labels(task.labels.strings, [(each.tags, each.origin) for each in sentences], "tag")
    with errors_of("data"):
        predicted = as_strings(task.tag([list(sentence.words) for sentence in sentences]))
    scores = tag_scores(truth, predicted)
    pairs = list(zip(truth, predicted, strict=True))
    hits = [sum(map(str.__eq__, right, found)) for right, found in pairs]
    measures = {"accuracy": mean_of(hits, [len(tags) for tags in truth])}
    if "entity_f1" in scores:
        sets = [(entities_of(right), entities_of(found)) for right, found in pairs]
        counts = np.array([[len(right & found), len(found), len(right)] for right, found in sets])
        measures["entity_f1"] = f1_of(*(column[:, None] for column in counts.T))
    rows = [{"words": list(each.words), "reference": tags} for each, tags in zip(sentences, truth, strict=True)]
    unseen = count_unseen_words("data", task.preprocessor, [list(sentence.words) for sentence in sentences])
    counts = {"sentences": len(rows), "words_unseen": unseen}
    return Evaluation(rows, predicted, {**counts, **unknown, **scores}, measures)


def evaluate_spans(task: zoo.TokenClassifier, rows: Sequence[Any]) -> Evaluation:
    """Returns F1 of the spans that a tagger finds in raw texts.

    Args:
        task: The model.
        rows: What `read_spanned` returns.
    """
    texts, truth = [row.text for row in rows], [row.spans for row in rows]
    with errors_of("data"):
        found = task.entities(texts)
    sets = [
        tuple({(span["label"], span["start"], span["end"]) for span in spans} for spans in (right, given))
        for right, given in zip(truth, ([entity._asdict() for entity in row] for row in found), strict=True)
    ]
    counts = np.array([[len(right & given), len(given), len(right)] for right, given in sets])
    outputs = [[{"start": each.start, "end": each.end, "label": each.label} for each in row] for row in found]
    unseen = count_unseen_words("data", task.preprocessor, texts)
    scores = {"texts": len(rows), "words_unseen": unseen, **span_scores(truth, found)}
    measures = {"span_f1": f1_of(*(column[:, None] for column in counts.T))}
    return Evaluation(
        [{"text": text, "reference": spans} for text, spans in zip(texts, truth, strict=True)],
        outputs,
        scores,
        measures,
    )


def evaluate_answers(task: zoo.QuestionAnswerer, questions: Sequence[Question], language: str = "en") -> Evaluation:
    """Returns exact match and F1 of answers as SQuAD computes them, in percent.

    Args:
        task: The model.
        questions: The questions, some perhaps without an answer.
        language: See `normalized`.
    """
    truth = [[text for text, _ in row.answers] for row in questions]
    with errors_of("data"):
        found = task.answer([row.question for row in questions], [row.context for row in questions])
    outputs = [answer.text for answer in found]
    each = [answer_scores([given], [right], language) for given, right in zip(outputs, truth, strict=True)]
    rows = [
        {"question": row.question, "context": row.context, "reference": right}
        for row, right in zip(questions, truth, strict=True)
    ]
    measures = {name: mean_of([row[name] for row in each]) for name in ("exact_match", "f1")}
    cut = count_cut_questions("data", task.preprocessor, [row.question for row in questions])
    counts = {"questions": len(rows), "questions_cut": cut}
    return Evaluation(rows, outputs, {**counts, **answer_scores(outputs, truth, language)}, measures)


def as_strings(labels: Sequence[Any]) -> list[Any]:
    """Returns the labels of rows, which may be numbers, as files hold them.

    Args:
        labels: Of each row a label, or a list of labels.

    Example:

    >>> as_strings([1, [0, 1]])
    ['1', ['0', '1']]
    """
    return [as_strings(label) if isinstance(label, list) else str(label) for label in labels]
