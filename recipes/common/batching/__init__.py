"""Batches for `model.fit`, by tf.data: reproducible, and training on them can resume anywhere."""

from recipes.common.batching.corpus_batches import CorpusBatches, CorpusExamples, CorpusRows
from recipes.common.batching.example_batches import ExampleBatches
from recipes.common.batching.packed_conversations import PackedConversations
from recipes.common.batching.packed_documents import PackedDocuments
from recipes.common.batching.pair_batches import PairBatches
from recipes.common.batching.rounds import Rounds
from recipes.common.batching.token_windows import TokenWindows

__all__ = [
    "CorpusBatches",
    "CorpusExamples",
    "CorpusRows",
    "ExampleBatches",
    "PackedConversations",
    "PackedDocuments",
    "PairBatches",
    "Rounds",
    "TokenWindows",
]
