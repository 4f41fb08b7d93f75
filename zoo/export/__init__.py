"""Models as SavedModels: strings in, strings out."""

from zoo.export.causal_lm import export_causal_lm
from zoo.export.encoder_tasks import (
    export_masked_lm,
    export_text_classifier,
    export_text_embedder,
    export_token_classifier,
)
from zoo.export.seq2seq import export_seq2seq

__all__ = [
    "export_causal_lm",
    "export_masked_lm",
    "export_seq2seq",
    "export_text_classifier",
    "export_text_embedder",
    "export_token_classifier",
]
