"""All English text of the named data sets, for pretraining."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from recipes.common.data.data_sets import Splits
from recipes.common.data.labelled_text import LABELLED
from recipes.common.data.parallel_text import PARALLEL
from recipes.common.data.summaries import SUMMARIES
from recipes.common.data.tagged_words import TAGGED

_EVERY = 20


def english_texts(loaders: Iterable[Callable[[], Splits]]) -> Splits:
    """Returns the texts of training sets, each once; those of validation and test sets are left out.

    Args:
        loaders: Of data sets of running text, whose documents are taken beside the rows of the others: topics (AG
            News), film reviews (SST-2), similarities (STS Benchmark), captions (Multi30k), sentences (Tatoeba), words
            (the English Web Treebank, WNUT-17), abstracts with their summaries (SciTLDR).

    Returns:
        Documents; every 20th is for validation. A text of another part of these data sets is in neither.
    """
    documents: list[str] = []
    held_out: set[str] = set()
    for load, texts_of in (*((load, lambda text: (text,)) for load in loaders), *_ROWS):
        splits = load()
        documents += [text for row in splits.train for text in texts_of(row)]
        for part in splits[1:]:
            held_out.update(text for row in part or () for text in texts_of(row))
    kept = [text for text in dict.fromkeys(documents) if text not in held_out]
    return Splits([text for index, text in enumerate(kept) if index % _EVERY], kept[::_EVERY])


_ROWS: tuple[tuple[Callable[[], Splits], Callable[..., Iterable[str]]], ...] = (
    *((LABELLED[name], lambda row: row.texts) for name in ("ag_news", "sst2", "stsb")),
    *((PARALLEL[name], lambda row: (row.source,)) for name in ("multi30k_en_de", "tatoeba_en_fr")),
    *((TAGGED[name], lambda row: (" ".join(row.words),)) for name in ("ud_english_ewt", "wnut17")),
    (SUMMARIES["scitldr"], lambda row: (row.text, *row.summaries)),
)
