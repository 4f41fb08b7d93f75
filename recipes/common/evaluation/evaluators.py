"""How the models of each recipe are evaluated: its data, read with its own keys, and what its models make of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import zoo
from recipes import answer, classify, embed, finetune, prefer, rerank, summarize, tag, translate
from recipes.common.corpus.shards import held_out_texts, is_corpus
from recipes.common.data.data_sets import Source, is_name
from recipes.common.data.parallel_text import check_language_tokens
from recipes.common.data.plain_text import PLAIN, cut_texts, read_plain
from recipes.common.errors import ConfigError, DataError, RecipeError, errors_of
from recipes.common.evaluation.evaluation import Evaluation
from recipes.common.evaluation.evaluations import (
    evaluate_answers,
    evaluate_labels,
    evaluate_spans,
    evaluate_summaries,
    evaluate_tags,
    evaluate_translation,
)
from recipes.common.evaluation.held_out import HeldOut, open_rows
from recipes.common.evaluation.likelihoods import (
    evaluate_language_model,
    evaluate_masked_lm,
    evaluate_replaced_tokens,
    evaluate_replies,
)
from recipes.common.evaluation.preferences import evaluate_preferences
from recipes.common.evaluation.search_evaluations import evaluate_reranking, evaluate_search, evaluate_similarity
from recipes.common.evaluation.translation_metrics import check_tokenization
from recipes.common.saved_models import language_tokens_of, make_sampler
from recipes.common.training.models import load_start

_OF_TRAINING = "it says what models are trained on"
# (task, what it is evaluated on) -> (evaluation, rows left out)
Evaluator = Callable[[Any, HeldOut], tuple[Evaluation, int]]


def evaluate_as(recipe: str, task: zoo.Task, held_out: HeldOut) -> Evaluation:
    """Returns the results of a model on data, read and scored as a recipe does.

    Args:
        recipe: One of `RECIPES`.
        task: The model.
        held_out: The data.

    Raises:
        ConfigError: If the recipe trains models of another kind, or an option says nothing of these.
        DataError: If anything is wrong with the data.
    """
    kinds, generates, evaluate = RECIPES[recipe]
    if not isinstance(task, tuple(getattr(zoo, kind) for kind in kinds)):
        raise ConfigError(f"recipes.{recipe} trains a {' or '.join(kinds)}, this model is a {type(task).__name__}")
    if held_out.options and not generates:
        name = type(task).__name__
        raise ConfigError(f"options must be empty for a {name} of recipes.{recipe}, got {held_out.options!r}")
    if held_out.length is not None and recipe != "language_model":
        raise ConfigError(f"length must be null with recipes.{recipe}, got {held_out.length}")
    held_out.refuse("deduplicate", because=_OF_TRAINING)
    evaluation, left_out = evaluate(task, held_out)
    return dataclasses.replace(evaluation, others={**evaluation.others, "left_out": left_out})


def _decoding(held_out: HeldOut) -> dict[str, Any]:
    """How a run decodes, unless the options say it; a model that is not one of a run decodes as it says itself."""
    description = held_out.options.get("sampler") or getattr(held_out.config, "sampler", None)
    return {**held_out.options, **({} if description is None else {"sampler": make_sampler(description)})}


def _translate(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    held_out.refuse("max_length", because=_OF_TRAINING)
    data, tokens = held_out.data, held_out.data.language_tokens
    if held_out.config is None and "language_tokens" not in held_out.given:
        tokens = language_tokens_of(task)
    check_language_tokens(tokens)
    pairs, left_out = open_rows(held_out, translate.source_of(data, tokens))
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    decoding = {"batch_size": 64, **_decoding(held_out)}
    check_tokenization("data.bleu_tokenization", data.bleu_tokenization)
    scoring = {"language": data.target_language, "tokenization": data.bleu_tokenization, "tokens": tokens}
    evaluation = evaluate_translation(task, sources, references, **scoring, **decoding)
    return evaluation, left_out


def _summarize(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    held_out.refuse("max_text_length", because=_OF_TRAINING)
    data = held_out.data
    rows, left_out = open_rows(held_out, summarize.source_of(data))
    is_known = held_out.config is not None or "max_summary_length" in held_out.given
    longest = {"max_length": data.max_summary_length} if is_known else {}
    texts, summaries = [row.text for row in rows], [row.summaries for row in rows]
    decoding = {**longest, **_decoding(held_out)}
    return evaluate_summaries(task, texts, summaries, language=data.target_language, **decoding), left_out


def _classify(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    numeric = task.preprocessor.problem == "regression"
    examples, left_out = open_rows(held_out, classify.source_of(held_out.data, numeric))
    _require_texts(examples, 2 if task.preprocessor.pairs else 1, task)
    return evaluate_labels(task, examples), left_out


def _embed(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    data = held_out.data
    config = dataclasses.replace(held_out.source or embed.EmbedConfig(), data=data)
    has_similarities = config.objective.name in zoo.preprocessing.text_embedder.WITH_SIMILARITIES
    if not has_similarities and held_out.is_asked_for:
        # these rows are searched, not what the run was tested on
        config = dataclasses.replace(config, evaluation=embed.EvaluationConfig())
    if not has_similarities:
        held_out.refuse("label_column", because="these models are measured by rows without similarities")
    if not has_similarities and not config.evaluation.similarity:
        held_out.refuse("highest", because="no data have a similarity")
    # which also reads the files of `evaluation.similarity`
    has_files = config.evaluation.similarity and not is_name(config.evaluation.similarity)
    describes_files = () if has_files else ("header",)
    rows, left_out = open_rows(held_out, embed.source_of(data, has_similarities), describes_files=describes_files)
    pairs, retrieval = embed.open_evaluation(config, rows)
    evaluation = evaluate_similarity(task, pairs) if pairs else None
    if retrieval is None:
        return evaluation, left_out
    found = evaluate_search(task, retrieval)
    # those of pairs are scores of other rows
    others = {} if evaluation is None else evaluation.scores
    return dataclasses.replace(found, others=others), left_out


def _rerank(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    data = held_out.data
    config = dataclasses.replace(held_out.source or rerank.RerankConfig(), data=data)
    held_out.refuse("negatives", "negatives_from", because=_OF_TRAINING)
    if data.label_column is None:
        held_out.refuse("highest", because="data.label_column is null")
    if held_out.is_asked_for:
        # these rows are reordered, not what the run was tested on
        search = dataclasses.replace(config.evaluation, queries=None, corpus=None, relevance=None)
        config = dataclasses.replace(config, evaluation=search)
    if not task.preprocessor.pairs:
        raise ConfigError("recipes.rerank trains a classifier of pairs, this model takes single texts")
    rows, left_out = open_rows(held_out, rerank.source_of(data))
    return evaluate_reranking(task, *rerank.open_evaluation(config, rows)), left_out


def _require_texts(examples: list[Any], needed: int, task: Any) -> None:
    found = len(examples[0].texts)
    if found != needed:
        raise DataError(f"data.text_columns must name {needed} for this {type(task).__name__}, the data have {found}")


def _tag(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    data = held_out.data
    files = getattr(data, held_out.split) or (data.train if is_name(data.train) else data.validation) or data.train
    if tag.is_spanned(files[0], data):
        held_out.refuse("word_column", "tag_column", because="texts with spans have no columns")
        texts, left_out = open_rows(held_out, tag.source_of(data, spans=True))
        return evaluate_spans(task, texts), left_out
    held_out.refuse("split", because="words with tags are split already")
    sentences, left_out = open_rows(held_out, tag.source_of(data, spans=False))
    return evaluate_tags(task, sentences), left_out


def _answer(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    questions, left_out = open_rows(held_out, answer.SOURCE)
    return evaluate_answers(task, questions, held_out.data.language), left_out


def _running_text(held_out: HeldOut) -> tuple[list[str], int]:
    data = held_out.data
    if held_out.split != "train" and not data.validation and all(map(is_corpus, data.train)):
        return held_out_texts(data.train), 0
    source = Source(PLAIN, lambda files, bad: read_plain(files, bad, unit=data.unit, key=data.text_key))
    return open_rows(held_out, source)


def _language_model(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    data = held_out.data
    documents, left_out = _running_text(held_out)
    length = held_out.length
    if length is None and held_out.config is not None:
        length = held_out.config.training.length
    return evaluate_language_model(task, documents, length=length, packed=data.packing == "documents"), left_out


def _masked_lm(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    documents, left_out = _running_text(held_out)
    texts = cut_texts(documents, held_out.data.words_per_text)
    of_kind = evaluate_masked_lm if isinstance(task, zoo.MaskedLM) else evaluate_replaced_tokens
    return of_kind(task, texts), left_out


def _finetune(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    held_out.refuse("loss", "packing", because=_OF_TRAINING)
    data = held_out.data
    _set_chat_format(task, data)
    if task.chat_format is None:
        raise ConfigError("data.chat_format must be given: the tokenizer of this model has none")
    most = task.backbone.config.max_length
    if data.max_length is not None and data.max_length > most:
        raise ConfigError(f"data.max_length must be at most the model's max_length={most}, got {data.max_length}")
    conversations, left_out = open_rows(held_out, finetune.source_of(data, task.chat_format))
    new_tokens = {} if held_out.config is None else {"max_new_tokens": held_out.config.new_tokens}
    decoding = {"sampler": "greedy", **new_tokens, **held_out.options}
    return evaluate_replies(task, conversations, data.max_length, **decoding), left_out


def _prefer(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    data = held_out.data
    _set_chat_format(task, data)
    preferences, left_out = open_rows(held_out, prefer.source_of(data, task))
    config = dataclasses.replace(held_out.config or prefer.PreferConfig(), data=data)
    rewards = {} if held_out.config is None else _rewards(config, held_out.folder)
    new_tokens = {} if held_out.config is None else {"max_new_tokens": config.new_tokens}
    decoding = {"sampler": "greedy", **new_tokens, **held_out.options}
    return evaluate_preferences(task, preferences, prefer.longest_of(config, task), **rewards, **decoding), left_out


def _rewards(config: prefer.PreferConfig, folder: Path | None) -> dict[str, Any]:
    """What a run took as rewards: its loss, and the model that it began with where this needs one."""
    loss = prefer.make_loss(config)
    if not loss.needs_reference:
        return {"loss": loss}
    source = config.model.start_from or str(Path(folder or config.run_folder, "start", "model"))
    model = config.model if config.model.start_from else dataclasses.replace(config.model, options=None)
    try:
        return {"loss": loss, "reference": load_start(zoo.CausalLM, dataclasses.replace(model, start_from=source))}
    except RecipeError as error:
        print(f"rewards are left out: they need the model that the run began with: {error}")
        return {}


def _set_chat_format(task: Any, data: Any) -> None:
    if data.chat_format is not None:
        with errors_of("data.chat_format"):
            task.chat_format = data.chat_format


# for each recipe the names of the kinds of its models, whether they generate text, and how they are evaluated
RECIPES: Mapping[str, tuple[tuple[str, ...], bool, Evaluator]] = {
    "translate": (("Seq2SeqLM",), True, _translate),
    "summarize": (("Seq2SeqLM",), True, _summarize),
    "language_model": (("CausalLM",), False, _language_model),
    "pretrain_masked_lm": (("MaskedLM", "ReplacedTokenDetector"), False, _masked_lm),
    "classify": (("TextClassifier",), False, _classify),
    "tag": (("TokenClassifier",), False, _tag),
    "answer": (("QuestionAnswerer",), False, _answer),
    "embed": (("TextEmbedder",), False, _embed),
    "rerank": (("TextClassifier",), False, _rerank),
    "finetune": (("CausalLM",), True, _finetune),
    "prefer": (("CausalLM",), True, _prefer),
}
