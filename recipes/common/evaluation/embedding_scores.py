"""How good the vectors of texts are: cosines beside similarities, and search, for each width; with pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import zoo
from recipes.common.charts import plot_agreement, title_of
from recipes.common.data.labelled_text import LabelledText, columns_of
from recipes.common.data.retrieval import Retrieval
from recipes.common.evaluation.evaluations import embedded, prompts_of
from recipes.common.evaluation.label_metrics import label_scores
from recipes.common.evaluation.search import curves_of, retrieval_scores, search, tfidf, tfidf_search
from recipes.common.run_folder import RunFolder
from recipes.common.training.windowed import count_cut

# documents of a query whose recall is reported, and ranks that are drawn
_RECALL_AT, _DRAWN = (1, 10, 100), 20


class EmbeddingScores:
    """Measures an embedder. Vectors are compared by their cosine, whatever their lengths.

    Args:
        task: The embedder.
        run: The run folder, which gets the pictures.
        widths: Widths of vectors that are measured besides that of the embedder and the whole; none for that of the
            embedder alone.

    Example:

    >>> EmbeddingScores(task, run, [64]).of_search(retrieval)["ndcg@10, width 64"]
    0.52
    """

    def __init__(self, task: zoo.TextEmbedder, run: RunFolder, widths: Sequence[int] = ()) -> None:
        self._task, self._run = task, run
        self._own = task.default_width or task.width
        others = sorted({*widths, task.width} - {self._own}, reverse=True) if widths else []
        self._widths = [self._own, *others]

    def _named(self, scores: dict[str, Any], width: int) -> dict[str, Any]:
        """Scores, called by their width where it is not that of the embedder."""
        return scores if width == self._own else {f"{name}, width {width}": value for name, value in scores.items()}

    def _count_cut(self, columns: Sequence[Sequence[str]], names: Sequence[str]) -> list[int]:
        """How many of the first and of the second texts are longer than the embedder takes; says so."""
        preprocessors = map(self._task.preprocessor.with_prompt, prompts_of(self._task, columns))
        return [count_cut("test", *each) for each in zip(preprocessors, columns, names, strict=True)]

    def of_pairs(
        self, pairs: Sequence[LabelledText], highest: float = 1.0, *, exact: bool = False, is_validation: bool = False
    ) -> dict[str, Any]:
        """Returns how cosines agree with similarities; draws it, and how it depends on the width.

        Args:
            pairs: Pairs of texts with a similarity.
            highest: The similarity of equal texts.
            exact: Whether cosines are to be the similarities, not only in their order.
            is_validation: Whether they are the validation data.
        """
        texts, truth = columns_of(pairs)
        cut = sum(self._count_cut(texts, ("first texts", "second texts")))
        results: dict[str, Any] = {"test_pairs": len(truth), "test_texts_cut": cut}
        curve = {}
        for width in self._widths:
            first, second = embedded(self._task, texts, width)
            cosines = np.sum(first * second, axis=1)
            scores = label_scores(truth, cosines * highest, "regression")
            if not exact:
                del scores["mean_absolute_error"]
            results |= self._named(scores, width)
            curve[width] = scores["spearman"]
            if width == self._own:
                title = title_of("pairs", is_validation)
                self._run.draw("agreement.png", plot_agreement, truth, cosines * highest, title=title)
        if len(curve) > 1 and None not in curve.values():
            labels = {"x_label": "width", "y_label": "Spearman correlation", "title": "First entries of the vectors"}
            points = (sorted(curve), [curve[width] for width in sorted(curve)])
            self._run.draw("widths.png", zoo.inspect.plot_curves, {"test pairs": points}, **labels)
        return results

    def of_search(self, retrieval: Retrieval, *, baseline: bool = True) -> dict[str, Any]:
        """Returns the scores of a search for the documents of queries; draws them.

        Args:
            retrieval: Queries, documents and which are relevant.
            baseline: Whether there are those of a search by TF-IDF too.
        """
        columns = retrieval.columns()
        cut = self._count_cut(columns, ("queries", "documents"))
        results: dict[str, Any] = {"queries": len(columns[0]), "documents": len(columns[1])}
        results |= dict(zip(("queries_cut", "documents_cut"), cut, strict=True))
        curves = {}

        def measure(name: str, found: dict[str, list[str]]) -> dict[str, float]:
            curves[name] = curves_of(found, retrieval.relevant, min(_DRAWN, len(columns[1])))
            return retrieval_scores(found, retrieval.relevant, _RECALL_AT)

        for width in self._widths:
            found = search(retrieval, *embedded(self._task, columns, width), max(_RECALL_AT))
            results |= self._named(measure(f"width {width}", found), width)
        if baseline:
            try:
                scores = measure("TF-IDF", tfidf_search(retrieval, max(_RECALL_AT)))
                results |= {f"{name}, TF-IDF": value for name, value in scores.items()}
            except ValueError as error:
                # texts without words, for example
                print(f"TF-IDF is left out: {error}")
        labels = {"x_label": "rank", "y_label": "nDCG up to this rank", "title": "Search, test queries"}
        self._run.draw("search.png", zoo.inspect.plot_curves, curves, **labels)
        return results


def similarity_baseline(pairs: Sequence[LabelledText], fitted: Iterable[str]) -> dict[str, Any]:
    """Returns the correlation of the cosines of TF-IDF vectors with the similarities of pairs.

    Args:
        pairs: Pairs of texts with a similarity.
        fitted: The texts whose words are counted.
    """
    texts, truth = columns_of(pairs)
    try:
        first, second = tfidf(fitted, *texts)
    except ValueError as error:
        print(f"TF-IDF is left out: {error}")
        return {}
    cosines = np.asarray(first.multiply(second).sum(axis=1)).ravel()
    return {"spearman, TF-IDF": label_scores(truth, cosines, "regression")["spearman"]}
